/* relu: y = max(x, 0). A NaN passes, as in torch. */
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise.h"

static double relu(const void *settings, double x)
{
    (void)settings;
    return x <= 0 ? 0 : x;
}

/* Zero at zero; the sign of y is that of x, so that x need not be kept. */
static double relu_slope(const void *settings, double y)
{
    (void)settings;
    return y <= 0 ? 0 : 1;
}

static enum status relu_forward(const struct call *call)
{
    return elementwise_forward(call, relu);
}

static enum status relu_backward(const struct call *call)
{
    return elementwise_backward(call, &call->y, relu_slope);
}

static const struct op_code reference = {.forward = relu_forward, .backward = relu_backward};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op relu_op = {
    .name = "relu",
    .help = "ReLU: max(x, 0).",
    .min_inputs = 1,
    .max_inputs = 1,
    .precision = CLASS_FOLLOW,
    .shape = elementwise_shape,
    .reads = elementwise_reads_y,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &relu_cpu,
    .cuda = ON_CUDA(relu_cuda),
    .examples = examples,
};
