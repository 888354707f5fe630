#include "kernels/elementwise/elementwise_sums.cuh"

extern "C" {
#include "kernels/elementwise/gelu.h"
}

#define SQRT1_2 0.70710678118654752440f
#define DENSITY 0.39894228040143267794f   /* of the normal distribution at 0: 1 / sqrt(2 pi) */

static enum status gelu_forward(const struct call *call)
{
    if (((const struct gelu *)call->settings)->approximate == GELU_TANH)
        return map_tensor(call, &call->y, &call->x[0], [] __device__(float x) {
            return 0.5f * x * (1 + tanhf((float)GELU_SCALE * (x + (float)GELU_CUBIC * x * x * x)));
        });
    return map_tensor(call, &call->y, &call->x[0],
                      [] __device__(float x) { return 0.5f * x * (1 + erff(x * SQRT1_2)); });
}

/* The normal distribution's cumulative function within 1e-7, which is enough for 16 bits (Abramowitz, Stegun
 * 7.1.26), and `density` = exp(-x x / 2). */
__device__ static inline float cumulative(float x, float *density)
{
    *density = __expf(-0.5f * x * x);
    float t = __fdividef(1, fmaf(fabsf(x), 0.3275911f * SQRT1_2, 1));
    float p = fmaf(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
    p = fmaf(p, t, 0.5f * 1.421413741f);
    p = fmaf(p, t, 0.5f * -0.284496736f);
    p = fmaf(p, t, 0.5f * 0.254829592f) * t * *density;
    return x < 0 ? p : 1 - p;
}

struct gelu_half_gradient {
    __device__ float operator()(float d_y, float x) const
    {
        float density, p = cumulative(x, &density);
        return d_y * fmaf(x * DENSITY, density, p);
    }
};

struct gelu_tanh_gradient {
    __device__ float operator()(float d_y, float x) const
    {
        float t = tanhf((float)GELU_SCALE * (x + (float)GELU_CUBIC * x * x * x));
        float inner = (float)GELU_SCALE * (1 + 3 * (float)GELU_CUBIC * x * x);
        return d_y * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner);
    }
};

struct gelu_gradient {
    __device__ float operator()(float d_y, float x) const
    {
        return d_y * (0.5f * (1 + erff(x * SQRT1_2)) + x * (DENSITY * expf(-0.5f * x * x)));
    }
};

static enum status gelu_backward(const struct call *call)
{
    bool tanh = ((const struct gelu *)call->settings)->approximate == GELU_TANH;
    auto run = [&](auto gradient) {
        if (call_operand(call, OPERAND_D_X_SUMS)) return map_with_sums(call, gradient);
        return map_tensors(call, &call->d_x[0], &call->d_y, &call->x[0], gradient);
    };
    if (!call->d_x[0].data) return OK;
    if (tanh) return run(gelu_tanh_gradient());
    return call->d_y.dtype == F32 ? run(gelu_gradient()) : run(gelu_half_gradient());
}

const struct op_code gelu_cuda = {
    .supports = call_sums_gradient,
    .workspace = map_sums_workspace,
    .forward = gelu_forward,
    .backward = gelu_backward,
};
