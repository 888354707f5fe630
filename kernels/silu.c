/* silu: y = x / (1 + exp(-x)) (Elfwing, Uchibe, Doya 2017; swish). */
#include <math.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise.h"

static double silu(const void *settings, double x)
{
    (void)settings;
    return x / (1 + exp(-x));
}

static double silu_slope(const void *settings, double x)
{
    (void)settings;
    double sigmoid = 1 / (1 + exp(-x));
    return sigmoid * (1 + x * (1 - sigmoid));
}

static enum status silu_forward(const struct call *call)
{
    return elementwise_forward(call, silu);
}

static enum status silu_backward(const struct call *call)
{
    return elementwise_backward(call, &call->x[0], silu_slope);
}

static const struct op_code reference = {.forward = silu_forward, .backward = silu_backward};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op silu_op = {
    .name = "silu",
    .help = "SiLU (swish): x * sigmoid(x).",
    .min_inputs = 1,
    .max_inputs = 1,
    .precision = CLASS_FOLLOW,
    .shape = elementwise_shape,
    .reads = elementwise_reads_x,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &silu_cpu,
    .cuda = ON_CUDA(silu_cuda),
    .examples = examples,
};
