/* batchnorm: normalises every channel over n, h and w (Ioffe, Szegedy 2015), as torch.nn.BatchNorm2d:
 *
 *     z = (x - mean) * invstd * weight + bias + residual,   invstd = 1 / sqrt(variance + eps)
 *     y = activation(z)
 *
 * Training: mean and biased variance of the micro-batch; after an applied step
 *     running = (1 - momentum) * running + momentum * batch's (variance: unbiased),
 * by the moments of all its micro-batches together (moments.c).
 * Evaluation: the running ones. `residual` is the second input, present if the setting of that name
 * says so; it and the activation come from fusion.
 *
 * Backward, with dz = d_y * activation'(z), xhat = (x - mean) * invstd, and means over the channel:
 *     d_residual = dz,  d_bias = sum(dz),  d_weight = sum(dz * xhat)
 *     d_x = weight * invstd * (dz - mean(dz) - xhat * mean(dz * xhat))
 *
 * With call->ranks, statistics and means are those of that many ranks of the same size: forward reads mean
 * and invstd from saved; backward reads the sums of all ranks, and computes d_x only. The sums of one rank
 * are what backward without d_x writes as RANK_SUMS: F32 [2, c], sum(dz) and sum(dz * xhat).
 *
 * The side of the activation's corner on which an element is follows from z before it is rounded to
 * storage, recomputed from x, so that y need not be kept; with a residual it follows from
 * the stored y, or a mask of it, so that the residual need not be kept. The two differ only where
 * z underflows. A channel of a single value has the unbiased variance 0.
 *
 * Where a max pooling reads y, too, forward writes both; backward finds the pooling's gradient of y, which is
 * added to d_y, in that of the pooled, a quarter as large. */
#include "kernels/norm/batchnorm.h"

#include <math.h>
#include <stddef.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/pool/pool.h"

static bool batchnorm_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                            struct reason *reason)
{
    const struct batchnorm *s = settings;
    char first[SHAPE_TEXT], second[SHAPE_TEXT];
    if (x_count != 1 + s->residual)
        return because(reason, "it has %d inputs, not %d", x_count, 1 + s->residual);
    if (s->residual && !shape_equal(x[0], x[1]))
        return because(reason, "the residual is %s, not %s", shape_text(x[1], second),
                       shape_text(x[0], first));
    if (s->residual && activation_is_smooth(s->activation))
        return because(reason, "its activation cannot follow a residual");
    *y = x[0];
    return true;
}

static int batchnorm_params(const void *settings, int x_count, const struct shape *x,
                            struct op_param out[OP_MAX_PARAMS])
{
    const struct batchnorm *s = settings;
    struct shape channels = shape_vector(x[0].c), scalar = {.rank = 0};
    int count = 0;
    if (s->affine) {
        out[count++] = (struct op_param){"weight", channels, ROLE_NORM, F32,
                                         s->init ? INIT_ZERO : INIT_ONE, 0, 0, 0};
        out[count++] = (struct op_param){"bias", channels, ROLE_NORM, F32, INIT_ZERO, 0, 0, 0};
    }
    out[count++] = (struct op_param){"running_mean", channels, ROLE_STATISTIC, F32, INIT_ZERO, 0, 0, 0};
    out[count++] = (struct op_param){"running_var", channels, ROLE_STATISTIC, F32, INIT_ONE, 0, 0, 0};
    out[count++] = (struct op_param){"num_batches_tracked", scalar, ROLE_STATISTIC, I64, INIT_ZERO, 0, 0, 0};
    return count;
}

static int batchnorm_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                           struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    struct shape channels = shape_vector(x[0].shape.c);
    out[SAVED_MEAN] = (struct op_saved){"mean", F32, channels};
    out[SAVED_INVSTD] = (struct op_saved){"invstd", F32, channels};
    out[SAVED_VARIANCE] = (struct op_saved){"variance", F32, channels};
    return SAVED_COUNT;
}

static bool reads_y(const struct batchnorm *s)
{
    return s->residual && s->activation != ACTIVATION_NONE;
}

static bool batchnorm_masks(const void *settings, const struct tensor *x)
{
    const struct batchnorm *s = settings;
    return s->residual && s->activation == ACTIVATION_RELU && dtype_bytes(x[0].dtype) == 2 &&
           x[0].shape.c % 8 == 0;
}

/* Backward's second sweep reads a number of x once, before it writes y there. */
static bool batchnorm_in_place(const void *settings, enum phase phase, int x_count, const struct shape *x)
{
    return phase != PHASE_RECOMPUTE || x_count == 1;
}

static unsigned batchnorm_reads(const void *settings, enum phase phase)
{
    return READS_FIRST_X | READS_PARAMS | READS_SAVED | (reads_y(settings) ? READS_Y : 0);
}

/* In two passes: mean, then squared deviations from it. */
void batchnorm_measure(const struct call *call, int64_t k)
{
    const struct batchnorm *s = call->settings;
    int64_t channels = call->x[0].shape.c, numbers = shape_count(call->x[0].shape);
    double count = (double)(numbers / channels), sum = 0, squares = 0;
    for (int64_t i = k; i < numbers; i += channels) sum += tensor_get(&call->x[0], i);
    double mean = sum / count;
    for (int64_t i = k; i < numbers; i += channels) {
        double deviation = tensor_get(&call->x[0], i) - mean;
        squares += deviation * deviation;
    }
    tensor_set(&call->saved[SAVED_MEAN], k, mean);
    tensor_set(&call->saved[SAVED_INVSTD], k, 1 / sqrt(squares / count + s->eps));
    tensor_set(&call->saved[SAVED_VARIANCE], k, count > 1 ? squares / (count - 1) : 0);
}

struct batchnorm_channel batchnorm_channel(const struct call *call, int64_t k)
{
    const struct batchnorm *s = call->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    return (struct batchnorm_channel){
        .mean = tensor_get(call->training ? &call->saved[SAVED_MEAN] : &call->params[at.mean], k),
        .invstd = call->training ? tensor_get(&call->saved[SAVED_INVSTD], k)
                                 : 1 / sqrt(tensor_get(&call->params[at.variance], k) + s->eps),
        .weight = s->affine ? tensor_get(&call->params[0], k) : 1,
        .bias = s->affine ? tensor_get(&call->params[1], k) : 0,
    };
}

static enum status pool_y(const struct call *call, const struct tensor *pooled)
{
    struct tensor y = call->y, number = *call_operand(call, OPERAND_NUMBER);
    struct call pooling = *call;
    struct pool_plane plane = pool_halves(y.shape, pooled->shape);
    pooling.x = &y;
    pooling.y = *pooled;
    pooling.saved = &number;
    pooling.saved_count = 1;
    return pool_maximum(&pooling, &plane);
}

double batchnorm_pooled_d_y(const struct call *call, int64_t i)
{
    const struct tensor *pooled = call_operand(call, OPERAND_D_Y_ADDEND);
    struct shape y = call->d_y.shape;
    int64_t c = i % y.c, w = i / y.c % y.w, h = i / y.c / y.w % y.h, n = i / y.c / y.w / y.h;
    if (h / 2 >= pooled->shape.h || w / 2 >= pooled->shape.w) return 0;
    int64_t at = tensor_at(pooled, n, h / 2, w / 2, c), number = h % 2 * 2 + w % 2;
    bool taken = (int64_t)tensor_get(call_operand(call, OPERAND_NUMBER), at) == number;
    return taken ? tensor_get(pooled, at) : 0;
}

static enum status batchnorm_recompute(const struct call *call)
{
    const struct batchnorm *s = call->settings;
    int64_t channels = call->x[0].shape.c, numbers = shape_count(call->x[0].shape);
    for (int64_t k = 0; k < channels; k++) {
        struct batchnorm_channel c = batchnorm_channel(call, k);
        for (int64_t i = k; i < numbers; i += channels) {
            double z = batchnorm_z(&c, tensor_get(&call->x[0], i));
            if (s->residual) z += tensor_get(&call->x[1], i);
            tensor_set(&call->y, i, activate(s->activation, z, s->slope));
            if (call_operand(call, OPERAND_MASK)) batchnorm_mask_set(call, i);
        }
    }
    const struct tensor *pooled = call_operand(call, OPERAND_POOLED);
    return pooled ? pool_y(call, pooled) : OK;
}

/* Number k of Y_SUMS: of y, then of products of y's channels. */
static void batchnorm_sum_y(const struct call *call, const struct tensor *sums, int64_t k)
{
    int64_t channels = call->y.shape.c, row = k / channels - 1;
    double sum = 0;
    for (int64_t i = 0; i < shape_count(call->y.shape); i += channels)
        sum += tensor_get(&call->y, i + k % channels) * (row < 0 ? 1 : tensor_get(&call->y, i + row));
    tensor_set(sums, k, sum);
}

static enum status batchnorm_forward(const struct call *call)
{
    if (call->training && call->ranks == 0)
        for (int64_t k = 0; k < call->x[0].shape.c; k++) batchnorm_measure(call, k);
    TRY(batchnorm_recompute(call));
    const struct tensor *sums = call_operand(call, OPERAND_Y_SUMS);
    for (int64_t k = 0; sums && k < shape_count(sums->shape); k++) batchnorm_sum_y(call, sums, k);
    return OK;
}

/* The value whose sign selects the piece of the activation; z if it is smooth. */
static double batchnorm_side(const struct call *call, const struct batchnorm_channel *c, int64_t i)
{
    if (!reads_y(call->settings)) return batchnorm_z(c, tensor_get(&call->x[0], i));
    return call_operand(call, OPERAND_MASK) ? batchnorm_mask_get(call, i) : tensor_get(&call->y, i);
}

/* The gradient of the activation's input. */
static double d_z(const struct call *call, const struct batchnorm_channel *c, int64_t i)
{
    const struct batchnorm *s = call->settings;
    return activation_gradient(s->activation, batchnorm_side(call, c, i), batchnorm_d_y(call, i), s->slope);
}

struct gradient_sums {
    double sum, product, count;
};

/* From those that are given; false: they do not determine them. */
static bool sums_from_products(const struct call *call, const struct batchnorm_channel *c, int64_t k,
                               struct gradient_sums *sums)
{
    const struct tensor *known = call_operand(call, OPERAND_Y_PRODUCTS);
    if (!known || c->weight == 0) return false;
    sums->sum = tensor_get(known, k);
    double product = tensor_get(known, call->x[0].shape.c + k);
    sums->product = (product - c->bias * sums->sum) / c->weight;
    return fabs(c->bias) <= BATCHNORM_BIAS_MAX * fabs(c->weight) && !isnan(product);
}

static struct gradient_sums gradient_sums(const struct call *call, const struct batchnorm_channel *c,
                                          int64_t k)
{
    int64_t channels = call->x[0].shape.c, numbers = shape_count(call->x[0].shape);
    const struct tensor *shared = call_operand(call, OPERAND_RANK_SUMS);
    struct gradient_sums sums = {0, 0, (double)(numbers / channels)};
    if (call->ranks > 0)
        return (struct gradient_sums){tensor_get(shared, k), tensor_get(shared, channels + k),
                                      (double)(call->ranks * (numbers / channels))};
    if (sums_from_products(call, c, k, &sums)) return sums;
    sums.sum = sums.product = 0;
    for (int64_t i = k; i < numbers; i += channels) {
        double dz = d_z(call, c, i);
        sums.sum += dz;
        sums.product += dz * batchnorm_xhat(c, tensor_get(&call->x[0], i));
    }
    if (!shared) return sums;
    tensor_set(shared, k, sums.sum);
    tensor_set(shared, channels + k, sums.product);
    return sums;
}

static void backward_channel(const struct call *call, int64_t k)
{
    const struct batchnorm *s = call->settings;
    struct batchnorm_channel c = batchnorm_channel(call, k);
    struct gradient_sums sums = gradient_sums(call, &c, k);
    if (s->affine && call->d_params[0].data) tensor_set(&call->d_params[0], k, sums.product);
    if (s->affine && call->d_params[1].data) tensor_set(&call->d_params[1], k, sums.sum);
    for (int64_t i = k; i < shape_count(call->x[0].shape); i += call->x[0].shape.c) {
        double dz = d_z(call, &c, i), xhat = batchnorm_xhat(&c, tensor_get(&call->x[0], i));
        if (s->residual && call->d_x[1].data) tensor_set(&call->d_x[1], i, dz);
        if (call->d_x[0].data)
            tensor_set(&call->d_x[0], i,
                       c.weight * c.invstd * (dz - (sums.sum + xhat * sums.product) / sums.count));
    }
}

/* Adds the first channels of another gradient to d_x. */
static void add_first_channels(const struct call *call, const struct tensor *addend)
{
    int64_t channels = call->x[0].shape.c, pitch = addend->shape.c;
    for (int64_t i = 0; i < shape_count(call->x[0].shape); i++)
        tensor_set(&call->d_x[0], i, tensor_get(&call->d_x[0], i) +
                                         tensor_get(addend, i / channels * pitch + i % channels));
}

static enum status batchnorm_backward(const struct call *call)
{
    for (int64_t k = 0; k < call->x[0].shape.c; k++) backward_channel(call, k);
    const struct tensor *addend = call_operand(call, OPERAND_D_X_ADDEND);
    if (addend) add_first_channels(call, addend);
    if (!call_operand(call, OPERAND_Y_RECOMPUTED)) return OK;
    struct call recompute = call_that_recomputes(call);
    return batchnorm_recompute(&recompute);
}

static void running_follow(const struct call *call)
{
    const struct batchnorm *s = call->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    const struct tensor *mean = &call->params[at.mean], *variance = &call->params[at.variance];
    for (int64_t k = 0; k < shape_count(mean->shape); k++) {
        double batch_mean = tensor_get(&call->saved[SAVED_MEAN], k);
        double batch_variance = tensor_get(&call->saved[SAVED_VARIANCE], k);
        tensor_set(mean, k, (1 - s->momentum) * tensor_get(mean, k) + s->momentum * batch_mean);
        tensor_set(variance, k, (1 - s->momentum) * tensor_get(variance, k) + s->momentum * batch_variance);
    }
    const struct tensor *batches = &call->params[at.batches];
    tensor_set(batches, 0, tensor_get(batches, 0) + 1);
}

enum status batchnorm_update(const struct call *call)
{
    if (call->skipped && *call->skipped) return OK;
    for (; call; call = call->also) running_follow(call);
    return OK;
}

const char *const batchnorm_clips[] = {"none", "relu", "relu6", NULL};
static const char *const inits[] = {"one", "zero", NULL};
static const struct field fields[] = {
    BATCHNORM_FIELDS(0),
    {.name = "activation", .type = FIELD_CHOICE, .offset = offsetof(struct batchnorm, activation),
     .initial = "none", .choices = activation_words, .help = "Activation function applied to the result."},
    {.name = "slope", .type = FIELD_REAL, .offset = offsetof(struct batchnorm, slope), .initial = "0.01",
     .min = 0, .max = 1, .help = "Slope of leaky_relu for negative values."},
    {.name = "init", .type = FIELD_CHOICE, .offset = offsetof(struct batchnorm, init), .initial = "one",
     .choices = inits,
     .help = "The weights begin with one; or with zero, so that a residual block begins as its shortcut"},
    {.name = "residual", .type = FIELD_BOOL, .offset = offsetof(struct batchnorm, residual),
     .initial = "no", .help = "Add the second input before the activation."},
    {0},
};

bool batchnorm_gives_gram(int64_t channels)
{
    return channels == 64 || channels == 128;
}

static bool forward_supports(const struct call *call)
{
    const struct batchnorm *s = call->settings;
    const struct tensor *sums = call_operand(call, OPERAND_Y_SUMS);
    bool relu = s->activation == ACTIVATION_RELU && !s->residual;
    bool fits = !sums || (relu && (sums->shape.dim[0] == 1 || batchnorm_gives_gram(call->x[0].shape.c)));
    unsigned pools = AS_BIT(OPERAND_POOLED) | AS_BIT(OPERAND_NUMBER);
    if (!call_operand(call, OPERAND_POOLED) != !call_operand(call, OPERAND_NUMBER)) return false;
    return fits && call_has_only(call, AS_BIT(OPERAND_Y_SUMS) | AS_BIT(OPERAND_MASK) | pools,
                                 AS_BIT(EPILOGUE_SUMS) | AS_BIT(EPILOGUE_GRAM) | AS_BIT(EPILOGUE_MASK) |
                                     AS_BIT(EPILOGUE_POOL));
}

/* Known sums of products are those of the argument of a relu, for one gradient. */
bool batchnorm_supports(const struct call *call)
{
    const struct batchnorm *s = call->settings;
    if (call->phase != PHASE_BACKWARD) return forward_supports(call);
    const struct tensor *addend = call_operand(call, OPERAND_D_X_ADDEND);
    bool relu = s->activation == ACTIVATION_RELU && !s->residual;
    bool adds = call_operand(call, OPERAND_D_Y_ADDEND), shared = call_operand(call, OPERAND_RANK_SUMS);
    if (call_operand(call, OPERAND_Y_PRODUCTS) && (!relu || adds || shared)) return false;
    if (addend && (call->x_count > 1 || adds || addend->shape.c < call->x[0].shape.c)) return false;
    if (call_operand(call, OPERAND_NUMBER) && !adds) return false;
    return call_has_only(call,
                         AS_BIT(OPERAND_D_Y_ADDEND) | AS_BIT(OPERAND_D_X_ADDEND) | AS_BIT(OPERAND_MASK) |
                             AS_BIT(OPERAND_Y_PRODUCTS) | AS_BIT(OPERAND_RANK_SUMS) |
                             AS_BIT(OPERAND_Y_RECOMPUTED) | AS_BIT(OPERAND_NUMBER),
                         AS_BIT(EPILOGUE_ADD));
}

/* Windows are counted in 32 bits, and have kernels for whole packs of 16 bits. */
static bool pools_on_cuda(const struct call *call)
{
    struct shape x = call->x[0].shape;
    bool packs = dtype_bytes(call->x[0].dtype) == 2 && x.c % 8 == 0 && shape_count(x) / x.c <= INT32_MAX;
    return packs && call->x_count == 1 && !call_operand(call, OPERAND_Y_SUMS);
}

bool batchnorm_cuda_supports(const struct call *call)
{
    struct call without = *call;
    bool pools = call_operand(call, OPERAND_POOLED) || call_operand(call, OPERAND_NUMBER);
    if (call->phase == PHASE_FORWARD) call_drop(&without, OPERAND_X_MOMENTS);
    return batchnorm_supports(&without) && (!pools || pools_on_cuda(call));
}

static const struct op_code reference = {
    .supports = batchnorm_supports,
    .forward = batchnorm_forward,
    .backward = batchnorm_backward,
    .update = batchnorm_update,
    .recompute = batchnorm_recompute,
};

char *batchnorm_folded_settings(const struct batchnorm *s)
{
    return text_format("eps=%.17g momentum=%.17g affine=%s activation=%s", s->eps, s->momentum,
                       s->affine ? "yes" : "no", activation_words[s->activation]);
}

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(3, 7, 7, 5)}},
    {"eps=1e-3 affine=no", 1, {SHAPE(2, 5, 7, 3)}},
    {"activation=relu", 1, {SHAPE(3, 7, 7, 24)}},
    {"activation=relu6", 1, {SHAPE(1, 31, 7, 3)}},
    {"activation=leaky_relu slope=0.2", 1, {SHAPE(3, 31, 31, 1)}},
    {"activation=silu", 1, {SHAPE(3, 7, 7, 24)}},
    {"activation=silu", 1, {SHAPE(2, 5, 7, 3)}},
    {"activation=hardswish", 1, {SHAPE(3, 7, 7, 16)}},
    {"residual=yes", 2, {SHAPE(3, 7, 1, 5), SHAPE(3, 7, 1, 5)}},
    {"residual=yes activation=relu", 2, {SHAPE(3, 7, 7, 24), SHAPE(3, 7, 7, 24)}},
    {"residual=yes activation=relu6", 2, {SHAPE(3, 7, 7, 1), SHAPE(3, 7, 7, 1)}},
    {"residual=yes activation=leaky_relu", 2, {SHAPE(3, 3, 7, 5), SHAPE(3, 3, 7, 5)}},
    {"activation=relu", 1, {SHAPE(3, 1, 1, 1100)}},
    {"activation=relu", 1, {SHAPE(3, 7, 9, 64)}},
    {"activation=relu", 1, {SHAPE(1, 17, 5, 128)}},
    {"residual=yes activation=relu", 2, {SHAPE(4, 28, 28, 24), SHAPE(4, 28, 28, 24)}},
    {"activation=relu6", 1, {SHAPE(3, 14, 14, 40)}},
    {"activation=hardswish", 1, {SHAPE(3, 14, 14, 40)}},
    {0},
};

/* More rows than all blocks of a GPU, or chunks of the CPU's code, process at once. */
static const struct op_example large[] = {
    {"activation=relu", 1, {SHAPE(16, 112, 112, 16)}},
    {"activation=relu", 1, {SHAPE(10, 61, 61, 128)}},
    {"residual=yes activation=relu", 2, {SHAPE(16, 28, 28, 256), SHAPE(16, 28, 28, 256)}},
    {"activation=silu", 1, {SHAPE(16, 112, 112, 16)}},
    {"", 1, {SHAPE(64, 61, 61, 5)}},
    {0},
};

const struct op batchnorm_op = {
    .name = "batchnorm",
    .help = "Batch normalisation over batch, height and width.",
    .settings_size = sizeof(struct batchnorm),
    .fields = fields,
    .max_inputs = 2,
    .shape = batchnorm_shape,
    .params = batchnorm_params,
    .saved = batchnorm_saved,
    .reads = batchnorm_reads,
    .in_place = batchnorm_in_place,
    .masks = batchnorm_masks,
    .backward_recomputes = true,
    .moments = {SAVED_MEAN, SAVED_VARIANCE},
    .reference = &reference,
    .cpu = &batchnorm_cpu,
    .cuda = ON_CUDA(batchnorm_cuda),
    .supports_cuda = batchnorm_cuda_supports,
    .examples = examples,
    .large = large,
};
