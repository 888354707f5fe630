#include "kernels/elementwise/elementwise.cuh"

static enum status silu_forward(const struct call *call)
{
    return map_tensor(call, &call->y, &call->x[0],
                      [] __device__(float x) { return __fdividef(x, 1 + expf(-x)); });
}

static enum status silu_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->x[0], [] __device__(float d_y, float x) {
        float sigmoid = __fdividef(1, 1 + expf(-x));
        return d_y * (sigmoid * (1 + x * (1 - sigmoid)));
    });
}

const struct op_code silu_cuda = {.forward = silu_forward, .backward = silu_backward};
