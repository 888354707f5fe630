/* avgpool: the mean of every window, as torch.nn.AvgPool2d. */
#include <stddef.h>

#include "kernels/pool/pool.h"

static const struct field fields[] = {
    POOL_FIELDS(4096),
    POOL_CEIL_MODE,
    {.name = "count_include_pad", .type = FIELD_BOOL, .offset = offsetof(struct pool, count_include_pad),
     .initial = "yes", .help = "Include the padding in the average."},
    {0},
};

POOL_CODES(average, pool_sliding)

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
    .shape = pool_sliding_shape,
    .reference = &pool_reference,
    .cpu = &pool_cpu,
    .cuda = ON_CUDA(pool_cuda),
    .examples = examples,
};
