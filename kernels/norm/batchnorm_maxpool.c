/* batchnorm_maxpool: batch norm, its activation and a max pooling behind it as one op, whose normalised image
 * is never stored:
 *
 *     y = the maximum over a window of activation((x - mean) * invstd * weight + bias)
 *
 * In a channel this function of x is nondecreasing, or nonincreasing if the weight is negative. So y follows
 * from one x, the greatest or the least of the window (the first of equals), which is saved with its number
 * in the window, or with 255 if the activation is constant there. Where different x give the same stored
 * result, a separate max pooling would take the first of those, so the gradient may go to another one.
 *
 * Backward, with dz = d_y * activation'(z) of the outputs: the sums of dz and of dz * xhat over an image are
 * those over its outputs, xhat being that of the saved x. So
 *     d_bias = sum(dz),  d_weight = sum(dz * xhat)
 *     d_x = weight * invstd * (the dz of the windows that took x - (d_bias + xhat * d_weight) / count)
 * and x is read once each way. */
#include "kernels/norm/batchnorm_maxpool.h"

#include <math.h>

#include "kernels/codes_cuda.h"
#include "kernels/elementwise/activation.h"

static bool batchnorm_maxpool_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                    struct reason *reason)
{
    const struct batchnorm_maxpool *s = settings;
    if (x_count != 1) return because(reason, "it has %d inputs, not 1", x_count);
    if (s->pool.stride != 2 || s->pool.kernel < 2 || s->pool.kernel > 3)
        return because(reason, "windows are of 2x2 or 3x3 and two apart");
    if (x[0].c % 8 != 0)
        return because(reason, "%lld channels are no multiple of 8", (long long)x[0].c);
    return pool_sliding_shape(&s->pool, 1, x, y, reason);
}

static int batchnorm_maxpool_params(const void *settings, int x_count, const struct shape *x,
                                    struct op_param out[OP_MAX_PARAMS])
{
    return batchnorm_op.params(settings, x_count, x, out);
}

static int batchnorm_maxpool_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                                   struct op_saved out[OP_MAX_SAVED])
{
    struct shape y;
    struct reason reason;
    if (!training || !batchnorm_maxpool_shape(settings, 1, &x[0].shape, &y, &reason)) return 0;
    batchnorm_op.saved(settings, x_count, x, training, out);
    out[SAVED_EXTREME] = (struct op_saved){"extreme", x[0].dtype, y};
    out[SAVED_NUMBER] = (struct op_saved){"number", U8, y};
    return SAVED_POOL_COUNT;
}

static unsigned batchnorm_maxpool_reads(const void *settings, enum phase phase)
{
    return phase == PHASE_RECOMPUTE ? READS_NOTHING : READS_FIRST_X | READS_PARAMS | READS_SAVED;
}

static double curve_y(const struct call *call, const struct batchnorm_channel *c, double x)
{
    const struct batchnorm *s = call->settings;
    return activate(s->activation, batchnorm_z(c, x), s->slope);
}

static bool curve_is_flat(const struct call *call, const struct batchnorm_channel *c, double x)
{
    const struct batchnorm *s = call->settings;
    return activation_gradient(s->activation, batchnorm_z(c, x), 1, s->slope) == 0;
}

/* The gradient of z at output `at`, for the x that was taken. */
static double d_z(const struct call *call, const struct batchnorm_channel *c, double x, int64_t at)
{
    return curve_is_flat(call, c, x) ? 0 : batchnorm_d_y(call, at);
}

/* An output's extreme x, and its number in the window. */
struct extreme {
    double x;
    int64_t number;
};

static struct extreme extreme_of(const struct call *call, const struct pool_plane *plane, int64_t n,
                                 int64_t h, int64_t w, int64_t k)
{
    const struct batchnorm *s = call->settings;
    bool falls = s->affine && tensor_get(&call->params[0], k) < 0;
    struct pool_span rows = pool_inputs(&plane->h, h), columns = pool_inputs(&plane->w, w);
    struct extreme found = {falls ? INFINITY : -INFINITY,
                            pool_number(plane, h, w, rows.first, columns.first)};
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = columns.first; j < columns.end; j++) {
            double x = tensor_get(&call->x[0], tensor_at(&call->x[0], n, i, j, k));
            if (isnan(x) || (falls ? x < found.x : x > found.x))
                found = (struct extreme){x, pool_number(plane, h, w, i, j)};
        }
    return found;
}

static void pool_channel(const struct call *call, int64_t k)
{
    struct pool_plane plane = batchnorm_maxpool_plane(call);
    struct batchnorm_channel c = batchnorm_channel(call, k);
    struct shape y = call->y.shape;
    for (int64_t n = 0; n < y.n; n++)
    for (int64_t h = 0; h < y.h; h++)
    for (int64_t w = 0; w < y.w; w++) {
        struct extreme extreme = extreme_of(call, &plane, n, h, w, k);
        int64_t at = tensor_at(&call->y, n, h, w, k);
        tensor_set(&call->y, at, curve_y(call, &c, extreme.x));
        if (!call->training) continue;
        tensor_set(&call->saved[SAVED_EXTREME], at, extreme.x);
        tensor_set(&call->saved[SAVED_NUMBER], at,
                   curve_is_flat(call, &c, extreme.x) ? 255 : (double)extreme.number);
    }
}

static enum status batchnorm_maxpool_forward(const struct call *call)
{
    for (int64_t k = 0; k < call->x[0].shape.c; k++) {
        if (call->training) batchnorm_measure(call, k);
        pool_channel(call, k);
    }
    return OK;
}

static enum status batchnorm_maxpool_recompute(const struct call *call)
{
    for (int64_t i = 0; i < shape_count(call->y.shape); i++) {
        struct batchnorm_channel c = batchnorm_channel(call, i % call->y.shape.c);
        tensor_set(&call->y, i, curve_y(call, &c, tensor_get(&call->saved[SAVED_EXTREME], i)));
    }
    return OK;
}

/* Sums over a channel's outputs, and the numbers of x in it. */
struct sums {
    double bias, weight, count;
};

static struct sums sums_of(const struct call *call, const struct batchnorm_channel *c, int64_t k)
{
    int64_t channels = call->x[0].shape.c;
    struct sums sums = {.count = (double)(shape_count(call->x[0].shape) / channels)};
    for (int64_t i = k; i < shape_count(call->d_y.shape); i += channels) {
        double x = tensor_get(&call->saved[SAVED_EXTREME], i), dz = d_z(call, c, x, i);
        sums.bias += dz;
        sums.weight += dz * batchnorm_xhat(c, x);
    }
    return sums;
}

/* The gradient of an input from all windows that took it. */
static double taken_d_z(const struct call *call, const struct pool_plane *plane,
                        const struct batchnorm_channel *c, const int64_t at[4])
{
    struct pool_span rows = pool_outputs(&plane->h, at[1]), columns = pool_outputs(&plane->w, at[2]);
    double sum = 0;
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = columns.first; j < columns.end; j++) {
            int64_t y = tensor_at(&call->d_y, at[0], i, j, at[3]);
            if ((int64_t)tensor_get(&call->saved[SAVED_NUMBER], y) == pool_number(plane, i, j, at[1], at[2]))
                sum += d_z(call, c, tensor_get(&call->saved[SAVED_EXTREME], y), y);
        }
    return sum;
}

static void write_d_x(const struct call *call, const struct batchnorm_channel *c, const struct sums *sums,
                      int64_t k)
{
    struct pool_plane plane = batchnorm_maxpool_plane(call);
    struct shape x = call->x[0].shape;
    for (int64_t n = 0; n < x.n; n++)
    for (int64_t h = 0; h < x.h; h++)
    for (int64_t w = 0; w < x.w; w++) {
        int64_t i = tensor_at(&call->x[0], n, h, w, k);
        double xhat = batchnorm_xhat(c, tensor_get(&call->x[0], i));
        double dz = taken_d_z(call, &plane, c, (int64_t[]){n, h, w, k});
        tensor_set(&call->d_x[0], i,
                   c->weight * c->invstd * (dz - (sums->bias + xhat * sums->weight) / sums->count));
    }
}

static enum status batchnorm_maxpool_backward(const struct call *call)
{
    const struct batchnorm *s = call->settings;
    for (int64_t k = 0; k < call->x[0].shape.c; k++) {
        struct batchnorm_channel c = batchnorm_channel(call, k);
        struct sums sums = sums_of(call, &c, k);
        if (s->affine && call->d_params[0].data) tensor_set(&call->d_params[0], k, sums.weight);
        if (s->affine && call->d_params[1].data) tensor_set(&call->d_params[1], k, sums.bias);
        if (call->d_x[0].data) write_d_x(call, &c, &sums, k);
    }
    return OK;
}

#define AT(member) offsetof(struct batchnorm_maxpool, member)
static const struct field fields[] = {
    BATCHNORM_FIELDS(AT(norm)),
    BATCHNORM_CLIP_FIELD(AT(norm), "Activation function applied before pooling."),
    {.name = "kernel", .type = FIELD_INT, .offset = AT(pool.kernel), .min = 2, .max = 3,
     .help = "Height and width of the window."},
    {.name = "stride", .type = FIELD_INT, .offset = AT(pool.stride), .initial = "2", .min = 2, .max = 2,
     .help = "Stride of the window."},
    {.name = "pad", .type = FIELD_INT, .offset = AT(pool.pad), .initial = "0", .min = 0, .max = 1,
     .help = "Padding on every side."},
    {.name = "ceil_mode", .type = FIELD_BOOL, .offset = AT(pool.ceil_mode), .initial = "no",
     .help = "Round the output size up, so that partial windows count."},
    {0},
};

bool batchnorm_maxpool_cuda_supports(const struct call *call)
{
    if (call->phase == PHASE_FORWARD) return call_has_only(call, AS_BIT(OPERAND_X_MOMENTS), 0);
    return call_adds_gradients(call);
}

static const struct op_code reference = {
    .supports = call_adds_gradients,
    .forward = batchnorm_maxpool_forward,
    .backward = batchnorm_maxpool_backward,
    .update = batchnorm_update,
    .recompute = batchnorm_maxpool_recompute,
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"kernel=3 pad=1 activation=relu", 1, {SHAPE(2, 12, 14, 24)}},
    {"kernel=3 pad=1 activation=relu", 1, {SHAPE(3, 7, 5, 8)}},
    {"kernel=3 ceil_mode=yes eps=1e-3", 1, {SHAPE(2, 8, 6, 16)}},
    {"kernel=3 affine=no activation=relu6", 1, {SHAPE(1, 31, 9, 8)}},
    {"kernel=2 activation=relu", 1, {SHAPE(3, 9, 8, 16)}},
    {"kernel=2 pad=1", 1, {SHAPE(1, 5, 7, 1032)}},
    {0},
};

static const struct op_example large[] = {
    {"kernel=3 pad=1 activation=relu", 1, {SHAPE(16, 112, 112, 16)}},
    {"kernel=2 activation=relu", 1, {SHAPE(16, 57, 56, 64)}},
    {0},
};

const struct op batchnorm_maxpool_op = {
    .name = "batchnorm_maxpool",
    .help = "Batch normalisation and max pooling of its result, which is not stored.",
    .settings_size = sizeof(struct batchnorm_maxpool),
    .fields = fields,
    .internal = true,
    .shape = batchnorm_maxpool_shape,
    .params = batchnorm_maxpool_params,
    .saved = batchnorm_maxpool_saved,
    .reads = batchnorm_maxpool_reads,
    .moments = {SAVED_MEAN, SAVED_VARIANCE},
    .reference = &reference,
    .cuda = ON_CUDA(batchnorm_maxpool_cuda),
    .supports_cuda = batchnorm_maxpool_cuda_supports,
    .examples = examples,
    .large = large,
};
