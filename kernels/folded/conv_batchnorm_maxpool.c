/* conv_batchnorm_maxpool: the first layers of ResNets and DenseNets as one op: a convolution of 7x7 by 2 on
 * images of three channels, batch norm, its activation, and a max pooling of 3x3 by 2. With x = conv(image),
 *
 *     y = the maximum over a window of activation((x - mean) * invstd * weight + bias)
 *
 * x has four times as many numbers as y, more than any other tensor of such networks, but the image that it
 * follows from is small. So it is not kept: forward has it in its workspace, at a time when little else is in
 * memory, and backward computes it again for batch norm's gradient,
 *
 *     d_x = scale * dz - (what batch norm subtracts, linear in x),  d_weight = the sum of d_x * patches,
 *
 * whose two sums need the saved extremes of the windows only (batchnorm_maxpool.c). So d_x need not be
 * stored either. The image has no gradient. */
#include "kernels/folded/conv_batchnorm_maxpool.h"

#include <stddef.h>

#include "kernels/codes_cuda.h"

extern const struct op conv_op, batchnorm_maxpool_op;

static bool conv_batchnorm_maxpool_shape(const void *settings, int x_count, const struct shape *x,
                                         struct shape *y, struct reason *reason)
{
    const struct conv_settings conv = conv_of_first(settings);
    const struct batchnorm_maxpool pool = pool_of_first(settings);
    struct shape between;
    if (x_count != 1 || x[0].c != FIRST_CHANNELS)
        return because(reason, "it is for one image of %d channels", FIRST_CHANNELS);
    return conv_op.shape(&conv, 1, x, &between, reason) &&
           batchnorm_maxpool_op.shape(&pool, 1, &between, y, reason);
}

static int conv_batchnorm_maxpool_params(const void *settings, int x_count, const struct shape *x,
                                         struct op_param out[OP_MAX_PARAMS])
{
    const struct conv_settings conv = conv_of_first(settings);
    struct shape between = conv_shape_of_first(settings, x[0]);
    int count = batchnorm_op.params(settings, 1, &between, out);
    return count + conv_op.params(&conv, x_count, x, out + count);
}

static int conv_batchnorm_maxpool_saved(const void *settings, int x_count, const struct tensor *x,
                                        bool training, struct op_saved out[OP_MAX_SAVED])
{
    const struct batchnorm_maxpool pool = pool_of_first(settings);
    struct tensor between = {.dtype = x[0].dtype, .shape = conv_shape_of_first(settings, x[0].shape)};
    return batchnorm_maxpool_op.saved(&pool, x_count, &between, training, out);
}

static unsigned conv_batchnorm_maxpool_reads(const void *settings, enum phase phase)
{
    return phase == PHASE_RECOMPUTE ? READS_NOTHING : READS_FIRST_X | READS_PARAMS | READS_SAVED;
}

static bool conv_batchnorm_maxpool_no_gradient(int input) { return input == 0; }

/* The workspace of the reference: x, and in backward d_x. */
static size_t between_bytes(const struct call *call)
{
    struct tensor between = {.dtype = call->x[0].dtype,
                             .shape = conv_shape_of_first(call->settings, call->x[0].shape)};
    return tensor_bytes(&between);
}

static size_t conv_batchnorm_maxpool_workspace(const struct call *call)
{
    return call->phase == PHASE_FORWARD    ? between_bytes(call)
           : call->phase == PHASE_BACKWARD ? 2 * between_bytes(call)
                                           : 0;
}

static struct tensor between_at(const struct call *call, size_t offset)
{
    return (struct tensor){.dtype = call->x[0].dtype, .data = (char *)call->workspace + offset,
                           .shape = conv_shape_of_first(call->settings, call->x[0].shape)};
}

static enum status run_conv(const struct call *call, const struct tensor *x)
{
    const struct conv_settings settings = conv_of_first(call->settings);
    struct call conv = *call;
    conv.phase = PHASE_FORWARD;
    conv.settings = &settings;
    conv.params = call->params + conv_weight_of_first(call->settings);
    conv.param_count = 1;
    conv.y = *x;
    return conv_reference.forward(&conv);
}

static enum status conv_batchnorm_maxpool_forward(const struct call *call)
{
    const struct batchnorm_maxpool settings = pool_of_first(call->settings);
    struct tensor x = between_at(call, 0);
    struct call pool = *call;
    pool.settings = &settings;
    pool.x = &x;
    TRY(run_conv(call, &x));
    return batchnorm_maxpool_op.reference->forward(&pool);
}

static enum status conv_batchnorm_maxpool_recompute(const struct call *call)
{
    return batchnorm_maxpool_op.reference->recompute(call);
}

static enum status conv_batchnorm_maxpool_backward(const struct call *call)
{
    const struct conv_settings conv_settings = conv_of_first(call->settings);
    const struct batchnorm_maxpool pool_settings = pool_of_first(call->settings);
    struct tensor x = between_at(call, 0), d_x = between_at(call, between_bytes(call));
    struct call pool = *call, conv = *call;
    pool.settings = &pool_settings;
    pool.x = &x;
    pool.d_x = &d_x;
    conv.phase = PHASE_BACKWARD_PARAMS;
    conv.settings = &conv_settings;
    conv.d_y = d_x;
    conv.d_params = call->d_params + conv_weight_of_first(call->settings);
    conv.param_count = 1;
    TRY(run_conv(call, &x));
    TRY(batchnorm_maxpool_op.reference->backward(&pool));
    return conv.d_params[0].data ? conv_reference.backward_params(&conv) : OK;
}

#define AT(member) offsetof(struct conv_batchnorm_maxpool, member)
static const struct field fields[] = {
    {.name = "filters", .type = FIELD_INT, .offset = AT(filters), .min = 1, .max = 1 << 20,
     .help = "Channels of the convolution's result."},
    BATCHNORM_FIELDS(AT(norm)),
    BATCHNORM_CLIP_FIELD(AT(norm), "Activation function applied before pooling."),
    {0},
};

static const struct op_code reference = {
    .supports = call_adds_gradients,
    .workspace = conv_batchnorm_maxpool_workspace,
    .forward = conv_batchnorm_maxpool_forward,
    .backward = conv_batchnorm_maxpool_backward,
    .update = batchnorm_update,
    .recompute = conv_batchnorm_maxpool_recompute,
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"filters=64 activation=relu", 1, {SHAPE(1, 31, 36, 3)}},
    {"filters=64 activation=relu6 eps=1e-3", 1, {SHAPE(2, 17, 8, 3)}},
    {"filters=128 affine=no", 1, {SHAPE(1, 20, 20, 3)}},
    {0},
};

/* So many tiles that blocks get several, each with few outputs. */
static const struct op_example large[] = {
    {"filters=64 activation=relu", 1, {SHAPE(230, 30, 4, 3)}},
    {0},
};

const struct op conv_batchnorm_maxpool_op = {
    .name = "conv_batchnorm_maxpool",
    .help = "7x7 convolution of an image, batch normalisation and max pooling of its result, which is not "
            "stored.",
    .settings_size = sizeof(struct conv_batchnorm_maxpool),
    .fields = fields,
    .precision = CLASS_LOW,
    .internal = true,
    .shape = conv_batchnorm_maxpool_shape,
    .params = conv_batchnorm_maxpool_params,
    .saved = conv_batchnorm_maxpool_saved,
    .reads = conv_batchnorm_maxpool_reads,
    .rounds_factors = true,
    .rounds_between = true,
    .moments = {SAVED_MEAN, SAVED_VARIANCE},
    .no_gradient = conv_batchnorm_maxpool_no_gradient,
    .reference = &reference,
    .cuda = ON_CUDA(conv_batchnorm_maxpool_cuda),
    .examples = examples,
    .large = large,
};
