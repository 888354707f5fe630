/* batchnorm_conv: a batch norm and the 1x1 convolution to few filters that alone reads its result, as
 * networks end that label pixels, as one op. The normalised tensor and its gradient are not stored: forward
 * and backward compute them from what they read. */
#include "kernels/folded/batchnorm_conv.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"

static struct conv_settings conv_of(const struct batchnorm_conv *s)
{
    return (struct conv_settings){
        .filters = s->filters, .kernel = 1, .kernel_h = CONV_SAME, .kernel_w = CONV_SAME, .stride = 1,
        .stride_h = CONV_SAME, .stride_w = CONV_SAME, .pad_h = CONV_SAME, .pad_w = CONV_SAME, .dilation = 1,
        .groups = 1, .weight = {.bias = s->bias},
    };
}

static int norm_params(const struct batchnorm_conv *s) { return batchnorm_statistics(&s->norm).batches + 1; }

static bool batchnorm_conv_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                 struct reason *reason)
{
    const struct conv_settings conv = conv_of(settings);
    if (x_count != 1) return because(reason, "it has %d inputs, not 1", x_count);
    return conv_op.shape(&conv, 1, x, y, reason);
}

static int batchnorm_conv_params(const void *settings, int x_count, const struct shape *x,
                                 struct op_param out[OP_MAX_PARAMS])
{
    const struct conv_settings conv = conv_of(settings);
    int count = batchnorm_op.params(settings, 1, x, out);
    return count + conv_op.params(&conv, 1, x, out + count);
}

static int batchnorm_conv_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                                struct op_saved out[OP_MAX_SAVED])
{
    return batchnorm_op.saved(settings, 1, x, training, out);
}

static unsigned batchnorm_conv_reads(const void *settings, enum phase phase)
{
    return READS_FIRST_X | READS_PARAMS | READS_SAVED;
}

/* A pixel of x is read before its d_x is written, by code that has all sums by then. */
static bool batchnorm_conv_in_place(const void *settings, enum phase phase, int x_count,
                                    const struct shape *x)
{
    return phase == PHASE_BACKWARD;
}

bool batchnorm_conv_cuda_supports(const struct call *call)
{
    const struct batchnorm_conv *s = call->settings;
    const struct conv_settings settings = conv_of(s);
    struct call conv = {.settings = &settings, .x = call->x, .x_count = 1};
    return conv_is_thin(&conv) && s->norm.activation == ACTIVATION_RELU &&
           call_has_only(call, call->phase == PHASE_FORWARD ? AS_BIT(OPERAND_X_MOMENTS) : 0, 0);
}

void batchnorm_conv_divide(const struct call *call, void *a, void *d_a, struct batchnorm_conv_calls *as)
{
    const struct batchnorm_conv *s = call->settings;
    int params = norm_params(s);
    as->settings = conv_of(s);
    as->a = as->d_a = call->x[0];
    as->a.data = a;
    as->d_a.data = d_a;
    as->norm = as->conv = *call;
    as->norm.op = &batchnorm_op;
    as->norm.param_count = params;
    as->norm.y = as->a;
    as->norm.d_y = as->d_a;
    as->conv.op = &conv_op;
    as->conv.settings = &as->settings;
    as->conv.x = &as->a;
    as->conv.d_x = &as->d_a;
    as->conv.param_count = call->param_count - params;
    as->conv.params = call->params + params;
    as->conv.d_params = call->d_params + params;
    as->conv.saved_count = as->conv.operand_count = 0;
}

/* ---- Reference ---- */

static enum status batchnorm_conv_run(const struct call *call)
{
    const struct op_code *norm = batchnorm_op.reference, *conv = conv_op.reference;
    bool backward = call->phase == PHASE_BACKWARD, first = call->phase == PHASE_FORWARD;
    size_t count = (size_t)shape_count(call->x[0].shape), each = (size_t)dtype_bytes(call->x[0].dtype);
    char *both = memory_new(2 * count, each);
    struct batchnorm_conv_calls as;
    batchnorm_conv_divide(call, both, both + count * each, &as);
    struct call normalise = as.norm;
    normalise.phase = first ? PHASE_FORWARD : PHASE_RECOMPUTE;
    as.conv.phase = backward ? PHASE_BACKWARD : PHASE_FORWARD;
    enum status status = (first ? norm->forward : norm->recompute)(&normalise);
    if (status == OK) status = (backward ? conv->backward : conv->forward)(&as.conv);
    if (status == OK && backward) status = norm->backward(&as.norm);
    free(both);
    return status;
}

static const struct op_code reference = {
    .forward = batchnorm_conv_run,
    .backward = batchnorm_conv_run,
    .update = batchnorm_update,
    .recompute = batchnorm_conv_run,
};

#define AT(member) offsetof(struct batchnorm_conv, member)
static const struct field fields[] = {
    BATCHNORM_FIELDS(AT(norm)),
    BATCHNORM_CLIP_FIELD(AT(norm), "Activation function applied before the convolution."),
    {.name = "filters", .type = FIELD_INT, .offset = AT(filters), .min = 1, .max = 1 << 20,
     .help = "Output channels."},
    {.name = "bias", .type = FIELD_BOOL, .offset = AT(bias), .initial = "yes",
     .help = "Learn a bias for each output channel."},
    {0},
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"filters=3 activation=relu", 1, {SHAPE(2, 5, 4, 6)}},
    {"filters=7 bias=no affine=no", 1, {SHAPE(3, 3, 3, 2)}},
    {"filters=21 activation=relu", 1, {SHAPE(2, 4, 10, 64)}},
    {"filters=32 activation=relu bias=no", 1, {SHAPE(1, 8, 17, 32)}},
    {"filters=1 activation=relu affine=no", 1, {SHAPE(4, 2, 3, 64)}},
    {0},
};

static const struct op_example large[] = {
    {"filters=21 activation=relu", 1, {SHAPE(3, 64, 61, 64)}},
    {0},
};

const struct op batchnorm_conv_op = {
    .name = "batchnorm_conv",
    .help = "Batch normalisation and a 1x1 convolution of its result, which is not stored.",
    .settings_size = sizeof(struct batchnorm_conv),
    .fields = fields,
    .precision = CLASS_LOW,
    .internal = true,
    .shape = batchnorm_conv_shape,
    .params = batchnorm_conv_params,
    .saved = batchnorm_conv_saved,
    .reads = batchnorm_conv_reads,
    .in_place = batchnorm_conv_in_place,
    .backward_over_x = true,
    .rounds_factors = true,
    .moments = {SAVED_MEAN, SAVED_VARIANCE},
    .reference = &reference,
    .cuda = ON_CUDA(batchnorm_conv_cuda),
    .supports_cuda = batchnorm_conv_cuda_supports,
    .examples = examples,
    .large = large,
};
