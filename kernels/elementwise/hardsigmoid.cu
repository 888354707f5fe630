#include "kernels/elementwise/elementwise.cuh"

static enum status hardsigmoid_forward(const struct call *call)
{
    return map_tensor(call, &call->y, &call->x[0],
                      [] __device__(float x) { return x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) * (1 / 6.0f); });
}

static enum status hardsigmoid_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->y,
                       [] __device__(float d_y, float y) { return y <= 0 || y >= 1 ? 0 : d_y * (1 / 6.0f); });
}

const struct op_code hardsigmoid_cuda = {.forward = hardsigmoid_forward, .backward = hardsigmoid_backward};
