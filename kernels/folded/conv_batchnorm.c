/* conv_batchnorm: a 1x1 convolution x = W a and the batch norm of x as one op, in which x is never stored:
 *
 *     y = activation((x - mean) * invstd * weight + bias + residual)
 *
 * x is linear in a, and so its statistics follow from those of a. With the mean m (C numbers) and the
 * covariance S (C x C) of a over its P pixels,
 *
 *     T = W S,  mean_k = W_k m,  variance_k = T_k W_k',  T_kc being the covariance of x_k and a_c.
 *
 * Backward, with dz = d_y * activation'(z), its means D over the pixels, and s = weight * invstd, needs
 * neither x nor its gradient:
 *
 *     G_kc = sum of dz_k (a_c - m_c),  d_bias = P D,  d_weight_k = invstd_k W_k G_k'
 *     b_k = -s_k invstd_k d_weight_k / P
 *     d_W_k = s_k G_k + b_k P T_k
 *     d_a = (s W)' (dz - D) + Q (a - m),  Q = W' diag(b) W,  d_residual = dz
 *
 * This follows from batch norm's d_x = s (dz - D) + b (x - mean) by d_W = d_x a' and d_a = W' d_x. So forward
 * makes one pass over memory of the size of y, where convolution and batch norm make two and a half, and
 * backward two, where they make five. It is worthwhile, and accepted, only for more filters than channels and
 * many more pixels, so that the work on channels x channels matrices is small.
 *
 * Codes may store s W, Q and the biases that they imply in the storage type; the biases are computed from
 * the rounded factors at the mean, so that a constant input has only the rounding error of a bias. */
#include "kernels/folded/conv_batchnorm.h"

#include <math.h>
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/elementwise/activation.h"
#include "kernels/support/weight.h"

static bool conv_batchnorm_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                 struct reason *reason)
{
    const struct conv_batchnorm *s = settings;
    if (x_count != 1 + s->norm.residual)
        return because(reason, "it has %d inputs, not %d", x_count, 1 + s->norm.residual);
    if (x[0].c % 8 != 0 || s->filters % 8 != 0)
        return because(reason, "%lld channels and %lld filters are not multiples of 8", (long long)x[0].c,
                       (long long)s->filters);
    *y = conv_batchnorm_taken(s, x[0]);
    if (s->filters < 2 * x[0].c || shape_count(*y) < 32 * x[0].c * x[0].c)
        return because(reason, "%lld channels are too many for %lld filters and %lld pixels",
                       (long long)x[0].c, (long long)s->filters, (long long)(y->n * y->h * y->w));
    y->c = s->filters;
    if (s->norm.residual && !shape_equal(*y, x[1]))
        return because(reason, "the residual is not of the result's shape");
    return true;
}

static int conv_batchnorm_params(const void *settings, int x_count, const struct shape *x,
                                 struct op_param out[OP_MAX_PARAMS])
{
    const struct conv_batchnorm *s = settings;
    struct shape y = shape_nhwc(1, 1, 1, s->filters);
    struct shape weight = {.rank = 4, .dim = {s->filters, x[0].c, 1, 1}};
    int count = batchnorm_op.params(&s->norm, x_count, &y, out);
    return count + weight_params(&(struct weight_settings){.bias = false}, weight, x[0].c, s->filters,
                                 out + count);
}

static int conv_batchnorm_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                                struct op_saved out[OP_MAX_SAVED])
{
    const struct conv_batchnorm *s = settings;
    struct tensor y = {.dtype = x[0].dtype, .shape = x[0].shape};
    y.shape.c = s->filters;
    int count = batchnorm_op.saved(&s->norm, x_count, &y, training, out);
    if (!training) return count;
    out[count] = (struct op_saved){"covariance", F32,
                                   {.rank = 2, .dim = {s->filters + 1, x[0].shape.c, 1, 1}}};
    return count + 1;
}

static bool conv_batchnorm_masks(const void *settings, const struct tensor *x)
{
    const struct conv_batchnorm *s = settings;
    return s->norm.activation == ACTIVATION_RELU && dtype_bytes(x[0].dtype) == 2;
}

static unsigned conv_batchnorm_reads(const void *settings, enum phase phase)
{
    const struct conv_batchnorm *s = settings;
    return READS_FIRST_X | READS_PARAMS | READS_SAVED |
           (s->norm.activation == ACTIVATION_NONE ? READS_NOTHING : READS_Y);
}

/* A call's matrices, and its workspace as arrays of double: mean of a [C], covariance or Q [C][C], and in
 * backward D [K], b [K], G [K][C]. */
struct fold {
    const struct call *call;
    const struct tensor *weight;
    struct shape taken;
    int64_t pixels, channels, filters;
    double *mean, *square, *d, *b, *g;
};

static struct fold fold_open(const struct call *call)
{
    const struct conv_batchnorm *s = call->settings;
    struct fold f = {.call = call, .weight = &call->params[conv_batchnorm_weight(&s->norm)],
                     .taken = conv_batchnorm_taken(s, call->x[0].shape),
                     .channels = call->x[0].shape.c, .filters = s->filters};
    f.pixels = shape_count(f.taken) / f.channels;
    f.mean = call->workspace;
    f.square = f.mean + f.channels;
    f.d = f.square + f.channels * f.channels;
    f.b = f.d + f.filters;
    f.g = f.b + f.filters;
    return f;
}

static size_t conv_batchnorm_workspace(const struct call *call)
{
    const struct conv_batchnorm *s = call->settings;
    int64_t channels = call->x[0].shape.c, filters = call->phase == PHASE_BACKWARD ? s->filters : 0;
    int64_t count = channels * (channels + 1) + filters * (channels + 2);
    return call->phase == PHASE_UPDATE ? 0 : (size_t)count * sizeof(double);
}

static double weight_at(const struct fold *f, int64_t k, int64_t c)
{
    return tensor_get(f->weight, k * f->channels + c);
}

/* The index in a of a pixel's channel c. */
static int64_t place_of(const struct fold *f, int64_t p, int64_t c)
{
    int64_t stride = ((const struct conv_batchnorm *)f->call->settings)->stride;
    int64_t row = p / f->taken.w, h = row % f->taken.h * stride, w = p % f->taken.w * stride;
    return tensor_at(&f->call->x[0], row / f->taken.h, h, w, c);
}

static double a_at(const struct fold *f, int64_t p, int64_t c)
{
    return tensor_get(&f->call->x[0], place_of(f, p, c));
}

/* Mean and covariance of a, in two passes, or from sums. */
static void fold_measure(const struct fold *f)
{
    const struct tensor *given = conv_batchnorm_sums(f->call);
    int64_t channels = f->channels;
    bool products = given && given->shape.dim[0] == 1 + channels;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t p = 0; !given && p < f->pixels; p++) sum += a_at(f, p, c);
        f->mean[c] = (given ? tensor_get(given, c) : sum) / (double)f->pixels;
    }
    for (int64_t i = 0; i < channels * channels; i++)
        f->square[i] = products ? tensor_get(given, channels + i) / (double)f->pixels -
                                      f->mean[i / channels] * f->mean[i % channels]
                                : 0;
    for (int64_t p = 0; !products && p < f->pixels; p++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t d = 0; d < channels; d++)
                f->square[c * channels + d] += (a_at(f, p, c) - f->mean[c]) * (a_at(f, p, d) - f->mean[d]) /
                                               (double)f->pixels;
}

/* One filter's statistics. */
static void fold_save(const struct fold *f, int64_t k)
{
    const struct conv_batchnorm *s = f->call->settings;
    const struct tensor *saved = f->call->saved;
    double mean = 0, variance = 0, count = (double)f->pixels;
    for (int64_t c = 0; c < f->channels; c++) {
        double covariance = 0;
        for (int64_t d = 0; d < f->channels; d++)
            covariance += weight_at(f, k, d) * f->square[d * f->channels + c];
        mean += weight_at(f, k, c) * f->mean[c];
        variance += weight_at(f, k, c) * covariance;
        tensor_set(&saved[SAVED_COVARIANCE], k * f->channels + c, covariance);
    }
    variance = variance > 0 ? variance : 0;
    tensor_set(&saved[SAVED_MEAN], k, mean);
    tensor_set(&saved[SAVED_INVSTD], k, 1 / sqrt(variance + s->norm.eps));
    tensor_set(&saved[SAVED_VARIANCE], k, f->pixels > 1 ? variance * count / (count - 1) : 0);
}

/* A filter's line: y = activation(scale * x + offset + residual). */
struct line {
    double scale, offset;
};

static struct line line_of(const struct call *call, int64_t k)
{
    struct batchnorm_channel c = batchnorm_channel(call, k);
    return (struct line){c.weight * c.invstd, c.bias - c.weight * c.invstd * c.mean};
}

static void write_y(const struct fold *f, int64_t k)
{
    const struct call *call = f->call;
    struct batchnorm norm = ((const struct conv_batchnorm *)call->settings)->norm;
    struct line line = line_of(call, k);
    for (int64_t p = 0; p < f->pixels; p++) {
        int64_t i = p * f->filters + k;
        double x = 0;
        for (int64_t c = 0; c < f->channels; c++) x += weight_at(f, k, c) * a_at(f, p, c);
        double z = line.scale * x + line.offset + (norm.residual ? tensor_get(&call->x[1], i) : 0);
        tensor_set(&call->y, i, activate(norm.activation, z, norm.slope));
        if (call_operand(call, OPERAND_MASK)) batchnorm_mask_set(call, i);
    }
}

static enum status conv_batchnorm_recompute(const struct call *call)
{
    struct fold f = fold_open(call);
    for (int64_t k = 0; k < f.filters; k++) write_y(&f, k);
    return OK;
}

static enum status conv_batchnorm_forward(const struct call *call)
{
    struct fold f = fold_open(call);
    if (!call->training) return conv_batchnorm_recompute(call);
    fold_measure(&f);
    for (int64_t k = 0; k < f.filters; k++) fold_save(&f, k);
    for (int64_t c = 0; c < f.channels; c++)
        tensor_set(&call->saved[SAVED_COVARIANCE], f.filters * f.channels + c, f.mean[c]);
    return conv_batchnorm_recompute(call);
}

/* The gradient of the activation's input. */
static double d_z(const struct call *call, int64_t i)
{
    const struct conv_batchnorm *s = call->settings;
    if (s->norm.activation == ACTIVATION_NONE || conv_batchnorm_sums(call)) return batchnorm_d_y(call, i);
    double side = call_operand(call, OPERAND_MASK) ? batchnorm_mask_get(call, i) : tensor_get(&call->y, i);
    return activation_gradient(s->norm.activation, side, batchnorm_d_y(call, i), s->norm.slope);
}

/* D, G and the residual's gradient. */
static void add_products(const struct fold *f)
{
    for (int64_t k = 0; k < f->filters; k++) {
        double *g = f->g + k * f->channels, sum = 0;
        for (int64_t c = 0; c < f->channels; c++) g[c] = 0;
        for (int64_t p = 0; p < f->pixels; p++) {
            double dz = d_z(f->call, p * f->filters + k);
            sum += dz;
            for (int64_t c = 0; c < f->channels; c++) g[c] += dz * (a_at(f, p, c) - f->mean[c]);
        }
        f->d[k] = sum / (double)f->pixels;
    }
}

/* The parameters' gradients of one filter, and its b. */
static void write_d_params(const struct fold *f, int64_t k)
{
    const struct call *call = f->call;
    const struct conv_batchnorm *s = call->settings;
    const struct tensor *d_weight = &call->d_params[conv_batchnorm_weight(&s->norm)];
    double invstd = tensor_get(&call->saved[SAVED_INVSTD], k), scale = line_of(call, k).scale, product = 0;
    const double *g = f->g + k * f->channels;
    for (int64_t c = 0; c < f->channels; c++) product += weight_at(f, k, c) * g[c];
    f->b[k] = -scale * invstd * invstd * product / (double)f->pixels;
    if (s->norm.affine && call->d_params[0].data) tensor_set(&call->d_params[0], k, invstd * product);
    if (s->norm.affine && call->d_params[1].data)
        tensor_set(&call->d_params[1], k, f->d[k] * (double)f->pixels);
    for (int64_t c = 0; d_weight->data && c < f->channels; c++) {
        double covariance = tensor_get(&call->saved[SAVED_COVARIANCE], k * f->channels + c);
        tensor_set(d_weight, k * f->channels + c,
                   scale * g[c] + f->b[k] * (double)f->pixels * covariance);
    }
}

static void make_square(const struct fold *f)
{
    for (int64_t c = 0; c < f->channels; c++)
        for (int64_t d = 0; d < f->channels; d++) {
            double sum = 0;
            for (int64_t k = 0; k < f->filters; k++) sum += weight_at(f, k, c) * f->b[k] * weight_at(f, k, d);
            f->square[c * f->channels + d] = sum;
        }
}

static void write_d_a(const struct fold *f, int64_t p)
{
    bool picked = shape_equal(f->call->d_x[0].shape, f->taken);
    for (int64_t c = 0; c < f->channels; c++) {
        double sum = 0;
        for (int64_t k = 0; k < f->filters; k++)
            sum += line_of(f->call, k).scale * weight_at(f, k, c) *
                   (d_z(f->call, p * f->filters + k) - f->d[k]);
        for (int64_t d = 0; d < f->channels; d++)
            sum += f->square[c * f->channels + d] * (a_at(f, p, d) - f->mean[d]);
        tensor_set(&f->call->d_x[0], picked ? p * f->channels + c : place_of(f, p, c), sum);
    }
}

/* True if a kernel leaves those sums of the gradient that it writes. */
static bool makes_products(const struct call *call)
{
    const struct conv_batchnorm *s = call->settings;
    const struct tensor *a = &call->x[0];
    return dtype_bytes(a->dtype) == 2 && (a->shape.c == 64 || a->shape.c == 128) && s->filters % 64 == 0 &&
           s->stride == 1;
}

bool conv_batchnorm_supports(const struct call *call)
{
    const struct conv_batchnorm *s = call->settings;
    const struct shape *x = &call->x[0].shape;
    if (call->phase != PHASE_BACKWARD)
        return (!call_operand(call, OPERAND_X_SUMS) || shape_equal(conv_batchnorm_taken(s, *x), *x)) &&
               call_has_only(call, AS_BIT(OPERAND_X_SUMS) | AS_BIT(OPERAND_MASK), AS_BIT(EPILOGUE_MASK));
    return (s->stride == 2 || !call_epilogue(call, EPILOGUE_PICK)) &&
           (!call_operand(call, OPERAND_X_PRODUCTS) || makes_products(call)) &&
           call_has_only(call,
                         AS_BIT(OPERAND_D_Y_ADDEND) | AS_BIT(OPERAND_D_Y_SUMS) | AS_BIT(OPERAND_MASK) |
                             AS_BIT(OPERAND_X_PRODUCTS),
                         AS_BIT(EPILOGUE_PRODUCTS) | AS_BIT(EPILOGUE_PICK)) &&
           call_addend_is_whole(call);
}

static void write_products(const struct call *call, const struct tensor *products)
{
    int64_t channels = call->x[0].shape.c;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, product = 0;
        for (int64_t i = c; i < shape_count(call->x[0].shape); i += channels) {
            double d_a = tensor_get(&call->d_x[0], i), a = tensor_get(&call->x[0], i);
            sum += a != 0 ? d_a : 0;
            product += d_a * a;
        }
        tensor_set(products, c, sum);
        tensor_set(products, channels + c, product);
    }
}

static enum status conv_batchnorm_backward(const struct call *call)
{
    struct fold f = fold_open(call);
    for (int64_t c = 0; c < f.channels; c++)
        f.mean[c] = tensor_get(&call->saved[SAVED_COVARIANCE], f.filters * f.channels + c);
    add_products(&f);
    for (int64_t k = 0; k < f.filters; k++) write_d_params(&f, k);
    make_square(&f);
    for (int64_t i = 0; call->d_x[0].data && i < shape_count(call->d_x[0].shape); i++)
        tensor_set(&call->d_x[0], i, 0);
    for (int64_t p = 0; call->d_x[0].data && p < f.pixels; p++) write_d_a(&f, p);
    for (int64_t i = 0; call->x_count > 1 && call->d_x[1].data && i < f.pixels * f.filters; i++)
        tensor_set(&call->d_x[1], i, d_z(call, i));
    const struct tensor *products = call_operand(call, OPERAND_X_PRODUCTS);
    if (products) write_products(call, products);
    return OK;
}

#define AT(member) offsetof(struct conv_batchnorm, member)
static const struct field fields[] = {
    {.name = "filters", .type = FIELD_INT, .offset = AT(filters), .min = 1, .max = 1 << 20,
     .help = "Output channels."},
    {.name = "stride", .type = FIELD_INT, .offset = AT(stride), .initial = "1", .min = 1, .max = 1 << 12,
     .help = "Stride of the convolution."},
    BATCHNORM_FIELDS(AT(norm)),
    BATCHNORM_CLIP_FIELD(AT(norm), "Activation function applied to the result."),
    {.name = "residual", .type = FIELD_BOOL, .offset = AT(norm.residual), .initial = "no",
     .help = "Add the second input before the activation."},
    {0},
};

static const struct op_code reference = {
    .supports = conv_batchnorm_supports,
    .workspace = conv_batchnorm_workspace,
    .forward = conv_batchnorm_forward,
    .backward = conv_batchnorm_backward,
    .update = batchnorm_update,
    .recompute = conv_batchnorm_recompute,
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"filters=32", 1, {SHAPE(3, 14, 13, 16)}},
    {"filters=24 eps=1e-3 affine=no", 1, {SHAPE(1, 31, 9, 8)}},
    {"filters=32 stride=2", 1, {SHAPE(3, 27, 26, 16)}},
    {"filters=64 activation=relu", 1, {SHAPE(2, 17, 16, 16)}},
    {"filters=32 residual=yes", 2, {SHAPE(3, 175, 1, 16), SHAPE(3, 175, 1, 32)}},
    {"filters=128 residual=yes activation=relu", 2, {SHAPE(2, 12, 11, 8), SHAPE(2, 12, 11, 128)}},
    {"filters=48 activation=relu6", 1, {SHAPE(1, 23, 17, 8)}},
    {"filters=40 residual=yes activation=relu", 2, {SHAPE(1, 17, 17, 8), SHAPE(1, 17, 17, 40)}},
    {0},
};

static const struct op_example large[] = {
    {"filters=256 residual=yes activation=relu", 2, {SHAPE(4, 28, 28, 64), SHAPE(4, 28, 28, 256)}},
    {"filters=512 activation=relu", 1, {SHAPE(9, 23, 23, 128)}},
    {"filters=256 stride=2", 1, {SHAPE(6, 56, 56, 128)}},
    {"filters=96 activation=relu6", 1, {SHAPE(1, 61, 61, 24)}},
    {0},
};

const struct op conv_batchnorm_op = {
    .name = "conv_batchnorm",
    .help = "1x1 convolution and batch normalisation of its result, which is not stored.",
    .settings_size = sizeof(struct conv_batchnorm),
    .fields = fields,
    .max_inputs = 2,
    .precision = CLASS_LOW,
    .internal = true,
    .shape = conv_batchnorm_shape,
    .params = conv_batchnorm_params,
    .saved = conv_batchnorm_saved,
    .reads = conv_batchnorm_reads,
    .masks = conv_batchnorm_masks,
    .rounds_factors = true,
    .moments = {SAVED_MEAN, SAVED_VARIANCE},
    .reference = &reference,
    .cuda = ON_CUDA(conv_batchnorm_cuda),
    .supports_cuda = conv_batchnorm_supports,
    .examples = examples,
    .large = large,
};
