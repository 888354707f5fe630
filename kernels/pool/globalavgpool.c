/* globalavgpool: the mean over h and w. */
#include "kernels/pool/pool.h"

static bool globalavgpool_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                                struct reason *reason)
{
    *y = shape_nhwc(x[0].n, 1, 1, x[0].c);
    return true;
}

POOL_CODES(average, pool_global)

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
    .flat_gradient = true,
    .reference = &pool_reference,
    .cpu = &pool_cpu,
    .cuda = ON_CUDA(pool_cuda),
    .examples = examples,
};
