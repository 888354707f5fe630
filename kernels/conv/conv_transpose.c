/* conv_transpose: the gradient of a convolution's input as a layer, as torch.nn.ConvTranspose2d:
 *
 *   y[n, h, w, g * C + c] = b[g * C + c] + sum over r, s, k of x[n, p, q, k] * w[k, c, r, s]
 *   h = p * stride - pad + r * dilation,  w = q * stride - pad + s * dilation
 *
 * where C is the channels of y in one group and k runs over the input channels of group g. x and y are
 * n, h, w, c; w is k, c, r, s. Output pixels that nothing meets are the bias. */
#include "kernels/conv/conv.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"

static bool conv_transpose_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                 struct reason *reason)
{
    const struct conv_transpose *s = settings;
    struct conv_geometry g = conv_geometry(&s->conv, x->c);
    if (g.kernel[0] == 0 || g.kernel[1] == 0) return because(reason, "conv_transpose needs kernel=");
    if (x->c % g.groups != 0)
        return because(reason, "%lld input channels are not divisible by groups=%lld", (long long)x->c,
                       (long long)g.groups);
    if (s->conv.filters % g.groups != 0)
        return because(reason, "filters=%lld is not divisible by groups=%lld", (long long)s->conv.filters,
                       (long long)g.groups);
    int64_t size[2];
    for (int i = 0; i < 2; i++) {
        if (s->output_pad >= g.stride[i])
            return because(reason, "output_pad=%lld is not less than the stride, %lld",
                           (long long)s->output_pad, (long long)g.stride[i]);
        size[i] = (x->dim[1 + i] - 1) * g.stride[i] - 2 * g.pad[i] + g.dilation[i] * (g.kernel[i] - 1) + 1 +
                  s->output_pad;
        if (size[i] < 1)
            return because(reason, "pad=%lld leaves nothing of an input of %lld", (long long)g.pad[i],
                           (long long)x->dim[1 + i]);
    }
    *y = shape_nhwc(x->n, size[0], size[1], s->conv.filters);
    return true;
}

static int conv_transpose_params(const void *settings, int x_count, const struct shape *x,
                                 struct op_param out[OP_MAX_PARAMS])
{
    const struct conv_settings *s = &((const struct conv_transpose *)settings)->conv;
    struct conv_geometry g = conv_geometry(s, x->c);
    int64_t area = g.kernel[0] * g.kernel[1], channels = s->filters / g.groups;
    struct shape weight = {.rank = 4, .dim = {x->c, channels, g.kernel[0], g.kernel[1]}};
    int count = weight_params(&s->weight, weight, channels * area, x->c * area, out);
    if (out[0].init == INIT_DIRAC) out[0].init_arg = (double)g.groups;
    out[1].shape = shape_vector(s->filters);
    return count;
}

static unsigned conv_transpose_reads(const void *settings, enum phase phase)
{
    return phase == PHASE_BACKWARD_DATA ? READS_PARAMS : READS_X;
}

const struct call *conv_transposed(const struct call *call, struct conv_transposed *as)
{
    bool forward = call->phase == PHASE_FORWARD, data = call->phase == PHASE_BACKWARD_DATA;
    struct tensor image = forward ? call->y : call->d_y, filtered = data ? call->d_x[0] : call->x[0];
    as->settings = ((const struct conv_transpose *)call->settings)->conv;
    as->settings.groups = conv_geometry(&as->settings, call->x[0].shape.c).groups;
    as->settings.filters = call->x[0].shape.c;
    as->x = as->d_x = image;
    as->call = *call;
    as->call.op = &conv_op;
    as->call.settings = &as->settings;
    as->call.phase = forward ? PHASE_BACKWARD_DATA : data ? PHASE_FORWARD : call->phase;
    as->call.x = &as->x;
    as->call.d_x = &as->d_x;
    as->call.y = as->call.d_y = filtered;
    as->call.param_count = 1;
    return &as->call;
}

/* ---- Reference ---- */

/* The sums of the tensor that the phase writes: of products of the other two. */
struct sums {
    const struct call *call;
    struct conv_geometry geometry;
    struct shape x, y, weight;
    double *at;
};

/* The products of one element of x. */
static void add_products(const struct sums *s, int64_t n, int64_t p, int64_t q, int64_t k)
{
    const struct call *call = s->call;
    const struct conv_geometry *g = &s->geometry;
    int64_t channels = s->weight.dim[1], first = k / (s->x.c / g->groups) * channels;
    int64_t x = ((n * s->x.h + p) * s->x.w + q) * s->x.c + k;
    for (int64_t i = 0; i < channels * g->kernel[0] * g->kernel[1]; i++) {
        int64_t row = i / g->kernel[1], r = row % g->kernel[0], c = row / g->kernel[0];
        int64_t h = p * g->stride[0] - g->pad[0] + r * g->dilation[0];
        int64_t w = q * g->stride[1] - g->pad[1] + i % g->kernel[1] * g->dilation[1];
        if (h < 0 || h >= s->y.h || w < 0 || w >= s->y.w) continue;
        int64_t y = ((n * s->y.h + h) * s->y.w + w) * s->y.c + first + c;
        int64_t weight = k * channels * g->kernel[0] * g->kernel[1] + i;
        if (call->phase == PHASE_FORWARD)
            s->at[y] += tensor_get(&call->x[0], x) * tensor_get(&call->params[0], weight);
        else if (call->phase == PHASE_BACKWARD_DATA)
            s->at[x] += tensor_get(&call->d_y, y) * tensor_get(&call->params[0], weight);
        else
            s->at[weight] += tensor_get(&call->x[0], x) * tensor_get(&call->d_y, y);
    }
}

static void sum_products(const struct call *call, const struct tensor *to)
{
    struct sums s = {.call = call, .x = call->x[0].shape, .weight = call->params[0].shape};
    s.geometry = conv_geometry(call->settings, s.x.c);
    s.y = call->phase == PHASE_FORWARD ? call->y.shape : call->d_y.shape;
    int64_t count = shape_count(to->shape), filters = s.y.c;
    bool biased = call->phase == PHASE_FORWARD && call->param_count > 1;
    s.at = memory_new((size_t)count, sizeof *s.at);
    for (int64_t i = 0; biased && i < count; i++) s.at[i] = tensor_get(&call->params[1], i % filters);
    for (int64_t i = 0; i < shape_count(s.x); i++)
        add_products(&s, i / s.x.c / s.x.w / s.x.h, i / s.x.c / s.x.w % s.x.h, i / s.x.c % s.x.w, i % s.x.c);
    for (int64_t i = 0; i < count; i++) tensor_set(to, i, s.at[i]);
    free(s.at);
}

static enum status conv_transpose_forward(const struct call *call)
{
    sum_products(call, &call->y);
    return OK;
}

static enum status conv_transpose_backward_data(const struct call *call)
{
    if (call->d_x[0].data) sum_products(call, &call->d_x[0]);
    return OK;
}

static enum status conv_transpose_backward_params(const struct call *call)
{
    sum_products(call, &call->d_params[0]);
    if (call->param_count > 1) weight_d_bias(&call->d_y, &call->d_params[1]);
    return OK;
}

static const struct op_code reference = {
    .forward = conv_transpose_forward,
    .backward_data = conv_transpose_backward_data,
    .backward_params = conv_transpose_backward_params,
};

static const struct field fields[] = {
    CONV_FIELDS,
    {.name = "output_pad", .type = FIELD_INT, .offset = offsetof(struct conv_transpose, output_pad),
     .initial = "0", .min = 0, .max = 1 << 12,
     .help = "Rows and columns that the output has in addition, below and at the right, of those that a "
             "convolution with this stride would leave out."},
    {0},
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"filters=8 kernel=2 stride=2", 1, {SHAPE(2, 4, 3, 16)}},
    {"filters=5 kernel=2 stride=2", 1, {SHAPE(1, 3, 4, 7)}},
    {"filters=16 kernel=3 stride=2 pad=1 output_pad=1 bias=no", 1, {SHAPE(2, 4, 5, 8)}},
    {"filters=3 kernel=4 stride=2 pad=1", 1, {SHAPE(2, 4, 3, 5)}},
    {"filters=6 kernel=3 stride_h=2 pad=2 dilation=2 groups=2", 1, {SHAPE(1, 5, 6, 4)}},
    {"filters=16 kernel=4 stride=2 pad=1 groups=in bias=no", 1, {SHAPE(2, 4, 4, 16)}},
    {"filters=4 kernel=2 stride=3 output_pad=2", 1, {SHAPE(1, 3, 3, 8)}},
    {"filters=12 kernel_h=1 kernel_w=3 pad_w=1", 1, {SHAPE(1, 4, 5, 9)}},
    {"filters=24 kernel=1", 1, {SHAPE(2, 1, 1, 8)}},
    {"filters=64 kernel=3 pad=1", 1, {SHAPE(1, 18, 17, 64)}},    /* conv_winograd_cpu.c */
    {"filters=16 kernel=3 stride=2 pad=1 groups=in", 1, {SHAPE(2, 5, 5, 16)}},
    {"filters=24 kernel=3 stride=2 pad=1 output_pad=1", 1, {SHAPE(2, 15, 15, 16)}},
    {0},
};

static const struct op_example large[] = {
    {"filters=64 kernel=2 stride=2", 1, {SHAPE(2, 48, 48, 128)}},
    {"filters=32 kernel=2 stride=2 bias=no", 1, {SHAPE(4, 64, 64, 64)}},
    {0},
};

const struct op conv_transpose_op = {
    .name = "conv_transpose",
    .help = "Transposed two-dimensional convolution, which enlarges images by its stride.",
    .settings_size = sizeof(struct conv_transpose),
    .fields = fields,
    .precision = CLASS_LOW,
    .shape = conv_transpose_shape,
    .params = conv_transpose_params,
    .reads = conv_transpose_reads,
    .products_by_input = true,
    .rounds_factors = true,
    .reference = &reference,
    .cpu = &conv_transpose_cpu,
    .cuda = ON_CUDA(conv_transpose_cuda),
    .examples = examples,
    .large = large,
};
