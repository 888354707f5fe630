/* conv_batchnorm_data.cuh: the gradient of a folded convolution's input by one kernel on Hopper (tiles.cuh):
 *
 *     d_a = dz (s W) + a Q + q
 *
 * and, if they are asked for, the sums of d_a over those pixels where a is not 0, and those of d_a a. dz has
 * as many columns as there are filters, a and d_a as many as channels; each is read or written once. */
#pragma once

#include "kernels/support/cuda.cuh"

struct folded_data {
    enum dtype dtype;
    int64_t pixels;
    int channels, filters;
    const void *dz, *a;
    const void *factors;                 /* s W, and behind it Q multiplied by `scale` */
    const void *bias;                    /* q */
    float scale;
    void *d_a;
    float *sums;                         /* F32 [2, channels]; may be NULL */
    float *parts;                        /* as many bytes as folded_data_workspace says */
};

/* True if there is such a kernel for these extents and this device. */
bool folded_data_fits(const struct folded_data *of, struct device *device);
size_t folded_data_workspace(const struct folded_data *of, struct device *device);
enum status folded_data_run(const struct call *call, const struct folded_data *of);
