/* globalavgpool: the mean over h and w. */
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/pool.h"

struct pool_plane globalavgpool_plane(const struct call *call)
{
    struct shape x = call->x[0].shape;
    return (struct pool_plane){pool_axis_adaptive(x.h, 1), pool_axis_adaptive(x.w, 1), false};
}

static bool globalavgpool_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                struct reason *reason)
{
    *y = shape_nhwc(x[0].n, 1, 1, x[0].c);
    return true;
}

POOL_CODES(globalavgpool, average);

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(3, 7, 7, 24)}},
    {"", 1, {SHAPE(1, 31, 1, 5)}},
    {"", 1, {SHAPE(3, 1, 1, 1)}},
    {0},
};

const struct op globalavgpool_op = {
    .name = "globalavgpool",
    .help = "Global average pooling.",
    .shape = globalavgpool_shape,
    .reference = &globalavgpool_reference,
    .cpu = &globalavgpool_cpu,
    .cuda = ON_CUDA(globalavgpool_cuda),
    .examples = examples,
};
