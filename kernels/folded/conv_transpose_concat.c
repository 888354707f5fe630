/* conv_transpose_concat: a transposed convolution of x[0] and the concatenation of its result with x[1], as
 * U-Nets have them, as one op: the convolution's result is written, and its gradient read, where it lies
 * among the channels of y, and is not stored by itself. Without x[1] it is the convolution, by the same
 * kernels. */
#include "kernels/folded/conv_transpose_concat.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"

static bool conv_transpose_concat_shape(const void *settings, int x_count, const struct shape *x,
                                        struct shape *y, struct reason *reason)
{
    if (x_count == 1) return conv_transpose_op.shape(settings, 1, x, y, reason);
    if (x_count != 2) return because(reason, "it has %d inputs, not 1 or 2", x_count);
    struct shape both[2] = {x[1]};
    return conv_transpose_op.shape(settings, 1, x, &both[1], reason) &&
           concat_op.shape(NULL, 2, both, y, reason);
}

static int conv_transpose_concat_params(const void *settings, int x_count, const struct shape *x,
                                        struct op_param out[OP_MAX_PARAMS])
{
    return conv_transpose_op.params(settings, 1, x, out);
}

static unsigned conv_transpose_concat_reads(const void *settings, enum phase phase)
{
    return phase == PHASE_BACKWARD_DATA ? READS_PARAMS : READS_FIRST_X;
}

void conv_transpose_concat_divide(const struct call *call, void *up, struct conv_transpose_concat_calls *as)
{
    const struct conv_transpose_concat *s = call->settings;
    const struct tensor *whole = call->phase == PHASE_FORWARD ? &call->y : &call->d_y;
    struct tensor part = {.data = up, .dtype = whole->dtype, .shape = whole->shape};
    bool alone = call->x_count == 1;
    int at = s->first || alone ? 0 : 1;
    part.shape.c = s->up.conv.filters;
    as->up = as->concat = *call;
    as->up.op = &conv_transpose_op;
    as->up.x_count = 1;
    as->up.y = as->up.d_y = part;
    as->concat.op = &concat_op;
    as->concat.settings = NULL;
    as->concat.param_count = 0;
    as->concat.x = as->x;
    as->concat.d_x = as->d_x;
    as->x[at] = as->d_x[at] = part;
    if (alone) return;
    as->x[1 - at] = call->x[1];
    as->d_x[1 - at] = call->phase == PHASE_BACKWARD_DATA ? call->d_x[1] : (struct tensor){0};
}

/* Kernels know whole tiles of 64 channels, on Hopper. */
bool conv_transpose_concat_cuda_supports(const struct call *call)
{
    const struct conv_transpose_concat *s = call->settings;
    const struct tensor *x = &call->x[0];
    struct conv_geometry g = conv_geometry(&s->up.conv, x->shape.c);
    int64_t taps = g.kernel[0] * g.kernel[1], columns = taps * s->up.conv.filters;
    bool patches = g.groups == 1 && taps > 1;
    for (int i = 1; i < call->x_count; i++) patches = patches && call->x[i].shape.c % 8 == 0;
    for (int i = 0; i < 2; i++)
        patches = patches && g.stride[i] == g.kernel[i] && g.pad[i] == 0 && g.dilation[i] == 1;
    bool tiles = s->up.conv.filters % 64 == 0 && x->shape.c % 128 == 0 && columns % 256 == 0;
    return patches && tiles && columns <= 1024 && x->shape.c <= 1024 && call_is_plain(call) &&
           !call_leaves_bias_out(call) && dtype_bytes(x->dtype) == 2;
}

/* ---- Reference ---- */

static enum status conv_transpose_concat_forward(const struct call *call)
{
    struct conv_transpose_concat_calls as;
    void *up = memory_new((size_t)shape_count(call->y.shape), dtype_bytes(call->y.dtype));
    conv_transpose_concat_divide(call, up, &as);
    enum status status = conv_transpose_op.reference->forward(&as.up);
    if (status == OK) status = concat_op.reference->forward(&as.concat);
    free(up);
    return status;
}

static enum status conv_transpose_concat_backward(const struct call *call)
{
    struct conv_transpose_concat_calls as;
    void *up = memory_new((size_t)shape_count(call->d_y.shape), dtype_bytes(call->d_y.dtype));
    bool data = call->phase == PHASE_BACKWARD_DATA;
    conv_transpose_concat_divide(call, up, &as);
    const struct op_code *code = conv_transpose_op.reference;
    enum status status = concat_op.reference->backward(&as.concat);
    if (status == OK) status = data ? code->backward_data(&as.up) : code->backward_params(&as.up);
    free(up);
    return status;
}

static const struct op_code reference = {
    .forward = conv_transpose_concat_forward,
    .backward_data = conv_transpose_concat_backward,
    .backward_params = conv_transpose_concat_backward,
};

static const struct field fields[] = {
    CONV_FIELDS,
    {.name = "first", .type = FIELD_BOOL, .offset = offsetof(struct conv_transpose_concat, first),
     .initial = "no", .help = "Whether its channels come before those of the second input."},
    {0},
};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"filters=5 kernel=2 stride=2", 2, {SHAPE(1, 3, 4, 7), SHAPE(1, 6, 8, 3)}},
    {"filters=6 kernel=2 stride=2", 1, {SHAPE(1, 3, 5, 4)}},
    {"filters=4 kernel=2 stride=2 bias=no first=yes", 2, {SHAPE(2, 4, 3, 6), SHAPE(2, 8, 6, 8)}},
    {0},
};

static const struct op_example large[] = {
    {"filters=64 kernel=2 stride=2", 2, {SHAPE(3, 5, 9, 128), SHAPE(3, 10, 18, 64)}},
    {"filters=64 kernel=2 stride=2", 1, {SHAPE(2, 6, 12, 128)}},
    {"filters=128 kernel=2 stride=2 bias=no first=yes", 2, {SHAPE(1, 12, 16, 256), SHAPE(1, 24, 32, 8)}},
    {"filters=128 kernel_h=2 kernel_w=1 stride_h=2", 2, {SHAPE(2, 12, 28, 384), SHAPE(2, 24, 28, 128)}},
    {0},
};

const struct op conv_transpose_concat_op = {
    .name = "conv_transpose_concat",
    .help = "Transposed convolution and the concatenation of its result, which is not stored, with another "
            "input.",
    .settings_size = sizeof(struct conv_transpose_concat),
    .fields = fields,
    .min_inputs = 1,
    .max_inputs = 2,
    .precision = CLASS_LOW,
    .internal = true,
    .shape = conv_transpose_concat_shape,
    .params = conv_transpose_concat_params,
    .reads = conv_transpose_concat_reads,
    .products_by_input = true,
    .rounds_factors = true,
    .reference = &reference,
    .cuda = ON_CUDA(conv_transpose_concat_cuda),
    .supports_cuda = conv_transpose_concat_cuda_supports,
    .examples = examples,
    .large = large,
};
