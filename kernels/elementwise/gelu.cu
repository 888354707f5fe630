#include "kernels/elementwise/elementwise.cuh"

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

static enum status gelu_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    if (((const struct gelu *)call->settings)->approximate == GELU_TANH)
        return map_tensors(call, &call->d_x[0], &call->d_y, &call->x[0], [] __device__(float d_y, float x) {
            float t = tanhf((float)GELU_SCALE * (x + (float)GELU_CUBIC * x * x * x));
            float inner = (float)GELU_SCALE * (1 + 3 * (float)GELU_CUBIC * x * x);
            return d_y * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner);
        });
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->x[0], [] __device__(float d_y, float x) {
        return d_y * (0.5f * (1 + erff(x * SQRT1_2)) + x * (DENSITY * expf(-0.5f * x * x)));
    });
}

const struct op_code gelu_cuda = {.forward = gelu_forward, .backward = gelu_backward};
