/* activations.c: the ops of activations.def: relu, relu6 (Howard et al. 2017, MobileNets), leaky_relu (Maas
 * et al. 2013), silu (Elfwing, Uchibe, Doya 2017; swish), hardswish (Howard et al. 2019, MobileNetV3). */
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/elementwise.h"

#define ACTIVATION(NAME, ...)                                                                             \
    case ACTIVATION_##NAME:                                                                               \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) LOOP(ACTIVATION_##NAME)                   \
        return;

EVERY_MACHINE(void, activation_block,
              (struct call_activation activation, const float *z, float *y, int64_t count),
              (activation, z, y, count))
{
    float slope = (float)activation.slope;
#define LOOP(kind) y[i] = activate_fp32(kind, z[i], slope);
    switch (activation.kind) {
#include "kernels/activations.def"
    case ACTIVATION_NONE: return;
    }
#undef LOOP
}

EVERY_MACHINE(void, activation_gradient_block,
              (struct call_activation activation, const float *z, const float *d, float *d_z, int64_t count),
              (activation, z, d, d_z, count))
{
    float slope = (float)activation.slope;
    /* Loaded in any case, without a jump. */
#define LOOP(kind)                                                                                        \
    {                                                                                                     \
        float own = d[i], at = z[i];                                                                      \
        d_z[i] = activation_gradient_fp32(kind, at, own, slope);                                          \
    }
    switch (activation.kind) {
#include "kernels/activations.def"
    case ACTIVATION_NONE: return;
    }
#undef LOOP
}
#undef ACTIVATION

/* The settings of code: the activation. */
static double function_of(const void *settings, double x)
{
    const struct call_activation *own = settings;
    return activate(own->kind, x, own->slope);
}

static double gradient_of(const void *settings, double d_y, double value)
{
    const struct call_activation *own = settings;
    return activation_gradient(own->kind, value, d_y, own->slope);
}

static void block_of(const void *settings, const float *x, float *y, int64_t count)
{
    activation_block(*(const struct call_activation *)settings, x, y, count);
}

static void gradient_block_of(const void *settings, const float *value, const float *d_y, float *d_x,
                              int64_t count)
{
    activation_gradient_block(*(const struct call_activation *)settings, value, d_y, d_x, count);
}

static struct call with_settings(const struct call *call, struct call_activation *own)
{
    struct call changed = *call;
    *own = activation_of_op(call);
    changed.settings = own;
    return changed;
}

static enum status activation_forward(const struct call *call)
{
    struct call_activation own;
    struct call changed = with_settings(call, &own);
    return elementwise_forward(&changed, function_of);
}

static enum status activation_backward(const struct call *call)
{
    struct call_activation own;
    struct call changed = with_settings(call, &own);
    return elementwise_backward(&changed, activation_value(call), gradient_of, function_of);
}

static enum status activation_forward_cpu(const struct call *call)
{
    struct call_activation own;
    struct call changed = with_settings(call, &own);
    return elementwise_forward_cpu(&changed, block_of);
}

static enum status activation_backward_cpu(const struct call *call)
{
    struct call_activation own;
    struct call changed = with_settings(call, &own);
    return elementwise_backward_cpu(&changed, activation_value(call), gradient_block_of, block_of);
}

static const struct op_code reference = {.forward = activation_forward, .backward = activation_backward};
static const struct op_code cpu = {.forward = activation_forward_cpu, .backward = activation_backward_cpu};

static const struct field leaky_relu_fields[] = {
    {.name = "slope", .type = FIELD_REAL, .offset = offsetof(struct leaky_relu, slope), .initial = "0.01",
     .min = 0, .max = 1, .help = "Slope for negative values."},
    {0},
};
static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};
static const struct op_example leaky_relu_examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"slope=0.2", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {0},
};

/* Columns of struct op that differ. */
#define RELU_COLUMNS .examples = examples, .supports_cuda = call_sums_gradient
#define RELU6_COLUMNS .examples = examples
#define LEAKY_RELU_COLUMNS                                                                                \
    .examples = leaky_relu_examples, .settings_size = sizeof(struct leaky_relu), .fields = leaky_relu_fields
#define SILU_COLUMNS .examples = examples
#define HARDSWISH_COLUMNS .examples = examples
#define ACTIVATION(NAME, op_, value, help_, ...)                                                          \
    const struct op op_##_op = {                                                                          \
        .name = #op_, .help = help_, .shape = elementwise_shape, .reads = elementwise_reads_##value,      \
        .in_place = elementwise_in_place, .reference = &reference, .cpu = &cpu,                           \
        .cuda = ON_CUDA(op_##_cuda), NAME##_COLUMNS,                                                      \
    };
#include "kernels/activations.def"
#undef ACTIVATION
