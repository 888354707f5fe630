/* maxpool: the maximum of every window, as torch.nn.MaxPool2d: the first of equals, and a NaN beats all.
 * The border counts as minus infinity. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/pool.h"

struct pool_plane maxpool_plane(const struct call *call)
{
    const struct pool *s = call->settings;
    struct shape x = call->x[0].shape;
    return (struct pool_plane){pool_axis_sliding(s, x.h), pool_axis_sliding(s, x.w), false};
}

static bool maxpool_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                          struct reason *reason)
{
    return pool_shape(settings, x[0], y, reason);
}

/* One byte an output: kernels are at most 16x16. */
static int maxpool_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                         struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    struct shape y;
    struct reason reason;
    if (!maxpool_shape(settings, 1, &x[0].shape, &y, &reason)) return 0;
    out[0] = (struct op_saved){"number", U8, y};
    return 1;
}

static unsigned maxpool_reads(const void *settings, enum phase phase)
{
    return READS_SAVED;
}

static const struct field fields[] = {
    {.name = "kernel", .type = FIELD_INT, .offset = offsetof(struct pool, kernel),
     .min = 1, .max = 16, .help = "Height and width of the window."},
    {.name = "stride", .type = FIELD_INT, .offset = offsetof(struct pool, stride), .initial = "kernel",
     .min = 0, .max = 4096, .word = "kernel", .word_value = 0,
     .help = "Stride of the window; 0 or kernel: the size of the window."},
    {.name = "pad", .type = FIELD_INT, .offset = offsetof(struct pool, pad), .initial = "0",
     .min = 0, .max = 2048, .help = "Padding on every side, at most half of the kernel."},
    {.name = "dilation", .type = FIELD_INT, .offset = offsetof(struct pool, dilation), .initial = "1",
     .min = 1, .max = 4096, .help = "Spacing of the window elements."},
    {.name = "ceil_mode", .type = FIELD_BOOL, .offset = offsetof(struct pool, ceil_mode), .initial = "no",
     .help = "Round the output size up, so that partial windows count."},
    {0},
};

POOL_CODES(maxpool, maximum);

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"kernel=2", 1, {SHAPE(3, 7, 7, 5)}},
    {"kernel=3 stride=2 pad=1", 1, {SHAPE(1, 31, 7, 24)}},
    {"kernel=3 stride=2 ceil_mode=yes", 1, {SHAPE(1, 8, 6, 3)}},
    {"kernel=3 stride=1 pad=1 dilation=2", 1, {SHAPE(3, 7, 7, 1)}},
    {"kernel=3 stride=5", 1, {SHAPE(1, 7, 9, 1)}},
    {"kernel=2 stride=1", 1, {SHAPE(1, 3, 3, 1030)}},
    {0},
};

const struct op maxpool_op = {
    .name = "maxpool",
    .help = "Max pooling.",
    .settings_size = sizeof(struct pool),
    .fields = fields,
    .shape = maxpool_shape,
    .saved = maxpool_saved,
    .reads = maxpool_reads,
    .reference = &maxpool_reference,
    .cpu = &maxpool_cpu,
    .cuda = ON_CUDA(maxpool_cuda),
    .examples = examples,
};
