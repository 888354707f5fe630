/* conv_batchnorm_maxpool.h: settings of conv_batchnorm_maxpool, and the ops that it consists of. */
#pragma once

#include "kernels/norm/batchnorm_maxpool.h"
#include "kernels/conv/conv.h"

/* Batch norm's functions read this as their own settings. Parameters are batch norm's and, last, the
 * convolution's weight; saved tensors those of batchnorm_maxpool. */
struct conv_batchnorm_maxpool {
    struct batchnorm norm;
    int64_t filters;
};

/* The convolution's and the pooling's kernel, stride and padding. */
enum { FIRST_CHANNELS = 3, FIRST_KERNEL = 7, FIRST_STRIDE = 2, FIRST_PAD = 3 };
enum { FIRST_WINDOW = 3, FIRST_WINDOW_STRIDE = 2, FIRST_WINDOW_PAD = 1 };

static inline struct conv_settings conv_of_first(const struct conv_batchnorm_maxpool *s)
{
    return (struct conv_settings){
        .filters = s->filters, .kernel = FIRST_KERNEL, .kernel_h = CONV_SAME, .kernel_w = CONV_SAME,
        .stride = FIRST_STRIDE, .stride_h = CONV_SAME, .stride_w = CONV_SAME,
        .pad = FIRST_PAD, .pad_h = CONV_SAME, .pad_w = CONV_SAME, .dilation = 1, .groups = 1,
    };
}

static inline struct batchnorm_maxpool pool_of_first(const struct conv_batchnorm_maxpool *s)
{
    return (struct batchnorm_maxpool){
        .norm = s->norm,
        .pool = {.kernel = FIRST_WINDOW, .stride = FIRST_WINDOW_STRIDE, .pad = FIRST_WINDOW_PAD},
    };
}

/* The shape of the convolution's result, which is not stored. */
static inline struct shape conv_shape_of_first(const struct conv_batchnorm_maxpool *s, struct shape x)
{
    int64_t size[2];
    for (int i = 0; i < 2; i++) size[i] = (x.dim[1 + i] + 2 * FIRST_PAD - FIRST_KERNEL) / FIRST_STRIDE + 1;
    return shape_nhwc(x.n, size[0], size[1], s->filters);
}

static inline int conv_weight_of_first(const struct conv_batchnorm_maxpool *s)
{
    return batchnorm_statistics(&s->norm).batches + 1;
}
