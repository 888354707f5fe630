/* layernorm: normalises the channels of every pixel (Ba, Kiros, Hinton 2016), as torch.nn.LayerNorm over the
 * last dimension of n, h, w, c:
 *
 *     xhat = (x - mean) * invstd,   invstd = 1 / sqrt(variance + eps),   y = xhat * weight + bias
 *
 * Backward, with g = d_y * weight and means over the pixel's channels:
 *     d_weight = sum over pixels of d_y * xhat,   d_bias = sum over pixels of d_y
 *     d_x = invstd * (g - mean(g) - xhat * mean(g * xhat)) */
#include "kernels/norm/layernorm.h"

#include <math.h>
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/elementwise/elementwise.h"

static int64_t pixel_count(struct shape shape) { return shape.n * shape.h * shape.w; }

static int layernorm_params(const void *settings, int x_count, const struct shape *x,
                            struct op_param out[OP_MAX_PARAMS])
{
    out[0] = (struct op_param){"weight", shape_vector(x[0].c), ROLE_NORM, F32, INIT_ONE, 0, 0, 0};
    out[1] = (struct op_param){"bias", shape_vector(x[0].c), ROLE_NORM, F32, INIT_ZERO, 0, 0, 0};
    return 2;
}

static int layernorm_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                           struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    out[LAYERNORM_MEAN] = (struct op_saved){"mean", F32, shape_vector(pixel_count(x[0].shape))};
    out[LAYERNORM_INVSTD] = (struct op_saved){"invstd", F32, shape_vector(pixel_count(x[0].shape))};
    return LAYERNORM_SAVED;
}

static unsigned layernorm_reads(const void *settings, enum phase phase)
{
    return READS_X | READS_PARAMS | READS_SAVED;
}

struct statistics {
    double mean, invstd;
};

/* In two passes; rounded as they are saved, so that y can be recomputed from them. */
static struct statistics layernorm_measure(const struct call *call, int64_t pixel)
{
    const struct layernorm *s = call->settings;
    int64_t channels = call->x[0].shape.c;
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < channels; c++) sum += tensor_get(&call->x[0], pixel * channels + c);
    double mean = sum / (double)channels;
    for (int64_t c = 0; c < channels; c++) {
        double deviation = tensor_get(&call->x[0], pixel * channels + c) - mean;
        squares += deviation * deviation;
    }
    double invstd = 1 / sqrt(squares / (double)channels + s->eps);
    if (!call->training) return (struct statistics){mean, invstd};
    tensor_set(&call->saved[LAYERNORM_MEAN], pixel, mean);
    tensor_set(&call->saved[LAYERNORM_INVSTD], pixel, invstd);
    return (struct statistics){tensor_get(&call->saved[LAYERNORM_MEAN], pixel),
                               tensor_get(&call->saved[LAYERNORM_INVSTD], pixel)};
}

static struct statistics saved_statistics(const struct call *call, int64_t pixel)
{
    return (struct statistics){tensor_get(&call->saved[LAYERNORM_MEAN], pixel),
                               tensor_get(&call->saved[LAYERNORM_INVSTD], pixel)};
}

static enum status layernorm_normalise(const struct call *call)
{
    int64_t channels = call->x[0].shape.c;
    for (int64_t pixel = 0; pixel < pixel_count(call->x[0].shape); pixel++) {
        struct statistics of =
            call->phase == PHASE_FORWARD ? layernorm_measure(call, pixel) : saved_statistics(call, pixel);
        for (int64_t c = 0; c < channels; c++) {
            double xhat = (tensor_get(&call->x[0], pixel * channels + c) - of.mean) * of.invstd;
            tensor_set(&call->y, pixel * channels + c,
                       xhat * tensor_get(&call->params[0], c) + tensor_get(&call->params[1], c));
        }
    }
    return OK;
}

static double xhat_at(const struct call *call, int64_t pixel, int64_t c)
{
    struct statistics of = saved_statistics(call, pixel);
    return (tensor_get(&call->x[0], pixel * call->x[0].shape.c + c) - of.mean) * of.invstd;
}

static void backward_channel(const struct call *call, int64_t c)
{
    double sum = 0, product = 0;
    for (int64_t pixel = 0; pixel < pixel_count(call->x[0].shape); pixel++) {
        double d_y = tensor_get(&call->d_y, pixel * call->x[0].shape.c + c);
        sum += d_y;
        product += d_y * xhat_at(call, pixel, c);
    }
    if (call->d_params[0].data) tensor_set(&call->d_params[0], c, product);
    if (call->d_params[1].data) tensor_set(&call->d_params[1], c, sum);
}

static void backward_pixel(const struct call *call, int64_t pixel)
{
    int64_t channels = call->x[0].shape.c;
    double sum = 0, product = 0;
    for (int64_t c = 0; c < channels; c++) {
        double g = tensor_get(&call->d_y, pixel * channels + c) * tensor_get(&call->params[0], c);
        sum += g;
        product += g * xhat_at(call, pixel, c);
    }
    for (int64_t c = 0; c < channels; c++) {
        double g = tensor_get(&call->d_y, pixel * channels + c) * tensor_get(&call->params[0], c);
        double centred = g - (sum + xhat_at(call, pixel, c) * product) / (double)channels;
        tensor_set(&call->d_x[0], pixel * channels + c, saved_statistics(call, pixel).invstd * centred);
    }
}

static enum status layernorm_backward(const struct call *call)
{
    for (int64_t c = 0; c < call->x[0].shape.c; c++) backward_channel(call, c);
    for (int64_t pixel = 0; call->d_x[0].data && pixel < pixel_count(call->x[0].shape); pixel++)
        backward_pixel(call, pixel);
    if (!call_operand(call, OPERAND_Y_RECOMPUTED)) return OK;
    struct call recompute = call_that_recomputes(call);
    return layernorm_normalise(&recompute);
}

static const struct field fields[] = {
    {.name = "eps", .type = FIELD_REAL, .offset = offsetof(struct layernorm, eps), .initial = "1e-6",
     .min = 0, .max = 1, .help = "Added to the variance."},
    {0},
};

static const struct op_code reference = {
    .forward = layernorm_normalise,
    .backward = layernorm_backward,
    .recompute = layernorm_normalise,
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(3, 7, 7, 24)}},
    {"eps=1e-3", 1, {SHAPE(2, 5, 7, 5)}},
    {"", 1, {SHAPE(2, 3, 3, 96)}},
    {"", 1, {SHAPE(3, 3, 3, 768)}},
    {"", 1, {SHAPE(1, 3, 1, 2072)}},
    {"", 1, {SHAPE(2, 3, 2, 1337)}},
    {0},
};

/* Shapes with more pixels than all blocks of a GPU take at once. */
static const struct op_example large[] = {
    {"", 1, {SHAPE(16, 56, 56, 96)}},
    {"", 1, {SHAPE(16, 14, 14, 384)}},
    {"", 1, {SHAPE(8, 31, 31, 33)}},
    {0},
};

const struct op layernorm_op = {
    .name = "layernorm",
    .help = "Layer normalisation over the channels of each pixel.",
    .settings_size = sizeof(struct layernorm),
    .fields = fields,
    .shape = elementwise_shape,
    .params = layernorm_params,
    .saved = layernorm_saved,
    .reads = layernorm_reads,
    .in_place = elementwise_in_place,
    .backward_recomputes = true,
    .reference = &reference,
    .cpu = &layernorm_cpu,
    .cuda = ON_CUDA(layernorm_cuda),
    .supports_cuda = call_adds_to_gradient,
    .examples = examples,
    .large = large,
};
