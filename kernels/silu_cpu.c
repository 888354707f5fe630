/* silu_cpu.c: silu by blocks of fp32. */
#include <math.h>

#include "kernels/cpu.h"
#include "kernels/elementwise.h"

INLINE float silu_slope(float x)
{
    float sigmoid = 1 / (1 + expf(-x));
    return sigmoid * (1 + x * (1 - sigmoid));
}

EVERY_MACHINE static void silu_block(const void *settings, const float *x, float *y, int64_t count)
{
    (void)settings;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = x[i] / (1 + expf(-x[i]));
}

EVERY_MACHINE static void slope_block(const void *settings, const float *x, const float *d_y, float *d_x,
                                      int64_t count)
{
    (void)settings;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) d_x[i] = d_y[i] * silu_slope(x[i]);
}

static enum status silu_cpu_forward(const struct call *call)
{
    return elementwise_forward_cpu(call, silu_block);
}

static enum status silu_cpu_backward(const struct call *call)
{
    return elementwise_backward_cpu(call, &call->x[0], slope_block);
}

const struct op_code silu_cpu = {.forward = silu_cpu_forward, .backward = silu_cpu_backward};
