/* leaky_relu_cpu.c: leaky_relu by blocks of fp32. */
#include "leaky_relu.h"

#include "kernels/cpu.h"
#include "kernels/elementwise.h"

EVERY_MACHINE static void leaky_relu_block(const void *settings, const float *x, float *y, int64_t count)
{
    float slope = (float)((const struct leaky_relu *)settings)->slope;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : slope * x[i];
}

EVERY_MACHINE static void slope_block(const void *settings, const float *y, const float *d_y, float *d_x,
                                      int64_t count)
{
    float slope = (float)((const struct leaky_relu *)settings)->slope;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) d_x[i] = y[i] > 0 ? d_y[i] : slope * d_y[i];
}

static enum status leaky_relu_cpu_forward(const struct call *call)
{
    return elementwise_forward_cpu(call, leaky_relu_block);
}

static enum status leaky_relu_cpu_backward(const struct call *call)
{
    return elementwise_backward_cpu(call, &call->y, slope_block);
}

const struct op_code leaky_relu_cpu = {
    .forward = leaky_relu_cpu_forward,
    .backward = leaky_relu_cpu_backward,
};
