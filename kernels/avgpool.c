/* avgpool: the mean of every window, as torch.nn.AvgPool2d. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/pool.h"

struct pool_plane avgpool_plane(const struct call *call)
{
    const struct pool *s = call->settings;
    struct shape x = call->x[0].shape;
    return (struct pool_plane){pool_axis_sliding(s, x.h), pool_axis_sliding(s, x.w), s->count_include_pad};
}

static bool avgpool_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                          struct reason *reason)
{
    return pool_shape(settings, x[0], y, reason);
}

static const struct field fields[] = {
    {.name = "kernel", .type = FIELD_INT, .offset = offsetof(struct pool, kernel),
     .min = 1, .max = 4096, .help = "Height and width of the window."},
    {.name = "stride", .type = FIELD_INT, .offset = offsetof(struct pool, stride), .initial = "kernel",
     .min = 0, .max = 4096, .word = "kernel", .word_value = 0,
     .help = "Stride of the window; 0 or kernel: the size of the window."},
    {.name = "pad", .type = FIELD_INT, .offset = offsetof(struct pool, pad), .initial = "0",
     .min = 0, .max = 2048, .help = "Padding on every side, at most half of the kernel."},
    {.name = "ceil_mode", .type = FIELD_BOOL, .offset = offsetof(struct pool, ceil_mode), .initial = "no",
     .help = "Round the output size up, so that partial windows count."},
    {.name = "count_include_pad", .type = FIELD_BOOL, .offset = offsetof(struct pool, count_include_pad),
     .initial = "yes", .help = "Include the padding in the average."},
    {0},
};

POOL_CODES(avgpool, average);

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"kernel=2", 1, {SHAPE(3, 7, 7, 5)}},
    {"kernel=3 stride=2 pad=1", 1, {SHAPE(1, 31, 7, 24)}},
    {"kernel=3 stride=2 pad=1 ceil_mode=yes", 1, {SHAPE(1, 8, 6, 3)}},
    {"kernel=3 stride=2 pad=1 ceil_mode=yes count_include_pad=no", 1, {SHAPE(3, 8, 6, 1)}},
    {"kernel=7", 1, {SHAPE(3, 7, 7, 5)}},
    {"kernel=2 stride=1", 1, {SHAPE(1, 3, 3, 1030)}},
    {0},
};

const struct op avgpool_op = {
    .name = "avgpool",
    .help = "Average pooling.",
    .settings_size = sizeof(struct pool),
    .fields = fields,
    .shape = avgpool_shape,
    .reference = &avgpool_reference,
    .cpu = &avgpool_cpu,
    .cuda = ON_CUDA(avgpool_cuda),
    .examples = examples,
};
