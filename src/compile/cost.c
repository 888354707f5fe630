#include "compile/cost.h"

#include "compile/program_parts.h"

/* Fitted to an H200: the calls of ResNet-50's forward pass that could be recomputed, timed one by one, with a
 * mean error of 12 %. The times of bytes and of operations add up. */
#define BYTES_PER_SECOND 4.2e12
#define BYTES_FUSED_PER_SECOND 3.5e12    /* that a kernel writes in addition */
#define FLOPS_LOW 800e12
#define FLOPS_NARROW 250e12              /* of the first layer, whose input has fewer channels than ... */
#define NARROW 8
#define FLOPS_FP32 150e12
#define BYTES_CACHED 32e6    /* that the next instruction still finds in the second-level cache */

/* An ordinary core of the 2020s: multiply-adds in convolutions, and memory bandwidth. */
#define CORE_FLOPS 40e9
#define CORE_BYTES_PER_SECOND 10e9

/* PCI Express 5, 16 lanes, each way. */
#define TRANSFER_BYTES_PER_SECOND 50e9
#define SECONDS_A_TRANSFER 10e-6

/* NVLink among the GPUs of a host, as NCCL uses it: on H200s 51 MiB take 0.21 ms among two and 0.26 ms among
 * four, 1 MiB takes 0.02 ms. */
#define EXCHANGE_BYTES_PER_SECOND 300e9
#define SECONDS_AN_EXCHANGE 15e-6

/* A copy from one GPU to another while both compute: 205 to 310 GB/s on two H200s. */
#define MESSAGE_BYTES_PER_SECOND 250e9

/* Bytes of the first operand in whose place the second one is read: a rank's own share
 * (kernels/sum_ranks.c). */
static int64_t bytes_replaced(const struct program *program, const struct instruction *at)
{
    if (!at->op || at->x_count < 2 || program->values[at->x[0]].kind != KIND_EXCHANGE) return 0;
    return program->values[at->x[1]].bytes;
}

double cost_bytes(const struct program *program, const struct instruction *at)
{
    double reads = -(double)bytes_replaced(program, at), writes = 0;
    for (int k = 0; k < at->read_count; k++) reads += (double)program->values[at->reads[k]].bytes;
    for (int k = 0; k < at->write_count; k++)
        if (at->writes[k] != at->workspace) writes += (double)program->values[at->writes[k]].bytes;
    return at->kind == INSTRUCTION_UPDATE ? 5 * reads + writes : reads + writes;
}

/* Recomputed without x: no product of weights and x is computed. */
static bool is_from_saved(const struct instruction *at)
{
    return at->phase == PHASE_RECOMPUTE && !ids_have(at->reads, at->read_count, at->x[0]);
}

double cost_flops(const struct program *program, const struct instruction *at)
{
    double weights = 0;
    if (at->phase == PHASE_UPDATE || is_from_saved(at)) return 0;
    for (int k = 0; k < at->param_count; k++) {
        const struct value *param = &program->values[at->params[k]];
        if (program->graph->params[param->index].spec.role == ROLE_WEIGHT)
            weights += (double)shape_count(param->shape);
    }
    if (weights == 0) return 0;
    const struct shape y = program->values[at->y].shape;
    return y.c > 0 ? 2 * weights * (double)(shape_count(y) / y.c) : 0;
}

double cost_call(const struct program *program, const struct instruction *at)
{
    bool fp32 = at->y >= 0 && program->values[at->y].dtype == F32;
    bool narrow = at->x_count > 0 && program->values[at->x[0]].shape.c < NARROW;
    double rate = fp32 ? FLOPS_FP32 : narrow ? FLOPS_NARROW : FLOPS_LOW;
    return COST_CALL + cost_flops(program, at) / rate + cost_bytes(program, at) / BYTES_PER_SECOND;
}

/* An H200 on convolutional networks, as measured: the time of a step of ResNets, VGG-16 and DenseNet-121 in
 * fp16, with 64 to 256 images, is predicted within 7 %. A kernel begins by reading and ends by writing, so
 * the times of its bytes and of its operations add up. */
#define H200_BYTES_PER_SECOND 3.3e12
#define H200_FLOPS 1000e12

double cost_seconds(const struct program *program, const struct instruction *at)
{
    bool fp32 = at->x_count > 0 && program->values[at->x[0]].dtype == F32;
    return COST_LAUNCH + cost_flops(program, at) / (fp32 ? FLOPS_FP32 : H200_FLOPS) +
           cost_bytes(program, at) / H200_BYTES_PER_SECOND;
}

double cost_call_cpu(const struct program *program, const struct instruction *at, int threads)
{
    return cost_flops(program, at) / (CORE_FLOPS * threads) +
           cost_bytes(program, at) / CORE_BYTES_PER_SECOND;
}

double cost_program(const struct program *program)
{
    double seconds = 0;
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].op) seconds += cost_call(program, &program->instructions[i]);
    return seconds;
}

double cost_recompute(const struct program *program, const struct instruction *forward)
{
    struct instruction at = instruction_after(program, forward, PHASE_RECOMPUTE);
    at.mask = forward->mask;
    instruction_link(program, &at);
    double seconds = cost_call(program, &at);
    instruction_free(&at);
    return seconds;
}

/* The next weight gradient reads what fits into the cache from there: the write then replaces a read. */
double cost_fused_recompute(const struct program *program, const struct instruction *forward)
{
    double bytes = (double)program->values[forward->y].bytes;
    return bytes / BYTES_FUSED_PER_SECOND * (bytes <= BYTES_CACHED ? 0.25 : 1);
}

double cost_exchange(int64_t bytes, int ranks)
{
    double moved = 2.0 * (ranks - 1) / ranks * (double)bytes;
    return SECONDS_AN_EXCHANGE + moved / EXCHANGE_BYTES_PER_SECOND;
}

double cost_message(int64_t bytes)
{
    return SECONDS_AN_EXCHANGE + (double)bytes / MESSAGE_BYTES_PER_SECOND;
}

double cost_transfer(int64_t bytes)
{
    return SECONDS_A_TRANSFER + (double)bytes / TRANSFER_BYTES_PER_SECOND;
}
