/* slice: `channels` channels of every pixel, from `first` on: the copy of channel_pad turned round.
 * token_slice: `count` tokens, which are pixels, from `first` on: that of pad. */
#include "kernels/shape/slice.h"

#include <stddef.h>

#include "kernels/shape/border.h"

static bool slice_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                        struct reason *reason)
{
    const struct slice *s = settings;
    if (s->first + s->channels > x[0].c)
        return because(reason, "first=%lld channels=%lld is more than the input's %lld channels",
                       (long long)s->first, (long long)s->channels, (long long)x[0].c);
    *y = shape_nhwc(x[0].n, x[0].h, x[0].w, s->channels);
    return true;
}

static bool token_slice_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                              struct reason *reason)
{
    const struct token_slice *s = settings;
    if (s->first + s->count > x[0].h * x[0].w)
        return because(reason, "first=%lld count=%lld is more than the input's %lld tokens",
                       (long long)s->first, (long long)s->count, (long long)(x[0].h * x[0].w));
    *y = shape_nhwc(x[0].n, s->count, 1, x[0].c);
    return true;
}

static struct border slice_border(const struct call *call)
{
    const struct slice *s = call->settings;
    return (struct border){.stride = 1, .front = s->first};
}

static struct border token_slice_border(const struct call *call)
{
    const struct token_slice *s = call->settings;
    return (struct border){.stride = 1, .top = s->first};
}

/* A tensor whose pixels lie one below another, as tokens do. */
static struct tensor column_of(struct tensor tensor)
{
    tensor.shape = shape_nhwc(tensor.shape.n, tensor.shape.h * tensor.shape.w, 1, tensor.shape.c);
    return tensor;
}

/* A padding op's call with our tensors exchanged: its backward is our forward. */
#define SLICE_CODE(name, on, border_of, seen)                                                             \
    static enum status name##_forward(const struct call *call)                                            \
    {                                                                                                     \
        struct call turned = *call;                                                                       \
        struct tensor y = seen(call->y);                                                                  \
        struct border border = border_of(call);                                                           \
        turned.d_x = &y;                                                                                  \
        turned.d_y = seen(call->x[0]);                                                                    \
        return border_backward##on(&turned, &border);                                                     \
    }                                                                                                     \
    static enum status name##_backward(const struct call *call)                                           \
    {                                                                                                     \
        struct call turned = *call;                                                                       \
        struct tensor d_y = seen(call->d_y);                                                              \
        struct border border = border_of(call);                                                           \
        turned.x = &d_y;                                                                                  \
        turned.y = seen(call->d_x[0]);                                                                    \
        return turned.y.data ? border_forward##on(&turned, &border) : OK;                                 \
    }                                                                                                     \
    static const struct op_code name = {.forward = name##_forward, .backward = name##_backward};
#define SLICE_CODES(on)                                                                                   \
    SLICE_CODE(slice##on, on, slice_border, )                                                             \
    SLICE_CODE(token_slice##on, on, token_slice_border, column_of)
SLICE_CODES()
#ifdef HAVE_CUDA
SLICE_CODES(_cuda)
#endif

static const struct field fields[] = {
    {.name = "first", .type = FIELD_INT, .offset = offsetof(struct slice, first), .initial = "0", .min = 0,
     .max = 1048576, .help = "The first channel, counted from 0."},
    {.name = "channels", .type = FIELD_INT, .offset = offsetof(struct slice, channels), .min = 1,
     .max = 1048576, .help = "Output channels."},
    {0},
};

static const struct op_example examples[] = {
    {"channels=10", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 20}}},
    {"first=24 channels=24", 1, {{.rank = 4, .n = 1, .h = 8, .w = 31, .c = 48}}},
    {"first=1 channels=1", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 3}}},
    {0},
};

const struct op slice_op = {
    .name = "slice",
    .help = "Consecutive channels of the input.",
    .settings_size = sizeof(struct slice),
    .fields = fields,
    .shape = slice_shape,
    .reference = &slice,
    .cuda = ON_CUDA(slice_cuda),
    .examples = examples,
};

static const struct field token_fields[] = {
    {.name = "first", .type = FIELD_INT, .offset = offsetof(struct token_slice, first), .initial = "0",
     .min = 0, .max = 1048576, .help = "The first token, counted from 0."},
    {.name = "count", .type = FIELD_INT, .offset = offsetof(struct token_slice, count), .initial = "1",
     .min = 1, .max = 1048576, .help = "Tokens."},
    {0},
};

static const struct op_example token_examples[] = {
    {"first=1", 1, {{.rank = 4, .n = 3, .h = 10, .w = 1, .c = 24}}},
    {"first=5 count=9", 1, {{.rank = 4, .n = 2, .h = 7, .w = 5, .c = 5}}},
    {"count=2", 1, {{.rank = 4, .n = 2, .h = 2, .w = 1, .c = 776}}},
    {0},
};

const struct op token_slice_op = {
    .name = "token_slice",
    .help = "Consecutive tokens of the input.",
    .settings_size = sizeof(struct token_slice),
    .fields = token_fields,
    .shape = token_slice_shape,
    .reference = &token_slice,
    .cuda = ON_CUDA(token_slice_cuda),
    .examples = token_examples,
};
