/* slice: `channels` channels of every pixel, from `first` on: the copy of channel_pad turned round. */
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

static struct border slice_border(const struct call *call)
{
    const struct slice *s = call->settings;
    return (struct border){.stride = 1, .front = s->first};
}

/* A padding op's call with our tensors exchanged: its backward is our forward. */
#define SLICE_CODE(name, on)                                                                              \
    static enum status name##_forward(const struct call *call)                                            \
    {                                                                                                     \
        struct call turned = *call;                                                                       \
        struct tensor y = call->y;                                                                        \
        struct border border = slice_border(call);                                                        \
        turned.d_x = &y;                                                                                  \
        turned.d_y = call->x[0];                                                                          \
        return border_backward##on(&turned, &border);                                                     \
    }                                                                                                     \
    static enum status name##_backward(const struct call *call)                                           \
    {                                                                                                     \
        struct call turned = *call;                                                                       \
        struct tensor d_y = call->d_y;                                                                    \
        struct border border = slice_border(call);                                                        \
        turned.x = &d_y;                                                                                  \
        turned.y = call->d_x[0];                                                                          \
        return turned.y.data ? border_forward##on(&turned, &border) : OK;                                 \
    }                                                                                                     \
    static const struct op_code name = {.forward = name##_forward, .backward = name##_backward};
SLICE_CODE(reference, )
SLICE_CODE(cpu, _cpu)
#ifdef HAVE_CUDA
SLICE_CODE(cuda, _cuda)
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
    .reference = &reference,
    .cpu = &cpu,
    .cuda = ON_CUDA(cuda),
    .examples = examples,
};
