/* batchnorm_conv.h: settings of batchnorm_conv, and the calls that it takes the place of. */
#pragma once

#include "kernels/conv/conv.h"
#include "kernels/norm/batchnorm.h"

/* The parameters are batch norm's, whose functions read this as their own settings, and then those of the
 * convolution. */
struct batchnorm_conv {
    struct batchnorm norm;
    int64_t filters;
    bool bias;
};

struct batchnorm_conv_calls {
    struct call norm, conv;
    struct conv_settings settings;       /* of conv */
    struct tensor a, d_a;                /* x and d_x of conv */
};

/* Divides a call; `a` and `d_a` are the memory of the normalised tensor and of its gradient. */
void batchnorm_conv_divide(const struct call *call, void *a, void *d_a, struct batchnorm_conv_calls *as);
