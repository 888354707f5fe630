/* concat_conv: concat of two inputs, as U-Nets' decoders have it, and the conv that reads it, as one op: the
 * concatenation and its gradient are not stored. */
#include <stdlib.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"
#include "kernels/conv/conv.h"

extern const struct op concat_op;

/* The calls that it takes the place of. */
struct concat_conv_calls {
    struct call concat, conv;
    struct tensor x, d_x;                /* of conv */
};

static struct shape concat_conv_joined(struct shape a, struct shape b)
{
    a.c += b.c;
    return a;
}

static bool concat_conv_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                              struct reason *reason)
{
    struct shape joined;
    if (x_count != 2) return because(reason, "it has %d inputs, not 2", x_count);
    return concat_op.shape(NULL, x_count, x, &joined, reason) &&
           conv_op.shape(settings, 1, &joined, y, reason);
}

static int concat_conv_params(const void *settings, int x_count, const struct shape *x,
                              struct op_param out[OP_MAX_PARAMS])
{
    struct shape joined = concat_conv_joined(x[0], x[1]);
    return conv_op.params(settings, 1, &joined, out);
}

static unsigned concat_conv_reads(const void *settings, enum phase phase)
{
    return conv_op.reads(settings, phase);
}

/* conv_narrow.cu has kernels for 3x3 in 16 bits, two inputs of 64 channels, 64 filters, lines that mostly
 * fill strips of 128 pixels, and 1e8 products. */
bool concat_conv_cuda_supports(const struct call *call)
{
    const struct conv_settings *s = call->settings;
    const struct shape *x = &call->x[0].shape;
    struct conv_geometry g = conv_geometry(s, 2 * x->c);
    bool narrow = x->c == 64 && call->x[1].shape.c == 64 && s->filters == 64 && conv_keeps_size(&g, 3);
    bool large = (double)(x->n * x->h * x->w * 9 * 128 * 64) >= CONV_SMALL;
    bool forward = call->phase == PHASE_FORWARD, bias = call->param_count > 1;
    bool finished = bias || call_epilogue(call, EPILOGUE_RELU);
    return narrow && conv_fills_strips(x->w) && large && (forward || !bias) &&
           dtype_bytes(call->x[0].dtype) == 2 && !(finished && call_epilogue(call, EPILOGUE_MOMENTS)) &&
           call_has_only(call, forward ? AS_BIT(OPERAND_Y_MOMENTS) : 0,
                         forward ? AS_BIT(EPILOGUE_MOMENTS) | AS_BIT(EPILOGUE_RELU) : 0);
}

/* ---- Reference ---- */

/* Divides a call; `joined` is the memory of the concatenation, or in backward_data of its gradient. */
static void concat_conv_divide(const struct call *call, void *joined, struct concat_conv_calls *as)
{
    as->x = call->x[0];
    as->x.shape = concat_conv_joined(call->x[0].shape, call->x[1].shape);
    as->x.data = joined;
    as->d_x = as->x;
    as->conv = as->concat = *call;
    as->conv.op = &conv_op;
    as->conv.x_count = 1;
    as->conv.x = &as->x;
    as->conv.d_x = &as->d_x;
    as->concat.op = &concat_op;
    as->concat.settings = NULL;
    as->concat.param_count = 0;
    as->concat.y = as->concat.d_y = as->x;
}

static enum status concat_conv_run(const struct call *call)
{
    struct concat_conv_calls as;
    const struct op_code *conv = conv_op.reference, *concat = concat_op.reference;
    struct shape shape = concat_conv_joined(call->x[0].shape, call->x[1].shape);
    void *joined = memory_new((size_t)shape_count(shape), dtype_bytes(call->x[0].dtype));
    concat_conv_divide(call, joined, &as);
    bool data = call->phase == PHASE_BACKWARD_DATA, forward = call->phase == PHASE_FORWARD;
    enum status status = data ? conv->backward_data(&as.conv) : concat->forward(&as.concat);
    if (status == OK)
        status = data      ? concat->backward(&as.concat)
                 : forward ? conv->forward(&as.conv)
                           : conv->backward_params(&as.conv);
    free(joined);
    return status;
}

static const struct op_code reference = {
    .forward = concat_conv_run,
    .backward_data = concat_conv_run,
    .backward_params = concat_conv_run,
};

static const struct field fields[] = {CONV_FIELDS, {0}};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"filters=6 kernel=3 pad=1", 2, {SHAPE(2, 5, 4, 3), SHAPE(2, 5, 4, 2)}},
    {"filters=4 kernel=2 stride=2 bias=no", 2, {SHAPE(1, 4, 6, 1), SHAPE(1, 4, 6, 6)}},
    {0},
};

/* Shapes of at least 1e8 products (conv_cuda.cuh), with strips that are not full. */
static const struct op_example large[] = {
    {"filters=64 kernel=3 pad=1 bias=no", 2, {SHAPE(1, 11, 128, 64), SHAPE(1, 11, 128, 64)}},
    {"filters=64 kernel=3 pad=1 bias=no", 2, {SHAPE(2, 7, 100, 64), SHAPE(2, 7, 100, 64)}},
    {0},
};

const struct op concat_conv_op = {
    .name = "concat_conv",
    .help = "Convolution of the concatenation of two inputs, which is not stored.",
    .settings_size = sizeof(struct conv_settings),
    .fields = fields,
    .min_inputs = 2,
    .max_inputs = 2,
    .precision = CLASS_LOW,
    .internal = true,
    .shape = concat_conv_shape,
    .params = concat_conv_params,
    .reads = concat_conv_reads,
    .reference = &reference,
    .cuda = ON_CUDA(concat_conv_cuda),
    .supports_cuda = concat_conv_cuda_supports,
    .examples = examples,
    .large = large,
};
