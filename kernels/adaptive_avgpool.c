/* adaptive_avgpool: the mean of size x size bins, bin i from floor(i * in / size) to
 * ceil((i + 1) * in / size), as torch.nn.AdaptiveAvgPool2d. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/pool.h"

struct adaptive {
    int64_t size;
};

struct pool_plane adaptive_avgpool_plane(const struct call *call)
{
    const struct adaptive *s = call->settings;
    struct shape x = call->x[0].shape;
    return (struct pool_plane){pool_axis_adaptive(x.h, s->size), pool_axis_adaptive(x.w, s->size), false};
}

static bool adaptive_avgpool_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                   struct reason *reason)
{
    const struct adaptive *s = settings;
    *y = shape_nhwc(x[0].n, s->size, s->size, x[0].c);
    return true;
}

static const struct field fields[] = {
    {.name = "size", .type = FIELD_INT, .offset = offsetof(struct adaptive, size),
     .min = 1, .max = 4096, .help = "Height and width of the output."},
    {0},
};

POOL_CODES(adaptive_avgpool, average);

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"size=7", 1, {SHAPE(1, 7, 7, 5)}},
    {"size=3", 1, {SHAPE(3, 7, 31, 24)}},
    {"size=7", 1, {SHAPE(1, 3, 5, 3)}},
    {"size=1", 1, {SHAPE(3, 7, 5, 1)}},
    {0},
};

const struct op adaptive_avgpool_op = {
    .name = "adaptive_avgpool",
    .help = "Adaptive average pooling to a given output size.",
    .settings_size = sizeof(struct adaptive),
    .fields = fields,
    .shape = adaptive_avgpool_shape,
    .reference = &adaptive_avgpool_reference,
    .cpu = &adaptive_avgpool_cpu,
    .cuda = ON_CUDA(adaptive_avgpool_cuda),
    .examples = examples,
};
