/* channel_pad: every stride-th pixel, with channels of zeros before and after: the shortcut without
 * parameters, option A of He et al. 2015, that ResNets for CIFAR have. */
#include "kernels/shape/border.h"

#include <stddef.h>

struct channel_pad {
    int64_t stride, channels;
};

static bool channel_pad_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                              struct reason *reason)
{
    const struct channel_pad *s = settings;
    if (s->channels < x[0].c || (s->channels - x[0].c) % 2)
        return because(reason, "channels=%lld must be the input's %lld and an even number more",
                       (long long)s->channels, (long long)x[0].c);
    *y = shape_nhwc(x[0].n, (x[0].h - 1) / s->stride + 1, (x[0].w - 1) / s->stride + 1, s->channels);
    return true;
}

struct border channel_pad_border(const struct call *call)
{
    const struct channel_pad *s = call->settings;
    return (struct border){.stride = s->stride, .front = (s->channels - call->x[0].shape.c) / 2};
}

static const struct field fields[] = {
    {.name = "stride", .type = FIELD_INT, .offset = offsetof(struct channel_pad, stride), .initial = "2",
     .min = 1, .max = 4096,
     .help = "Keep every Nth pixel."},
    {.name = "channels", .type = FIELD_INT, .offset = offsetof(struct channel_pad, channels),
     .min = 1, .max = 1048576,
     .help = "Output channels."},
    {0},
};

BORDER_CODES(channel_pad_border)

static const struct op_example examples[] = {
    {"channels=10", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 4}}},
    {"channels=48", 1, {{.rank = 4, .n = 1, .h = 8, .w = 31, .c = 24}}},
    {"channels=3 stride=1", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op channel_pad_op = {
    .name = "channel_pad",
    .help = "Strided shortcut padded with zero channels.",
    .settings_size = sizeof(struct channel_pad),
    .fields = fields,
    .shape = channel_pad_shape,
    .reference = &border_reference,
    .cuda = ON_CUDA(border_cuda),
    .examples = examples,
};
