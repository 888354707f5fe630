/* gelu_cpu.c: gelu by blocks of fp32. */
#include "gelu.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/elementwise.h"

INLINE float gelu(float x, int approximate)
{
    if (approximate == GELU_TANH)
        return 0.5f * x * (1 + tanhf((float)GELU_SCALE * (x + (float)GELU_CUBIC * x * x * x)));
    return 0.5f * x * (1 + erff(x * (float)M_SQRT1_2));
}

INLINE float gelu_slope(float x, int approximate)
{
    if (approximate == GELU_TANH) {
        float t = tanhf((float)GELU_SCALE * (x + (float)GELU_CUBIC * x * x * x));
        float inner = (float)GELU_SCALE * (1 + 3 * (float)GELU_CUBIC * x * x);
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner;
    }
    float density = (float)(0.5 * M_SQRT1_2 * M_2_SQRTPI) * expf(-0.5f * x * x);
    return 0.5f * (1 + erff(x * (float)M_SQRT1_2)) + x * density;
}

EVERY_MACHINE static void gelu_block(const void *settings, const float *x, float *y, int64_t count)
{
    int approximate = ((const struct gelu *)settings)->approximate;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = gelu(x[i], approximate);
}

EVERY_MACHINE static void slope_block(const void *settings, const float *x, const float *d_y, float *d_x,
                                      int64_t count)
{
    int approximate = ((const struct gelu *)settings)->approximate;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) d_x[i] = d_y[i] * gelu_slope(x[i], approximate);
}

static enum status gelu_cpu_forward(const struct call *call)
{
    return elementwise_forward_cpu(call, gelu_block);
}

static enum status gelu_cpu_backward(const struct call *call)
{
    return elementwise_backward_cpu(call, &call->x[0], slope_block);
}

const struct op_code gelu_cpu = {.forward = gelu_cpu_forward, .backward = gelu_cpu_backward};
