#include "kernels/elementwise/elementwise.cuh"

static enum status sigmoid_forward(const struct call *call)
{
    return map_tensor(call, &call->y, &call->x[0],
                      [] __device__(float x) { return __fdividef(1, 1 + expf(-x)); });
}

static enum status sigmoid_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->y,
                       [] __device__(float d_y, float y) { return d_y * (y * (1 - y)); });
}

const struct op_code sigmoid_cuda = {.forward = sigmoid_forward, .backward = sigmoid_backward};
