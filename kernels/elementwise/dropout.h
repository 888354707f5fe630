/* dropout.h: settings of dropout, and its random decisions, for every device. */
#pragma once

#include "base/philox.h"
#include "kernels/op.h"

struct dropout {
    double rate;
};

/* Draws come in groups of four words; element e of the batch has word e % 4 of draw e / 4 of this
 * stream, and is dropped when that is below rate * 2^32. */
ANYWHERE struct random dropout_stream(const struct op_random *random, int64_t step)
{
    return philox_open(random->seed, PURPOSE_DROPOUT, (uint64_t)step, random->layer);
}

ANYWHERE uint64_t dropout_threshold(const struct dropout *dropout)
{
    return (uint64_t)(dropout->rate * 4294967296.0);
}

ANYWHERE float dropout_scale(const struct dropout *dropout)
{
    return dropout->rate < 1 ? (float)(1 / (1 - dropout->rate)) : 0;
}

/* Number of the micro-batch's first element in the batch. */
ANYWHERE uint64_t dropout_first(const struct op_random *random, int64_t count)
{
    return (uint64_t)random->micro_batch * (uint64_t)count;
}

/* The op, of a file's fields, examples, and functions for reference and CPU. */
#define DROPOUT_OP(op_, help_)                                                                           \
    MAP_CODE(reference, drop)                                                                            \
    MAP_CODE(cpu, drop_cpu)                                                                              \
    const struct op op_##_op = {                                                                         \
        .name = #op_, .help = help_, .settings_size = sizeof(struct dropout), .fields = fields,          \
        .training_only = true,                                                                           \
        .shape = elementwise_shape, .in_place = elementwise_in_place, .reference = &reference,           \
        .cpu = &cpu, .cuda = ON_CUDA(op_##_cuda), .examples = examples,                                  \
    }
