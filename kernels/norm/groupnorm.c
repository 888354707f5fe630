/* groupnorm: normalises groups of channels of each image (Wu, He 2018), as torch.nn.GroupNorm. With mean and
 * variance over the pixels and channels of a group, of which there are `count` numbers:
 *
 *     xhat = (x - mean) * invstd,   invstd = 1 / sqrt(variance + eps),   z = xhat * weight + bias + x[1]
 *     y = activation(z)
 *
 * where x[1] and the activation, an epilogue, are there if rules have put them there (rewrite/rules.c).
 * Backward recomputes z. With d_z = d_y * activation'(z), g = d_z * weight and means over the group:
 *     d_weight = sum over images and pixels of d_z * xhat,   d_bias = sum over them of d_z,   d_x[1] = d_z
 *     d_x = invstd * (g - mean(g) - xhat * mean(g * xhat))
 * whose sum over a group is 0: where each channel is one, so is the gradient of a bias added to x. */
#include "kernels/norm/groupnorm.h"

#include <math.h>
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/activation.h"

static bool groupnorm_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                            struct reason *reason)
{
    const struct groupnorm *s = settings;
    if (x->c % s->groups != 0)
        return because(reason, "%lld channels are not divisible by groups=%lld", (long long)x->c,
                       (long long)s->groups);
    *y = *x;
    return true;
}

int groupnorm_params(const void *settings, int x_count, const struct shape *x,
                     struct op_param out[OP_MAX_PARAMS])
{
    const struct groupnorm *s = settings;
    if (!s->affine) return 0;
    out[0] = (struct op_param){"weight", shape_vector(x[0].c), ROLE_NORM, F32, INIT_ONE, 0, 0, 0};
    out[1] = (struct op_param){"bias", shape_vector(x[0].c), ROLE_NORM, F32, INIT_ZERO, 0, 0, 0};
    return 2;
}

int groupnorm_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                    struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    struct shape shape = shape_vector(x[0].shape.n * groupnorm_groups(settings, x[0].shape.c));
    out[GROUPNORM_MEAN] = (struct op_saved){"mean", F32, shape};
    out[GROUPNORM_INVSTD] = (struct op_saved){"invstd", F32, shape};
    return GROUPNORM_SAVED;
}

unsigned groupnorm_reads(const void *settings, enum phase phase)
{
    return READS_X | READS_PARAMS | READS_SAVED;
}

/* At most one activation, among those that x[1] has code for; the sums of d_x[0] that are known. */
bool groupnorm_supports(const struct call *call)
{
    enum activation activation = call_activation(call).kind;
    bool joins = activation == ACTIVATION_NONE || activation == ACTIVATION_RELU ||
                 activation == ACTIVATION_LEAKY_RELU;
    bool sums = call_operand(call, OPERAND_D_X_SUMS);
    int64_t channels = call->x[0].shape.c;
    if (sums && groupnorm_groups(call->settings, channels) != channels) return false;
    return call->operand_count == sums && call->epilogue_count == sums + (activation != ACTIVATION_NONE) &&
           (!sums || call->phase == PHASE_BACKWARD) && (joins || call->x_count == 1);
}

/* A group of an image: the element of its pixel p and channel c is first + p * pitch + c. */
struct group {
    int64_t first, pixels, channels, pitch;
    int64_t index;             /* in the saved tensors */
    int64_t channel;           /* its first one */
};

static struct group group_of(const struct call *call, int64_t index)
{
    const struct shape *x = &call->x[0].shape;
    int64_t groups = groupnorm_groups(call->settings, x->c), pixels = x->h * x->w, channels = x->c / groups;
    int64_t image = index / groups, channel = index % groups * channels;
    return (struct group){image * pixels * x->c + channel, pixels, channels, x->c, index, channel};
}

static int64_t group_count(const struct call *call)
{
    return call->x[0].shape.n * groupnorm_groups(call->settings, call->x[0].shape.c);
}

struct statistics {
    double mean, invstd;
};

static struct statistics saved_statistics(const struct call *call, const struct group *g)
{
    return (struct statistics){tensor_get(&call->saved[GROUPNORM_MEAN], g->index),
                               tensor_get(&call->saved[GROUPNORM_INVSTD], g->index)};
}

/* In two passes; rounded as they are saved, so that y can be recomputed from them. */
static struct statistics measure(const struct call *call, const struct group *g)
{
    const struct groupnorm *s = call->settings;
    double sum = 0, squares = 0, count = (double)(g->pixels * g->channels);
    for (int64_t p = 0; p < g->pixels; p++)
        for (int64_t c = 0; c < g->channels; c++) sum += tensor_get(&call->x[0], g->first + p * g->pitch + c);
    double mean = sum / count;
    for (int64_t p = 0; p < g->pixels; p++)
        for (int64_t c = 0; c < g->channels; c++) {
            double deviation = tensor_get(&call->x[0], g->first + p * g->pitch + c) - mean;
            squares += deviation * deviation;
        }
    double invstd = 1 / sqrt(squares / count + s->eps);
    if (!call->training) return (struct statistics){mean, invstd};
    tensor_set(&call->saved[GROUPNORM_MEAN], g->index, mean);
    tensor_set(&call->saved[GROUPNORM_INVSTD], g->index, invstd);
    return saved_statistics(call, g);
}

static double param_of(const struct call *call, int param, int64_t channel)
{
    if (call->param_count == 0) return param == 0;
    return tensor_get(&call->params[param], channel);
}

static double z_at(const struct call *call, const struct statistics *of, int64_t at)
{
    int64_t channel = at % call->x[0].shape.c;
    double xhat = (tensor_get(&call->x[0], at) - of->mean) * of->invstd;
    double z = xhat * param_of(call, 0, channel) + param_of(call, 1, channel);
    return call->x_count > 1 ? z + tensor_get(&call->x[1], at) : z;
}

static double d_z_at(const struct call *call, const struct statistics *of, int64_t at)
{
    struct call_activation activation = call_activation(call);
    double d_y = tensor_get(&call->d_y, at);
    if (activation.kind == ACTIVATION_NONE) return d_y;
    return activation_gradient(activation.kind, z_at(call, of, at), d_y, activation.slope);
}

static enum status groupnorm_normalise(const struct call *call)
{
    struct call_activation activation = call_activation(call);
    for (int64_t i = 0; i < group_count(call); i++) {
        struct group g = group_of(call, i);
        struct statistics of = call->phase == PHASE_FORWARD ? measure(call, &g) : saved_statistics(call, &g);
        for (int64_t p = 0; p < g.pixels; p++)
            for (int64_t c = 0; c < g.channels; c++) {
                int64_t at = g.first + p * g.pitch + c;
                tensor_set(&call->y, at, activate(activation.kind, z_at(call, &of, at), activation.slope));
            }
    }
    return OK;
}

/* Adds the gradients of a channel's weight and bias over the images. */
static void backward_channel(const struct call *call, int64_t channel)
{
    const struct shape *x = &call->x[0].shape;
    int64_t groups = groupnorm_groups(call->settings, x->c), pixels = x->h * x->w;
    double sum = 0, product = 0;
    for (int64_t n = 0; n < x->n; n++) {
        struct group g = group_of(call, n * groups + channel / (x->c / groups));
        struct statistics of = saved_statistics(call, &g);
        for (int64_t p = 0; p < pixels; p++) {
            int64_t at = (n * pixels + p) * x->c + channel;
            double d_z = d_z_at(call, &of, at);
            sum += d_z;
            product += d_z * (tensor_get(&call->x[0], at) - of.mean) * of.invstd;
        }
    }
    if (call->d_params[0].data) tensor_set(&call->d_params[0], channel, product);
    if (call->d_params[1].data) tensor_set(&call->d_params[1], channel, sum);
}

static void backward_group(const struct call *call, const struct group *g)
{
    struct statistics of = saved_statistics(call, g);
    double sum = 0, product = 0, count = (double)(g->pixels * g->channels);
    bool joins = call->x_count > 1 && call->d_x[1].data;
    for (int64_t p = 0; p < g->pixels; p++)
        for (int64_t c = 0; c < g->channels; c++) {
            int64_t at = g->first + p * g->pitch + c;
            if (joins) tensor_set(&call->d_x[1], at, d_z_at(call, &of, at));
            double d = d_z_at(call, &of, at) * param_of(call, 0, g->channel + c);
            sum += d;
            product += d * (tensor_get(&call->x[0], at) - of.mean) * of.invstd;
        }
    for (int64_t p = 0; call->d_x[0].data && p < g->pixels; p++)
        for (int64_t c = 0; c < g->channels; c++) {
            int64_t at = g->first + p * g->pitch + c;
            double d = d_z_at(call, &of, at) * param_of(call, 0, g->channel + c);
            double xhat = (tensor_get(&call->x[0], at) - of.mean) * of.invstd;
            tensor_set(&call->d_x[0], at, of.invstd * (d - (sum + xhat * product) / count));
        }
}

static void sum_gradient(const struct call *call, int64_t channel)
{
    double sum = 0;
    for (int64_t i = channel; i < shape_count(call->x[0].shape); i += call->x[0].shape.c)
        sum += tensor_get(&call->d_x[0], i);
    tensor_set(call_operand(call, OPERAND_D_X_SUMS), channel, sum);
}

static enum status groupnorm_backward(const struct call *call)
{
    for (int64_t c = 0; call->param_count > 0 && c < call->x[0].shape.c; c++) backward_channel(call, c);
    for (int64_t i = 0; i < group_count(call); i++) {
        struct group g = group_of(call, i);
        backward_group(call, &g);
    }
    for (int64_t c = 0; call_operand(call, OPERAND_D_X_SUMS) && c < call->x[0].shape.c; c++)
        sum_gradient(call, c);
    if (!call_operand(call, OPERAND_Y_RECOMPUTED)) return OK;
    struct call recompute = call_that_recomputes(call);
    return groupnorm_normalise(&recompute);
}

const struct op_code groupnorm_reference = {
    .supports = groupnorm_supports,
    .forward = groupnorm_normalise,
    .backward = groupnorm_backward,
    .recompute = groupnorm_normalise,
};

static const struct field fields[] = {
    {.name = "groups", .type = FIELD_INT, .offset = offsetof(struct groupnorm, groups), .min = 1,
     .max = 1 << 20, .help = "Number of groups into which the channels are divided."},
    GROUPNORM_FIELDS,
    {0},
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"groups=4", 1, {SHAPE(3, 7, 7, 24)}},
    {"groups=1 eps=1e-3", 1, {SHAPE(2, 5, 7, 5)}},
    {"groups=8 affine=no", 1, {SHAPE(2, 9, 3, 64)}},
    {"groups=2", 1, {SHAPE(1, 3, 1, 2072)}},
    {"groups=5", 1, {SHAPE(2, 3, 5, 15)}},
    {"groups=8", 2, {SHAPE(2, 9, 3, 64), SHAPE(2, 9, 3, 64)}},
    {0},
};

static const struct op_example large[] = {
    {"groups=32", 1, {SHAPE(4, 56, 56, 256)}},
    {"groups=3", 1, {SHAPE(3, 61, 61, 33)}},
    {"groups=32", 2, {SHAPE(4, 56, 56, 256), SHAPE(4, 56, 56, 256)}},
    {0},
};

const struct op groupnorm_op = {
    .name = "groupnorm",
    .help = "Group normalisation: over the pixels and the channels of a group, by image.",
    .settings_size = sizeof(struct groupnorm),
    .fields = fields,
    .shape = groupnorm_shape,
    .params = groupnorm_params,
    .saved = groupnorm_saved,
    .reads = groupnorm_reads,
    .in_place = elementwise_in_place,
    .backward_recomputes = true,
    .activates = true,
    .reference = &groupnorm_reference,
    .cpu = &groupnorm_cpu,
    .cuda = ON_CUDA(groupnorm_cuda),
    .supports_cuda = groupnorm_supports,
    .examples = examples,
    .large = large,
};
