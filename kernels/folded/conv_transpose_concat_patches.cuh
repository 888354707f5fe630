/* conv_transpose_concat_patches.cuh: on Hopper (tiles.cuh), in 16 bits, transposed convolutions whose kernel
 * is as large as their stride: y is written, and d_y read, among other channels. */
#pragma once

#include "kernels/support/cuda.cuh"

struct folded_patches {
    enum phase phase;                    /* forward, backward_data or backward_params */
    enum dtype dtype;
    int channels, filters;               /* of x; of y */
    int rows, width;                     /* pixels of x: the rows of all images, and a row's */
    int kernel[2];
    int64_t pitch;                       /* numbers from a pixel of y to the next */
    void *x, *y, *weight;                /* y: its first number; gradients take the places of their tensors */
    const void *bias;                    /* of forward, or NULL */
    bool sums;                           /* backward_params: d_bias gets the sums of d_y by channel */
    float *d_bias;
};

/* True if there are kernels for the phase on the device. */
bool folded_patches_fit(const struct folded_patches *of, struct device *device);
size_t folded_patches_workspace(const struct folded_patches *of, struct device *device);
enum status folded_patches_run(const struct call *call, const struct folded_patches *of);
