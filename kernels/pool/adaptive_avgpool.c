/* adaptive_avgpool: the mean of size x size bins, bin i from floor(i * in / size) to
 * ceil((i + 1) * in / size), as torch.nn.AdaptiveAvgPool2d. */
#include "kernels/pool/pool.h"

POOL_CODES(average, pool_bins)

const struct op adaptive_avgpool_op = {
    .name = "adaptive_avgpool",
    .help = "Adaptive average pooling to a given output size.",
    .settings_size = sizeof(struct pool_bins),
    .fields = pool_bins_fields,
    .shape = pool_bins_shape,
    .reference = &pool_reference,
    .cpu = &pool_cpu,
    .cuda = ON_CUDA(pool_cuda),
    .examples = pool_bins_examples,
};
