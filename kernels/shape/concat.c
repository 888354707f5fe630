/* concat: the channels of all inputs, one after another, at every pixel. */
#include "kernels/codes_cuda.h"
#include "kernels/op.h"

#include <string.h>

static bool concat_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                         struct reason *reason)
{
    char first[SHAPE_TEXT], other[SHAPE_TEXT];
    struct shape sum = x[0];
    for (int i = 1; i < x_count; i++) {
        if (x[i].n != x[0].n || x[i].h != x[0].h || x[i].w != x[0].w)
            return because(reason, "input %d is %s, which is not as high and wide as the first, %s", i + 1,
                           shape_text(x[i], other), shape_text(x[0], first));
        sum.c += x[i].c;
    }
    *y = sum;
    return true;
}

static int64_t concat_pixels(struct shape shape) { return shape.n * shape.h * shape.w; }

/* One input's channels of all pixels, to or from channel `first` of the whole. */
struct stripe {
    char *whole, *part;
    size_t first, bytes, pitch;   /* bytes: of first, of the part's pixel, of the whole's */
};

static struct stripe stripe_open(const struct tensor *whole, const struct tensor *part, int64_t channels,
                                 int64_t first)
{
    size_t size = dtype_bytes(whole->dtype);
    return (struct stripe){
        .whole = whole->data,
        .part = part->data,
        .first = (size_t)first * size,
        .bytes = (size_t)channels * size,
        .pitch = (size_t)whole->shape.c * size,
    };
}

static enum status concat_forward(const struct call *call)
{
    int64_t first = 0, count = concat_pixels(call->y.shape);
    for (int i = 0; i < call->x_count; i++) {
        struct stripe s = stripe_open(&call->y, &call->x[i], call->x[i].shape.c, first);
#pragma omp parallel for schedule(static) if (count > 256)
        for (int64_t p = 0; p < count; p++)
            memcpy(s.whole + (size_t)p * s.pitch + s.first, s.part + (size_t)p * s.bytes, s.bytes);
        first += call->x[i].shape.c;
    }
    return OK;
}

static enum status concat_backward(const struct call *call)
{
    int64_t first = 0, count = concat_pixels(call->d_y.shape);
    for (int i = 0; i < call->x_count; first += call->x[i].shape.c, i++) {
        if (!call->d_x[i].data) continue;
        struct stripe s = stripe_open(&call->d_y, &call->d_x[i], call->x[i].shape.c, first);
#pragma omp parallel for schedule(static) if (count > 256)
        for (int64_t p = 0; p < count; p++)
            memcpy(s.part + (size_t)p * s.bytes, s.whole + (size_t)p * s.pitch + s.first, s.bytes);
    }
    return OK;
}

bool concat_cuda_supports(const struct call *call)
{
    return call_is_plain(call) ||
           (call->phase == PHASE_FORWARD &&
            call_has_only(call, AS_BIT(OPERAND_Y_MOMENTS), AS_BIT(EPILOGUE_MOMENTS)));
}

static const struct op_code reference = {.forward = concat_forward, .backward = concat_backward};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 2, {SHAPE(3, 7, 7, 5), SHAPE(3, 7, 7, 24)}},
    {"", 3, {SHAPE(1, 31, 7, 1), SHAPE(1, 31, 7, 3), SHAPE(1, 31, 7, 24)}},
    {"", 1, {SHAPE(1, 1, 1, 3)}},
    {0},
};

const struct op concat_op = {
    .name = "concat",
    .help = "Concatenation along the channels.",
    .max_inputs = OP_MAX_INPUTS,
    .shape = concat_shape,
    .reference = &reference,
    .cuda = ON_CUDA(concat_cuda),
    .supports_cuda = concat_cuda_supports,
    .examples = examples,
};
