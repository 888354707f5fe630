/* maxpool: the maximum of every window, as torch.nn.MaxPool2d: the first of equals, and a NaN beats all.
 * The border counts as minus infinity. */
#include <stddef.h>

#include "kernels/pool/pool.h"

static const struct field fields[] = {
    POOL_FIELDS(16),
    {.name = "dilation", .type = FIELD_INT, .offset = offsetof(struct pool, dilation), .initial = "1",
     .min = 1, .max = 4096, .help = "Spacing of the window elements."},
    POOL_CEIL_MODE,
    {0},
};

POOL_CODES(maximum, pool_sliding)

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
    .shape = pool_sliding_shape,
    .saved = pool_maximum_saved,
    .reads = pool_reads_saved,
    .reference = &pool_reference,
    .cpu = &pool_cpu,
    .cuda = ON_CUDA(pool_cuda),
    .examples = examples,
};
