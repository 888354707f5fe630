/* adaptive_maxpool: the maximum of size x size bins, bin i from floor(i * in / size) to
 * ceil((i + 1) * in / size), as torch.nn.AdaptiveMaxPool2d. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/pool.h"

struct adaptive {
    int64_t size;
};

struct pool_plane adaptive_maxpool_plane(const struct call *call)
{
    const struct adaptive *s = call->settings;
    struct shape x = call->x[0].shape;
    return (struct pool_plane){pool_axis_adaptive(x.h, s->size), pool_axis_adaptive(x.w, s->size), false};
}

static bool adaptive_maxpool_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                   struct reason *reason)
{
    const struct adaptive *s = settings;
    *y = shape_nhwc(x[0].n, s->size, s->size, x[0].c);
    return true;
}

static int adaptive_maxpool_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                                  struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    struct shape y;
    struct reason reason;
    if (!adaptive_maxpool_shape(settings, 1, &x[0].shape, &y, &reason)) return 0;
    out[0] = (struct op_saved){"number", I32, y};
    return 1;
}

static unsigned adaptive_maxpool_reads(const void *settings, enum phase phase)
{
    return READS_SAVED;
}

static const struct field fields[] = {
    {.name = "size", .type = FIELD_INT, .offset = offsetof(struct adaptive, size),
     .min = 1, .max = 4096, .help = "Height and width of the output."},
    {0},
};

POOL_CODES(adaptive_maxpool, maximum);

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"size=7", 1, {SHAPE(1, 7, 7, 5)}},
    {"size=3", 1, {SHAPE(3, 7, 31, 24)}},
    {"size=7", 1, {SHAPE(1, 3, 5, 3)}},
    {"size=1", 1, {SHAPE(3, 7, 5, 1)}},
    {0},
};

const struct op adaptive_maxpool_op = {
    .name = "adaptive_maxpool",
    .help = "Adaptive max pooling to a given output size.",
    .settings_size = sizeof(struct adaptive),
    .fields = fields,
    .shape = adaptive_maxpool_shape,
    .saved = adaptive_maxpool_saved,
    .reads = adaptive_maxpool_reads,
    .reference = &adaptive_maxpool_reference,
    .cpu = &adaptive_maxpool_cpu,
    .cuda = ON_CUDA(adaptive_maxpool_cuda),
    .examples = examples,
};
