#include "kernels/elementwise/elementwise.cuh"

extern "C" {
#include "kernels/elementwise/leaky_relu.h"
}

static enum status leaky_relu_forward(const struct call *call)
{
    float slope = (float)((const struct leaky_relu *)call->settings)->slope;
    return map_tensor(call, &call->y, &call->x[0],
                      [slope] __device__(float x) { return x > 0 ? x : slope * x; });
}

static enum status leaky_relu_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    float slope = (float)((const struct leaky_relu *)call->settings)->slope;
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->y,
                       [slope] __device__(float d_y, float y) { return y > 0 ? d_y : slope * d_y; });
}

const struct op_code leaky_relu_cuda = {.forward = leaky_relu_forward, .backward = leaky_relu_backward};
