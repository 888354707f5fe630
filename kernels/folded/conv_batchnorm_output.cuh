/* conv_batchnorm_output.cuh: the result of a folded convolution by one kernel on Hopper (tiles.cuh):
 *
 *     y = relu(a (s W)' + b + residual)
 *
 * and a bit for each number of y, which is 0 where that is. a has as many columns as there are channels, y
 * and the residual as many as filters; each is read or written once. */
#pragma once

#include "kernels/support/cuda.cuh"

struct folded_output {
    enum dtype dtype;
    int64_t pixels;
    int channels, filters;
    const void *a, *residual;
    const void *factors;                 /* s W, filters x channels */
    const void *bias;                    /* b */
    void *y;
    uint8_t *mask;                       /* may be NULL */
};

/* True if there is such a kernel for these extents and this device. */
bool folded_output_fits(const struct folded_output *of, struct device *device);
enum status folded_output_run(const struct call *call, const struct folded_output *of);
