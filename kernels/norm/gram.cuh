/* gram.cuh: on Hopper (tiles.cuh), the Gram matrix of a tensor's channels, a'a for a [pixels x channels], and
 * the sums of its columns, by a kernel that reads it once; or, of x, that also makes a = relu(...) of it, as
 * batch norm's normalising sweep does. */
#pragma once

#include "kernels/norm/batchnorm.cuh"

struct gram_operands {
    const struct tensor *x;
    void *a;                             /* NULL: x itself is a, and there are no values */
    struct batchnorm_parts::channel_values values;
    float *sums;                         /* F32 [1 + channels, channels]: the sums, then a'a */
    float *parts;                        /* as many bytes as gram_workspace says */
    bool early;                          /* it is directly behind the kernel that computes the statistics */
};

/* True if there is such a kernel for such a tensor and this device, which may be NULL. */
bool gram_fits(const struct tensor *x, struct device *device);
size_t gram_workspace(const struct tensor *x, struct device *device);
enum status gram_run(const struct call *call, const struct gram_operands *of);
