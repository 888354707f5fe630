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

/* op_code.supports. */
bool conv_batchnorm_supports(const struct call *call);

/* The sums that are given: of a in forward, of dz in backward, where d_y is dz; NULL: none. */
static inline const struct tensor *conv_batchnorm_sums(const struct call *call)
{
    return call_operand(call, call->phase == PHASE_BACKWARD ? OPERAND_D_Y_SUMS : OPERAND_X_SUMS);
}

/* The value that forward saves after batch norm's own: [filters + 1, channels], the covariance of each result
 * of the convolution with each of its inputs, and in the last row the inputs' means. */
enum { SAVED_COVARIANCE = SAVED_COUNT };
