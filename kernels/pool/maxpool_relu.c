/* maxpool_relu: max pooling and the relu behind it in one, which fusion makes: y = max(0, maximum of the
 * window). Backward asks nothing but where maxima lie, which is nowhere for those that are not positive. */
#include <stddef.h>

#include "kernels/pool/pool.h"

static const struct field fields[] = {
    POOL_FIELDS(POOL_RELU_KERNEL),
    {.name = "dilation", .type = FIELD_INT, .offset = offsetof(struct pool, dilation), .initial = "1",
     .min = 1, .max = 4096, .help = "Spacing of the window elements."},
    POOL_CEIL_MODE,
    {0},
};

POOL_CODES(maximum, pool_relu, .supports = call_sums_gradient, .workspace = pool_maximum_workspace_cuda)

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"kernel=2", 1, {SHAPE(3, 8, 8, 24)}},
    {"kernel=2", 1, {SHAPE(2, 7, 7, 5)}},
    {"kernel=3 stride=2 pad=1", 1, {SHAPE(2, 31, 7, 24)}},
    {"kernel=3 stride=1 pad=1 dilation=2", 1, {SHAPE(3, 7, 7, 1)}},
    {"kernel=2 stride=1", 1, {SHAPE(1, 3, 3, 1030)}},
    {0},
};

const struct op maxpool_relu_op = {
    .name = "maxpool_relu",
    .help = "Max pooling with a ReLU behind it.",
    .internal = true,
    .settings_size = sizeof(struct pool),
    .fields = fields,
    .shape = pool_sliding_shape,
    .saved = pool_maximum_saved,
    .reads = pool_reads_saved,
    .reference = &pool_reference,
    .cpu = &pool_cpu,
    .cuda = ON_CUDA(pool_cuda),
    .supports_cuda = call_sums_gradient,
    .examples = examples,
};
