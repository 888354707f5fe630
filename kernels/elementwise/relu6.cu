#include "kernels/elementwise/elementwise.cuh"

static enum status relu6_forward(const struct call *call)
{
    return map_tensor(call, &call->y, &call->x[0],
                      [] __device__(float x) { return x <= 0 ? 0 : x >= 6 ? 6 : x; });
}

static enum status relu6_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->y,
                       [] __device__(float d_y, float y) { return y <= 0 || y >= 6 ? 0 : d_y; });
}

const struct op_code relu6_cuda = {.forward = relu6_forward, .backward = relu6_backward};
