#include "compile/cost.h"

/* A data-centre GPU of the 2020s, as networks get to see it; only the ratios matter. */
#define BYTES_PER_SECOND 3.5e12
#define FLOPS_LOW 400e12
#define FLOPS_FP32 150e12
#define SECONDS_A_CALL 3e-6
#define BYTES_CACHED 32e6    /* that are still in the second-level cache a moment later */

/* PCI Express 5, 16 lanes, each way. */
#define TRANSFER_BYTES_PER_SECOND 50e9
#define SECONDS_A_TRANSFER 10e-6

/* NVLink among the GPUs of a host, as NCCL uses it: on H200s 51 MiB take 0.21 ms among two and 0.26 ms among
 * four, 1 MiB takes 0.02 ms. */
#define EXCHANGE_BYTES_PER_SECOND 300e9
#define SECONDS_AN_EXCHANGE 15e-6

/* Multiply-adds count two. What is not a product of weights is bound by memory. */
double cost_call(const struct program *program, const struct instruction *at)
{
    double bytes = 0, weights = 0;
    for (int k = 0; k < at->read_count; k++) bytes += (double)program->values[at->reads[k]].bytes;
    for (int k = 0; k < at->write_count; k++) bytes += (double)program->values[at->writes[k]].bytes;
    for (int k = 0; k < at->param_count; k++) {
        const struct value *param = &program->values[at->params[k]];
        if (program->graph->params[param->index].spec.role == ROLE_WEIGHT)
            weights += (double)shape_count(param->shape);
    }
    const struct value *y = &program->values[at->y];
    double flops = y->shape.c > 0 ? 2 * weights * (double)(shape_count(y->shape) / y->shape.c) : 0;
    double compute = flops / (y->dtype == F32 ? FLOPS_FP32 : FLOPS_LOW), memory = bytes / BYTES_PER_SECOND;
    return SECONDS_A_CALL + (compute > memory ? compute : memory);
}

double cost_program(const struct program *program)
{
    double seconds = 0;
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].op) seconds += cost_call(program, &program->instructions[i]);
    return seconds;
}

/* The weight gradient that comes next reads from the cache what that can hold: then the write takes the
 * place of a read. */
double cost_by_the_way(const struct program *program, const struct instruction *forward)
{
    double bytes = (double)program->values[forward->y].bytes;
    return bytes / BYTES_PER_SECOND * (bytes <= BYTES_CACHED ? 0.25 : 1);
}

double cost_exchange(int64_t bytes, int ranks)
{
    double moved = 2.0 * (ranks - 1) / ranks * (double)bytes;
    return SECONDS_AN_EXCHANGE + moved / EXCHANGE_BYTES_PER_SECOND;
}

double cost_transfer(int64_t bytes)
{
    return SECONDS_A_TRANSFER + (double)bytes / TRANSFER_BYTES_PER_SECOND;
}
