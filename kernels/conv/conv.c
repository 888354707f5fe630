/* conv: two-dimensional convolution (cross-correlation, as in every framework), with groups.
 *
 *   y[n, p, q, k] = b[k] + sum over r, s, c of x[n, h, w, g * C + c] * w[k, c, r, s]
 *   h = p * stride - pad + r * dilation,  w = q * stride - pad + s * dilation
 *
 * where C is the channels of one group and g the group of filter k; outside the image x is zero.
 * x and y are n, h, w, c; w is k, c, r, s. */
#include "kernels/conv/conv.h"

#include "kernels/norm/batchnorm.h"
#include "kernels/codes_cuda.h"

static int64_t conv_resolve(int64_t value, int64_t shorthand)
{
    return value == CONV_SAME ? shorthand : value;
}

struct conv_geometry conv_geometry(const struct conv_settings *s, int64_t channels)
{
    return (struct conv_geometry){
        .kernel = {conv_resolve(s->kernel_h, s->kernel), conv_resolve(s->kernel_w, s->kernel)},
        .stride = {conv_resolve(s->stride_h, s->stride), conv_resolve(s->stride_w, s->stride)},
        .pad = {conv_resolve(s->pad_h, s->pad), conv_resolve(s->pad_w, s->pad)},
        .dilation = {s->dilation, s->dilation},
        .groups = s->groups == CONV_GROUPS_IN ? channels : s->groups,
    };
}

static bool conv_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                       struct reason *reason)
{
    const struct conv_settings *s = settings;
    struct conv_geometry g = conv_geometry(s, x->c);
    if (g.kernel[0] == 0 || g.kernel[1] == 0) return because(reason, "conv needs kernel=");
    if (x->c % g.groups != 0)
        return because(reason, "%lld input channels are not divisible by groups=%lld", (long long)x->c,
                       (long long)g.groups);
    if (s->filters % g.groups != 0)
        return because(reason, "filters=%lld is not divisible by groups=%lld", (long long)s->filters,
                       (long long)g.groups);
    int64_t size[2];
    for (int i = 0; i < 2; i++) {
        int64_t padded = x->dim[1 + i] + 2 * g.pad[i], reach = g.dilation[i] * (g.kernel[i] - 1) + 1;
        if (padded < reach)
            return because(reason, "a kernel of extent %lld does not fit an input of %lld with pad=%lld",
                           (long long)reach, (long long)x->dim[1 + i], (long long)g.pad[i]);
        size[i] = (padded - reach) / g.stride[i] + 1;
    }
    *y = shape_nhwc(x->n, size[0], size[1], s->filters);
    return true;
}

static int conv_params(const void *settings, int x_count, const struct shape *x,
                       struct op_param out[OP_MAX_PARAMS])
{
    const struct conv_settings *s = settings;
    struct conv_geometry g = conv_geometry(s, x->c);
    int64_t area = g.kernel[0] * g.kernel[1], channels = x->c / g.groups;
    struct shape weight = {.rank = 4, .dim = {s->filters, channels, g.kernel[0], g.kernel[1]}};
    int count = weight_params(&s->weight, weight, channels * area, s->filters * area, out);
    if (out[0].init == INIT_DIRAC) out[0].init_arg = (double)g.groups;
    return count;
}

static unsigned conv_reads(const void *settings, enum phase phase)
{
    if (phase == PHASE_BACKWARD) return READS_PARAMS | READS_X;
    return phase == PHASE_BACKWARD_DATA ? READS_PARAMS : READS_X;
}

/* The input position under output position `out` and kernel position `tap`, along axis `i`. */
static int64_t conv_input(const struct conv_geometry *g, int i, int64_t out, int64_t tap)
{
    return out * g->stride[i] - g->pad[i] + tap * g->dilation[i];
}

/* The output position that meets input position `in` at kernel position `tap`, or -1. */
static int64_t conv_output(const struct conv_geometry *g, int i, int64_t in, int64_t tap, int64_t outputs)
{
    int64_t steps = in + g->pad[i] - tap * g->dilation[i];
    if (steps < 0 || steps % g->stride[i] != 0) return -1;
    int64_t out = steps / g->stride[i];
    return out < outputs ? out : -1;
}

static int64_t weight_at(const struct tensor *w, int64_t k, int64_t c, int64_t r, int64_t s)
{
    const int64_t *dim = w->shape.dim;
    return ((k * dim[1] + c) * dim[2] + r) * dim[3] + s;
}

/* x[0], or what it stands for. */
static double conv_x(const struct call *call, int64_t i)
{
    double x = tensor_get(&call->x[0], i);
    return x > 6 && call_epilogue(call, EPILOGUE_X_RELU6) ? 6 : x;
}

static double conv_y(const struct call *call, const struct conv_geometry *g, int64_t n, int64_t p, int64_t q,
                     int64_t k)
{
    const struct tensor *x = &call->x[0], *weight = &call->params[0];
    int64_t channels = weight->shape.dim[1];
    int64_t first = k / (call->y.shape.c / g->groups) * channels;
    double sum = call->param_count > 1 ? tensor_get(&call->params[1], k) : 0;
    for (int64_t r = 0; r < g->kernel[0]; r++) {
        int64_t h = conv_input(g, 0, p, r);
        if (h < 0 || h >= x->shape.h) continue;
        for (int64_t s = 0; s < g->kernel[1]; s++) {
            int64_t w = conv_input(g, 1, q, s);
            if (w < 0 || w >= x->shape.w) continue;
            for (int64_t c = 0; c < channels; c++)
                sum += conv_x(call, tensor_at(x, n, h, w, first + c)) *
                       tensor_get(weight, weight_at(weight, k, c, r, s));
        }
    }
    return sum;
}

static enum status conv_forward(const struct call *call)
{
    struct conv_geometry g = conv_geometry(call->settings, call->x[0].shape.c);
    struct tensor y = call->y;
    bool relu = call_epilogue(call, EPILOGUE_RELU) != NULL;
    for (int64_t n = 0; n < y.shape.n; n++)
        for (int64_t p = 0; p < y.shape.h; p++)
            for (int64_t q = 0; q < y.shape.w; q++)
                for (int64_t k = 0; k < y.shape.c; k++) {
                    double sum = conv_y(call, &g, n, p, q, k);
                    tensor_set(&y, tensor_at(&y, n, p, q, k), relu && sum <= 0 ? 0 : sum);
                }
    return OK;
}

static double conv_d_x(const struct call *call, const struct conv_geometry *g, int64_t n, int64_t h,
                       int64_t w, int64_t channel)
{
    const struct tensor *d_y = &call->d_y, *weight = &call->params[0];
    int64_t channels = weight->shape.dim[1], filters = d_y->shape.c / g->groups;
    int64_t first = channel / channels * filters, c = channel % channels;
    double sum = 0;
    for (int64_t r = 0; r < g->kernel[0]; r++) {
        int64_t p = conv_output(g, 0, h, r, d_y->shape.h);
        if (p < 0) continue;
        for (int64_t s = 0; s < g->kernel[1]; s++) {
            int64_t q = conv_output(g, 1, w, s, d_y->shape.w);
            if (q < 0) continue;
            for (int64_t k = first; k < first + filters; k++)
                sum += tensor_get(d_y, tensor_at(d_y, n, p, q, k)) *
                       tensor_get(weight, weight_at(weight, k, c, r, s));
        }
    }
    return sum;
}

/* The summand that joins element i of d_x[0]; it may have every second pixel only. */
static double conv_addend(const struct call *call, const struct tensor *addend, int64_t i)
{
    struct shape x = call->d_x[0].shape;
    if (shape_count(addend->shape) == shape_count(x)) return tensor_get(addend, i);
    int64_t c = i % x.c, w = i / x.c % x.w, h = i / x.c / x.w % x.h, n = i / x.c / x.w / x.h;
    return h % 2 || w % 2 ? 0 : tensor_get(addend, tensor_at(addend, n, h / 2, w / 2, c));
}

/* d_x[0] with what joins it, and its sums. */
static void conv_join(const struct call *call, const struct tensor *addend)
{
    const struct tensor *d_x = &call->d_x[0];
    int64_t channels = d_x->shape.c, count = shape_count(d_x->shape);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t i = c; i < count; i += channels) {
            double joined = tensor_get(d_x, i) + conv_addend(call, addend, i);
            tensor_set(d_x, i, batchnorm_mask_get(call, i) ? joined : 0);
            sum += tensor_get(d_x, i);
        }
        tensor_set(call_operand(call, OPERAND_D_X_SUMS), c, sum);
    }
}

/* Channel c of d_x[0], which may be in the place of x[0], and its sums for EPILOGUE_PRODUCTS. */
static void conv_d_channel(const struct call *call, const struct conv_geometry *g, int64_t c)
{
    const struct tensor *d_x = &call->d_x[0], *products = call_operand(call, OPERAND_X_PRODUCTS);
    double sum = 0, product = 0;
    for (int64_t n = 0; n < d_x->shape.n; n++)
        for (int64_t h = 0; h < d_x->shape.h; h++)
            for (int64_t w = 0; w < d_x->shape.w; w++) {
                int64_t at = tensor_at(d_x, n, h, w, c);
                double x = products ? tensor_get(&call->x[0], at) : 0;
                tensor_set(d_x, at, conv_d_x(call, g, n, h, w, c));
                sum += x != 0 ? tensor_get(d_x, at) : 0;
                product += x * tensor_get(d_x, at);
            }
    if (!products) return;
    tensor_set(products, c, sum);
    tensor_set(products, d_x->shape.c + c, product);
}

static enum status conv_backward_data(const struct call *call)
{
    struct conv_geometry g = conv_geometry(call->settings, call->x[0].shape.c);
    if (!call->d_x[0].data) return OK;
    for (int64_t c = 0; c < call->d_x[0].shape.c; c++) conv_d_channel(call, &g, c);
    const struct tensor *addend = call_operand(call, OPERAND_D_X_ADDEND);
    if (addend) conv_join(call, addend);
    return OK;
}

static double conv_d_weight(const struct call *call, const struct conv_geometry *g, int64_t k, int64_t c,
                            int64_t r, int64_t s)
{
    const struct tensor *x = &call->x[0], *d_y = &call->d_y;
    int64_t channel = k / (d_y->shape.c / g->groups) * (x->shape.c / g->groups) + c;
    double sum = 0;
    for (int64_t p = 0; p < d_y->shape.h; p++) {
        int64_t h = conv_input(g, 0, p, r);
        if (h < 0 || h >= x->shape.h) continue;
        for (int64_t q = 0; q < d_y->shape.w; q++) {
            int64_t w = conv_input(g, 1, q, s);
            if (w < 0 || w >= x->shape.w) continue;
            for (int64_t n = 0; n < x->shape.n; n++)
                sum += conv_x(call, tensor_at(x, n, h, w, channel)) *
                       tensor_get(d_y, tensor_at(d_y, n, p, q, k));
        }
    }
    return sum;
}

static enum status conv_backward_params(const struct call *call)
{
    struct conv_geometry g = conv_geometry(call->settings, call->x[0].shape.c);
    struct tensor d_w = call->d_params[0];
    const int64_t *dim = d_w.shape.dim;
    for (int64_t k = 0; k < dim[0]; k++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t r = 0; r < dim[2]; r++)
                for (int64_t s = 0; s < dim[3]; s++)
                    tensor_set(&d_w, weight_at(&d_w, k, c, r, s), conv_d_weight(call, &g, k, c, r, s));
    if (call->param_count > 1) weight_d_bias(&call->d_y, &call->d_params[1]);
    return OK;
}

/* d_x[0] behind relu6, and its sums. */
static void conv_clip(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0];
    int64_t channels = d_x->shape.c, count = shape_count(d_x->shape);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t i = c; i < count; i += channels) {
            double x = tensor_get(&call->x[0], i);
            if (x <= 0 || x >= 6) tensor_set(d_x, i, 0);
            sum += tensor_get(d_x, i);
        }
        tensor_set(call_operand(call, OPERAND_D_X_SUMS), c, sum);
    }
}

static enum status conv_backward(const struct call *call)
{
    TRY(conv_backward_params(call));
    TRY(conv_backward_data(call));
    if (call_epilogue(call, EPILOGUE_D_RELU6)) conv_clip(call);
    return OK;
}

bool conv_supports(const struct call *call)
{
    bool depthwise = conv_geometry(call->settings, call->x[0].shape.c).groups == call->x[0].shape.c;
    bool clips = call_epilogue(call, EPILOGUE_X_RELU6) != NULL;
    switch (call->phase) {
    case PHASE_FORWARD:
        return (depthwise || !clips) &&
               call_has_only(call, 0, AS_BIT(EPILOGUE_RELU) | AS_BIT(EPILOGUE_X_RELU6));
    case PHASE_BACKWARD_DATA:
        return call_is_plain(call) ||
               call_has_exactly(call,
                                AS_BIT(OPERAND_D_X_ADDEND) | AS_BIT(OPERAND_MASK) | AS_BIT(OPERAND_D_X_SUMS),
                                AS_BIT(EPILOGUE_ADD) | AS_BIT(EPILOGUE_MULTIPLY) | AS_BIT(EPILOGUE_SUMS));
    case PHASE_BACKWARD:
        if (call_is_plain(call)) return depthwise || conv_is_thin(call);
        return (conv_is_thin(call) &&
                call_has_exactly(call, AS_BIT(OPERAND_X_PRODUCTS), AS_BIT(EPILOGUE_PRODUCTS))) ||
               (depthwise && call_has_exactly(call, AS_BIT(OPERAND_D_X_SUMS),
                                              AS_BIT(EPILOGUE_X_RELU6) | AS_BIT(EPILOGUE_D_RELU6) |
                                                  AS_BIT(EPILOGUE_SUMS)));
    case PHASE_BACKWARD_PARAMS:
        return call_is_plain(call) && !call_leaves_bias_out(call);
    case PHASE_UPDATE:
    case PHASE_RECOMPUTE:
    case PHASE_COUNT: break;
    }
    return false;
}

/* Depthwise, 3x3, 16 bits: for these CUDA code has tiles that compute both gradients, however wide a tensor
 * is. */
static bool conv_has_tiles(const struct call *call)
{
    const struct tensor *x = &call->x[0];
    const struct conv_settings *s = call->settings;
    struct conv_geometry g = conv_geometry(s, x->shape.c);
    bool tiles = dtype_bytes(x->dtype) == 2 && g.groups == x->shape.c && s->filters == x->shape.c &&
                 x->shape.c % 8 == 0 && x->shape.w <= 512 && g.stride[0] <= 2 && call->param_count == 1;
    for (int i = 0; i < 2; i++)
        tiles = tiles && g.kernel[i] == 3 && g.pad[i] == 1 && g.dilation[i] == 1 &&
                g.stride[i] == g.stride[0];
    return tiles;
}

bool conv_cuda_supports(const struct call *call)
{
    bool relu = call_epilogue(call, EPILOGUE_RELU), moments = call_operand(call, OPERAND_Y_MOMENTS);
    bool clips = call_epilogue(call, EPILOGUE_X_RELU6);
    switch (call->phase) {
    case PHASE_FORWARD:
        return !(relu && moments) && (!clips || conv_has_tiles(call)) &&
               call_has_only(call, AS_BIT(OPERAND_Y_MOMENTS),
                             AS_BIT(EPILOGUE_RELU) | AS_BIT(EPILOGUE_MOMENTS) | AS_BIT(EPILOGUE_X_RELU6));
    case PHASE_BACKWARD: return (conv_has_tiles(call) || conv_is_thin(call)) && conv_supports(call);
    case PHASE_BACKWARD_DATA: return conv_supports(call);
    case PHASE_BACKWARD_PARAMS: return call_is_plain(call);
    case PHASE_UPDATE:
    case PHASE_RECOMPUTE:
    case PHASE_COUNT: break;
    }
    return false;
}

/* Both gradients of a pixel by code for 1x1 kernels, which reads all of x's pixel before it writes d_x's. */
static bool conv_in_place(const void *settings, enum phase phase, int x_count, const struct shape *x)
{
    struct conv_geometry g = conv_geometry(settings, x->c);
    return phase == PHASE_BACKWARD && conv_keeps_size(&g, 1);
}

bool conv_is_thin(const struct call *call)
{
    struct shape x = call->x[0].shape;
    const struct conv_settings *s = call->settings;
    return dtype_bytes(call->x[0].dtype) == 2 && (x.c == 32 || x.c == 64) && s->filters <= 32 &&
           x.n * x.h * x.w % 8 == 0 && conv_in_place(s, PHASE_BACKWARD, 1, &x);
}

const struct op_code conv_reference = {
    .supports = conv_supports,
    .forward = conv_forward,
    .backward = conv_backward,
    .backward_data = conv_backward_data,
    .backward_params = conv_backward_params,
};

static const struct field fields[] = {CONV_FIELDS, {0}};

static const struct op_example examples[] = {
    {"filters=8 kernel=3 stride=2 pad=1", 1, {{.rank = 4, .dim = {2, 7, 7, 5}}}},
    {"filters=6 kernel=5 pad=2", 1, {{.rank = 4, .dim = {3, 14, 14, 1}}}},
    {"filters=16 kernel=7 stride=2 pad=3 bias=no", 1, {{.rank = 4, .dim = {1, 31, 31, 3}}}},
    {"filters=24 kernel=1 bias=no", 1, {{.rank = 4, .dim = {3, 7, 5, 24}}}},
    {"filters=64 kernel=1 bias=no", 1, {{.rank = 4, .dim = {2, 7, 9, 128}}}},
    {"filters=128 kernel=1 bias=no", 1, {{.rank = 4, .dim = {1, 13, 5, 256}}}},
    {"filters=21 kernel=1", 1, {{.rank = 4, .dim = {2, 24, 20, 64}}}},
    {"filters=7 kernel=1 bias=no", 1, {{.rank = 4, .dim = {1, 9, 8, 96}}}},
    {"filters=4 kernel=1", 1, {{.rank = 4, .dim = {2, 9, 8, 32}}}},
    {"filters=32 kernel=1 stride=2 bias=no", 1, {{.rank = 4, .dim = {2, 8, 8, 16}}}},
    {"filters=32 kernel=3 pad=1 bias=no", 1, {{.rank = 4, .dim = {2, 8, 8, 32}}}},
    {"filters=24 kernel=3 stride=2 pad=1 groups=in bias=no", 1, {{.rank = 4, .dim = {2, 9, 9, 24}}}},
    {"filters=16 kernel=3 pad=1 groups=in bias=no", 1, {{.rank = 4, .dim = {3, 9, 7, 16}}}},
    {"filters=24 kernel=7 pad=3 groups=in", 1, {{.rank = 4, .dim = {2, 9, 11, 24}}}},
    {"filters=58 kernel=3 pad=1 groups=in", 1, {{.rank = 4, .dim = {2, 7, 6, 58}}}},
    {"filters=10 kernel=3 stride=2 pad=1 groups=in bias=no", 1, {{.rank = 4, .dim = {2, 8, 9, 10}}}},
    {"filters=24 kernel=5 stride=2 pad=2 groups=in bias=no", 1, {{.rank = 4, .dim = {2, 9, 10, 24}}}},
    {"filters=18 kernel=5 pad=2 groups=in bias=no", 1, {{.rank = 4, .dim = {2, 19, 17, 18}}}},
    {"filters=24 kernel=3 pad=1 groups=3", 1, {{.rank = 4, .dim = {1, 6, 6, 12}}}},
    {"filters=32 kernel=3 pad=1 groups=2", 1, {{.rank = 4, .dim = {3, 6, 6, 32}}}},
    {"filters=5 kernel=3 dilation=2 pad=2", 1, {{.rank = 4, .dim = {2, 9, 7, 3}}}},
    {"filters=4 kernel_h=1 kernel_w=7 pad_w=3", 1, {{.rank = 4, .dim = {1, 5, 9, 5}}}},
    {"filters=3 kernel=2 stride=3", 1, {{.rank = 4, .dim = {3, 8, 7, 5}}}},
    {"filters=16 kernel=4 stride=4", 1, {{.rank = 4, .dim = {2, 9, 8, 3}}}},    /* patches */
    {"filters=8 kernel=2 stride=2 bias=no", 1, {{.rank = 4, .dim = {2, 7, 5, 8}}}},
    {"filters=16 kernel=2 stride=2 bias=no", 1, {{.rank = 4, .dim = {2, 8, 6, 8}}}},    /* conv_rows.cu */
    {"filters=10 kernel=3 pad=1", 1, {{.rank = 4, .dim = {1, 1, 1, 7}}}},
    {"filters=17 kernel=3 pad=1", 1, {{.rank = 4, .dim = {1, 7, 7, 33}}}},
    {"filters=5 kernel=1 pad=1", 1, {{.rank = 4, .dim = {3, 3, 3, 24}}}},
    {"filters=8 kernel=3 stride=2 pad=1", 1, {{.rank = 4, .dim = {3, 1, 1, 24}}}},
    {"filters=8 kernel=3 stride_h=2 pad=2 dilation=2 groups=2", 1, {{.rank = 4, .dim = {1, 9, 5, 4}}}},
    {"filters=32 kernel=3 stride=2 pad=1", 1, {{.rank = 4, .dim = {2, 15, 15, 3}}}},
    {"filters=64 kernel=3 pad=1", 1, {{.rank = 4, .dim = {2, 19, 17, 3}}}},
    {"filters=64 kernel=3 pad=1", 1, {{.rank = 4, .dim = {1, 18, 17, 64}}}},    /* conv_winograd_cpu.c */
    {"filters=64 kernel=3 pad_h=2 pad_w=0", 1, {{.rank = 4, .dim = {19, 5, 14, 32}}}},
    {"filters=18 kernel=3 stride=2 pad=1 bias=no", 1, {{.rank = 4, .dim = {2, 91, 95, 6}}}},    /* parts */
    {0},
};

/* Examples of 1e8 products and more (conv_cuda.cuh): pixels, filters, channels and taps multiplied. The last
 * one has more tiles of pixels than there are blocks for them. */
static const struct op_example large[] = {
    {"filters=64 kernel=3 pad=1 bias=no", 1, {{.rank = 4, .dim = {2, 56, 56, 32}}}},
    {"filters=64 kernel=3 pad=1 bias=no", 1, {{.rank = 4, .dim = {2, 56, 56, 38}}}},
    {"filters=64 kernel=3 pad=1 bias=no", 1, {{.rank = 4, .dim = {2, 13, 200, 64}}}},
    {"filters=64 kernel=3 pad=1 bias=no", 1, {{.rank = 4, .dim = {1, 11, 128, 128}}}},
    {"filters=128 kernel=3 pad=1 bias=no", 1, {{.rank = 4, .dim = {1, 12, 128, 64}}}},
    {"filters=128 kernel=3 pad=1 bias=no", 1, {{.rank = 4, .dim = {1, 6, 128, 128}}}},
    {"filters=64 kernel=3 pad=1", 1, {{.rank = 4, .dim = {1, 23, 200, 64}}}},
    {"filters=128 kernel=3 pad=1", 1, {{.rank = 4, .dim = {1, 6, 128, 128}}}},
    {"filters=64 kernel=7 stride=2 pad=3 bias=no", 1, {{.rank = 4, .dim = {4, 112, 112, 3}}}},
    {"filters=64 kernel=3 pad=1", 1, {{.rank = 4, .dim = {3, 150, 170, 3}}}},    /* conv_stem.cu's blocks */
    {"filters=32 kernel=7 stride=2 pad=3 bias=no", 1, {{.rank = 4, .dim = {3, 290, 330, 3}}}},
    {"filters=128 kernel=1 bias=no", 1, {{.rank = 4, .dim = {8, 56, 56, 32}}}},
    {"filters=64 kernel=1 bias=no", 1, {{.rank = 4, .dim = {4, 81, 81, 128}}}},
    {"filters=256 kernel=1 stride=2 bias=no", 1, {{.rank = 4, .dim = {8, 56, 56, 64}}}},
    {"filters=64 kernel=3 pad=1 groups=in bias=no", 1, {{.rank = 4, .dim = {8, 56, 56, 64}}}},
    {"filters=64 kernel=3 stride=2 pad=1 groups=in bias=no", 1, {{.rank = 4, .dim = {8, 56, 56, 64}}}},
    {"filters=3 kernel=1", 1, {{.rank = 4, .dim = {1, 161, 160, 32}}}},    /* conv_thin.cu's blocks */
    {0},
};

const struct op conv_op = {
    .name = "conv",
    .help = "Two-dimensional convolution.",
    .settings_size = sizeof(struct conv_settings),
    .fields = fields,
    .precision = CLASS_LOW,
    .shape = conv_shape,
    .params = conv_params,
    .reads = conv_reads,
    .in_place = conv_in_place,
    .backward_over_x = true,
    .reference = &conv_reference,
    .cpu = &conv_cpu,
    .cuda = ON_CUDA(conv_cuda),
    .supports_cuda = conv_cuda_supports,
    .examples = examples,
    .large = large,
};
