/* adaptive_maxpool: the maximum of size x size bins, bin i from floor(i * in / size) to
 * ceil((i + 1) * in / size), as torch.nn.AdaptiveMaxPool2d. */
#include "kernels/pool/pool.h"

static int adaptive_maxpool_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                                  struct op_saved out[OP_MAX_SAVED])
{
    if (!training) return 0;
    out[0] = (struct op_saved){"number", I32, {0}};
    pool_bins_shape(settings, 1, &x[0].shape, &out[0].shape, NULL);
    return 1;
}

POOL_CODES(maximum, pool_bins)

const struct op adaptive_maxpool_op = {
    .name = "adaptive_maxpool",
    .help = "Adaptive max pooling to a given output size.",
    .settings_size = sizeof(struct pool_bins),
    .fields = pool_bins_fields,
    .shape = pool_bins_shape,
    .saved = adaptive_maxpool_saved,
    .reads = pool_reads_saved,
    .reference = &pool_reference,
    .cpu = &pool_cpu,
    .cuda = ON_CUDA(pool_cuda),
    .examples = pool_bins_examples,
};
