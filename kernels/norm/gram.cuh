/* gram.cuh: on Hopper (tiles.cuh), the Gram matrix of a tensor's channels, a'a for a [pixels x channels], and
 * the sums of its columns, by a kernel that reads it once: of a call's x; or of its y = relu(...), which the
 * kernel also makes, as batch norm's normalising sweep does. */
#pragma once

#include "kernels/norm/batchnorm.cuh"

/* True if there is such a kernel for such a tensor and this device, which may be NULL. */
bool gram_fits(const struct tensor *x, struct device *device);
size_t gram_workspace(const struct tensor *x, struct device *device);
/* Writes Y_SUMS, F32 [1 + channels, channels]: the sums, then a'a; of x unless y has data. `behind`: directly
 * after the kernel that computes the statistics. */
enum status gram_run(const struct call *call, bool behind);
