/* scale: y = x * weight, a learned factor for each channel: layer scale (Touvron et al. 2021).
 *
 *   d_x = d_y * weight,   d_weight = sum over n, h, w of d_y * x
 *
 * The parameter has torchvision's shape, c, 1, 1, or timm's, c, and the layer's name. Like batch norm's it is
 * not decayed. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/support/pixels_cpu.h"
#include "kernels/elementwise/elementwise.h"

struct scale {
    double init;
    bool vector;
};

static int scale_params(const void *settings, int x_count, const struct shape *x,
                        struct op_param out[OP_MAX_PARAMS])
{
    const struct scale *s = settings;
    struct shape shape = {.rank = s->vector ? 1 : 3, .dim = {x[0].c, 1, 1, 1}};
    out[0] = (struct op_param){"", shape, ROLE_NORM, F32, INIT_CONSTANT, s->init, 0, 0};
    return 1;
}

static unsigned scale_reads(const void *settings, enum phase phase)
{
    return READS_X | READS_PARAMS;
}

static enum status scale_forward(const struct call *call)
{
    const struct tensor *addend = call_operand(call, OPERAND_Y_ADDEND);
    int64_t channels = call->y.shape.c;
    for (int64_t i = 0; i < shape_count(call->y.shape); i++)
        tensor_set(&call->y, i, tensor_get(&call->x[0], i) * tensor_get(&call->params[0], i % channels) +
                                    (addend ? tensor_get(addend, i) : 0));
    return OK;
}

static enum status scale_backward(const struct call *call)
{
    int64_t channels = call->d_y.shape.c, count = shape_count(call->d_y.shape);
    for (int64_t c = 0; call->d_params[0].data && c < channels; c++) {
        double sum = 0;
        for (int64_t i = c; i < count; i += channels)
            sum += tensor_get(&call->d_y, i) * tensor_get(&call->x[0], i);
        tensor_set(&call->d_params[0], c, sum);
    }
    for (int64_t i = 0; call->d_x[0].data && i < count; i++)
        tensor_set(&call->d_x[0], i, tensor_get(&call->d_y, i) * tensor_get(&call->params[0], i % channels));
    return OK;
}

static void forward_piece(const struct call *call, int64_t first, int64_t end, float *lines)
{
    const struct tensor *addend = call_operand(call, OPERAND_Y_ADDEND);
    int64_t channels = call->y.shape.c;
    for (int64_t at = first * channels; at < end * channels; at += channels) {
        const float *x = block_load(&call->x[0], at, channels, lines);
        const float *more = addend ? block_load(addend, at, channels, lines + channels) : NULL;
        float *y = block_open(&call->y, at, lines + 2 * channels);
        if (more) pixels_multiply_add(x, call->params[0].data, more, y, channels);
        else pixels_multiply(x, call->params[0].data, y, channels);
        block_store(&call->y, at, channels, y);
    }
}

static void backward_piece(const struct call *call, int64_t first, int64_t end, float *sums)
{
    int64_t channels = call->d_y.shape.c;
    float *lines = sums + channels;
    for (int64_t at = first * channels; at < end * channels; at += channels) {
        const float *d_y = block_load(&call->d_y, at, channels, lines);
        pixels_add_products(d_y, block_load(&call->x[0], at, channels, lines + channels), sums, channels);
        if (!call->d_x[0].data) continue;
        float *d_x = block_open(&call->d_x[0], at, lines + channels);
        pixels_multiply(d_y, call->params[0].data, d_x, channels);
        block_store(&call->d_x[0], at, channels, d_x);
    }
}

static struct pixels_work work_of(const struct call *call)
{
    if (call->phase == PHASE_FORWARD) return (struct pixels_work){.lines = 3, .piece = forward_piece};
    return (struct pixels_work){.sums = 1, .lines = 3, .piece = backward_piece,
                                .totals = {&call->d_params[0]}};
}

static size_t scale_cpu_workspace(const struct call *call)
{
    struct pixels_work work = work_of(call);
    return pixels_workspace(call->x[0].shape, &work);
}

static enum status scale_cpu_run(const struct call *call)
{
    struct pixels_work work = work_of(call);
    pixels_run(call, call->x[0].shape, &work);
    return OK;
}

static const struct field fields[] = {
    {.name = "init", .type = FIELD_REAL, .offset = offsetof(struct scale, init), .initial = "1", .min = -1e6,
     .max = 1e6, .help = "Initial value of the factors."},
    {.name = "vector", .type = FIELD_BOOL, .offset = offsetof(struct scale, vector), .initial = "no",
     .help = "The parameter's shape is c, as in timm, instead of c, 1, 1."},
    {0},
};

bool scale_cuda_supports(const struct call *call)
{
    return call->phase == PHASE_BACKWARD ? call_sums_gradient(call) : call_adds_residual(call);
}

static const struct op_code reference = {
    .supports = call_adds_residual,
    .forward = scale_forward,
    .backward = scale_backward,
};
static const struct op_code cpu = {
    .supports = call_adds_residual,
    .workspace = scale_cpu_workspace,
    .forward = scale_cpu_run,
    .backward = scale_cpu_run,
};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 24}}},
    {"init=1e-6 vector=yes", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 5}}},
    {"", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {"", 1, {{.rank = 4, .n = 2, .h = 9, .w = 5, .c = 776}}},
    {0},
};

/* Shapes with more rows than all blocks of a GPU take at once. */
static const struct op_example large[] = {
    {"", 1, {{.rank = 4, .n = 16, .h = 56, .w = 56, .c = 96}}},
    {0},
};

const struct op scale_op = {
    .name = "scale",
    .help = "A learned factor for each channel (layer scale).",
    .settings_size = sizeof(struct scale),
    .fields = fields,
    .shape = elementwise_shape,
    .params = scale_params,
    .reads = scale_reads,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &cpu,
    .cuda = ON_CUDA(scale_cuda),
    .supports_cuda = scale_cuda_supports,
    .examples = examples,
    .large = large,
};
