/* pixels_cpu.h: loops over pixels on the CPU that compute sums by channel. */
#pragma once

#include "kernels/cpu.h"

/* Pixels are divided into pieces by the shape only. A piece has `lines` lines of fp32 with one element per
 * channel; the first `sums` of them are initially zero, and are added in the order of pieces to `totals`,
 * which may be absent. */
struct pixels_work {
    int sums, lines;
    void (*piece)(const struct call *call, int64_t first, int64_t end, float *lines);
    const struct tensor *totals[2];
};

/* y = a * b, and sum += a * b. */
void pixels_multiply(const float *a, const float *b, float *y, int64_t count);
void pixels_multiply_add(const float *a, const float *b, const float *c, float *y, int64_t count);
void pixels_add(const float *x, float *sum, int64_t count);
void pixels_add_products(const float *a, const float *b, float *sum, int64_t count);

/* Runs the pieces of a tensor of this shape on all threads, in call->workspace, which takes so many bytes. */
size_t pixels_workspace(struct shape shape, const struct pixels_work *work);
void pixels_run(const struct call *call, struct shape shape, const struct pixels_work *work);

/* The gradient of a bias, d_params[1]: the sums of d_y by channel. */
size_t pixels_bias_workspace(const struct call *call);
void pixels_bias_run(const struct call *call);
