/* relu6: y = min(max(x, 0), 6) (Howard et al. 2017, MobileNets). A NaN passes, as in torch. */
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise.h"

static double relu6(const void *settings, double x)
{
    (void)settings;
    return x <= 0 ? 0 : x >= 6 ? 6 : x;
}

/* torch's hardtanh: zero at both corners. */
static double relu6_slope(const void *settings, double y)
{
    (void)settings;
    return y <= 0 || y >= 6 ? 0 : 1;
}

static enum status relu6_forward(const struct call *call)
{
    return elementwise_forward(call, relu6);
}

static enum status relu6_backward(const struct call *call)
{
    return elementwise_backward(call, &call->y, relu6_slope);
}

static const struct op_code reference = {.forward = relu6_forward, .backward = relu6_backward};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op relu6_op = {
    .name = "relu6",
    .help = "ReLU6: min(max(x, 0), 6).",
    .min_inputs = 1,
    .max_inputs = 1,
    .precision = CLASS_FOLLOW,
    .shape = elementwise_shape,
    .reads = elementwise_reads_y,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &relu6_cpu,
    .cuda = ON_CUDA(relu6_cuda),
    .examples = examples,
};
