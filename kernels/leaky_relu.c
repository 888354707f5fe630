/* leaky_relu: y = x where x > 0, slope * x elsewhere (Maas et al. 2013). */
#include "leaky_relu.h"

#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise.h"

static double leaky_relu(const void *settings, double x)
{
    const struct leaky_relu *s = settings;
    return x > 0 ? x : s->slope * x;
}

/* The slope is never negative, so that the sign of y is that of x and x need not be kept. */
static double leaky_relu_slope(const void *settings, double y)
{
    const struct leaky_relu *s = settings;
    return y > 0 ? 1 : s->slope;
}

static enum status leaky_relu_forward(const struct call *call)
{
    return elementwise_forward(call, leaky_relu);
}

static enum status leaky_relu_backward(const struct call *call)
{
    return elementwise_backward(call, &call->y, leaky_relu_slope);
}

static const struct field fields[] = {
    {.name = "slope", .type = FIELD_REAL, .offset = offsetof(struct leaky_relu, slope), .initial = "0.01",
     .min = 0, .max = 1, .help = "Slope for negative values."},
    {0},
};

static const struct op_code reference = {.forward = leaky_relu_forward, .backward = leaky_relu_backward};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"slope=0.2", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op leaky_relu_op = {
    .name = "leaky_relu",
    .help = "Leaky ReLU: max(x, 0) + slope * min(x, 0).",
    .settings_size = sizeof(struct leaky_relu),
    .fields = fields,
    .min_inputs = 1,
    .max_inputs = 1,
    .precision = CLASS_FOLLOW,
    .shape = elementwise_shape,
    .reads = elementwise_reads_y,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &leaky_relu_cpu,
    .cuda = ON_CUDA(leaky_relu_cuda),
    .examples = examples,
};
