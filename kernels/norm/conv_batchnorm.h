/* conv_batchnorm.h: settings of conv_batchnorm, and where its parameters and saved tensors are. */
#pragma once

#include "kernels/norm/batchnorm.h"

/* The parameters are batch norm's and, last, the convolution's weight; batch norm's update reads this as its
 * own settings. */
struct conv_batchnorm {
    struct batchnorm norm;
    int64_t filters, stride;
};

/* The shape of the pixels of a that the convolution reads: all, or every stride-th in both directions. */
static inline struct shape conv_batchnorm_taken(const struct conv_batchnorm *s, struct shape a)
{
    return shape_nhwc(a.n, (a.h - 1) / s->stride + 1, (a.w - 1) / s->stride + 1, a.c);
}

static inline int conv_batchnorm_weight(const struct batchnorm *norm)
{
    return batchnorm_statistics(norm).batches + 1;
}

/* op_code.picks_gradient, and clips_later: behind relu6. */
struct shape conv_batchnorm_picks_gradient(const void *settings, struct shape x);
bool conv_batchnorm_clips_later(const void *settings);

/* op_code.gives_products: where a kernel leaves those sums of the gradient that it writes. */
bool conv_batchnorm_gives_products(const struct call *call);

/* The value that forward saves after batch norm's own: [filters + 1, channels], the covariance of each result
 * of the convolution with each of its inputs, and in the last row the inputs' means. */
enum { SAVED_COVARIANCE = SAVED_COUNT };
