/* pad: rows and columns of zeros around the image. */
#include "kernels/shape/border.h"

#include <stddef.h>

/* -1: as the more general one says. */
struct pad {
    int64_t pad, pad_h, pad_w;
    int64_t top, bottom, left, right;
    int64_t multiple;
};

static struct pad pad_resolved(const struct pad *s)
{
    struct pad p = *s;
    if (p.pad_h < 0) p.pad_h = p.pad;
    if (p.pad_w < 0) p.pad_w = p.pad;
    if (p.top < 0) p.top = p.pad_h;
    if (p.bottom < 0) p.bottom = p.pad_h;
    if (p.left < 0) p.left = p.pad_w;
    if (p.right < 0) p.right = p.pad_w;
    return p;
}

static bool pad_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                      struct reason *reason)
{
    struct pad p = pad_resolved(settings);
    int64_t h = p.top + x[0].h + p.bottom, w = p.left + x[0].w + p.right;
    h += (p.multiple - h % p.multiple) % p.multiple;
    w += (p.multiple - w % p.multiple) % p.multiple;
    *y = shape_nhwc(x[0].n, h, w, x[0].c);
    return true;
}

struct border pad_border(const struct call *call)
{
    struct pad p = pad_resolved(call->settings);
    return (struct border){.stride = 1, .top = p.top, .left = p.left};
}

static const struct field fields[] = {
    {.name = "pad", .type = FIELD_INT, .offset = offsetof(struct pad, pad), .initial = "0",
     .min = 0, .max = 4096,
     .help = "Zeros on every side."},
    {.name = "pad_h", .type = FIELD_INT, .offset = offsetof(struct pad, pad_h), .initial = "pad",
     .min = 0, .max = 4096, .word = "pad", .word_value = -1,
     .help = "Zeros above and below."},
    {.name = "pad_w", .type = FIELD_INT, .offset = offsetof(struct pad, pad_w), .initial = "pad",
     .min = 0, .max = 4096, .word = "pad", .word_value = -1,
     .help = "Zeros left and right."},
    {.name = "top", .type = FIELD_INT, .offset = offsetof(struct pad, top), .initial = "pad_h",
     .min = 0, .max = 4096, .word = "pad_h", .word_value = -1,
     .help = "Zeros above."},
    {.name = "bottom", .type = FIELD_INT, .offset = offsetof(struct pad, bottom), .initial = "pad_h",
     .min = 0, .max = 4096, .word = "pad_h", .word_value = -1,
     .help = "Zeros below."},
    {.name = "left", .type = FIELD_INT, .offset = offsetof(struct pad, left), .initial = "pad_w",
     .min = 0, .max = 4096, .word = "pad_w", .word_value = -1,
     .help = "Zeros on the left."},
    {.name = "right", .type = FIELD_INT, .offset = offsetof(struct pad, right), .initial = "pad_w",
     .min = 0, .max = 4096, .word = "pad_w", .word_value = -1,
     .help = "Zeros on the right."},
    {.name = "multiple", .type = FIELD_INT, .offset = offsetof(struct pad, multiple), .initial = "1",
     .min = 1, .max = 4096,
     .help = "Further zeros below and on the right, until height and width are multiples of this."},
    {0},
};

BORDER_CODES(pad_border)

static const struct op_example examples[] = {
    {"pad=1", 1, {{.rank = 4, .n = 3, .h = 7, .w = 5, .c = 3}}},
    {"pad_h=2 pad_w=0", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"left=1 multiple=4", 1, {{.rank = 4, .n = 2, .h = 5, .w = 7, .c = 5}}},
    {"multiple=7", 1, {{.rank = 4, .n = 2, .h = 14, .w = 7, .c = 8}}},
    {"pad=1 top=0 right=3", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op pad_op = {
    .name = "pad",
    .help = "Zero padding.",
    .settings_size = sizeof(struct pad),
    .fields = fields,
    .shape = pad_shape,
    .reference = &border_reference,
    .cuda = ON_CUDA(border_cuda),
    .examples = examples,
};
