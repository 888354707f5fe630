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
        if (call->sums.data) return map_with_sums(call, gradient);
        return map_tensors(call, &call->d_x[0], &call->d_y, &call->x[0], gradient);
    };
    if (!call->d_x[0].data) return OK;
    return tanh ? run(gelu_tanh_gradient()) : run(gelu_gradient());
}

const struct op_code gelu_cuda = {
    .sums_gradient = true,
    .workspace = map_sums_workspace,
    .forward = gelu_forward,
    .backward = gelu_backward,
};
