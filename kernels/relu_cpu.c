/* relu_cpu.c: relu by blocks of fp32. */
#include "kernels/cpu.h"
#include "kernels/elementwise.h"

EVERY_MACHINE static void relu_block(const void *settings, const float *x, float *y, int64_t count)
{
    (void)settings;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i];
}

EVERY_MACHINE static void slope_block(const void *settings, const float *y, const float *d_y, float *d_x,
                                      int64_t count)
{
    (void)settings;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) d_x[i] = y[i] <= 0 ? 0 : d_y[i];
}

static enum status relu_cpu_forward(const struct call *call)
{
    return elementwise_forward_cpu(call, relu_block);
}

static enum status relu_cpu_backward(const struct call *call)
{
    return elementwise_backward_cpu(call, &call->y, slope_block);
}

const struct op_code relu_cpu = {.forward = relu_cpu_forward, .backward = relu_cpu_backward};
