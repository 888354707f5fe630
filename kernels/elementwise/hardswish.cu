#include "kernels/elementwise/elementwise.cuh"

static enum status hardswish_forward(const struct call *call)
{
    return map_tensor(call, &call->y, &call->x[0], [] __device__(float x) {
        return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) * (1 / 6.0f);
    });
}

static enum status hardswish_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->x[0], [] __device__(float d_y, float x) {
        return x <= -3 ? 0 : x >= 3 ? d_y : d_y * (2 * x + 3) * (1 / 6.0f);
    });
}

const struct op_code hardswish_cuda = {.forward = hardswish_forward, .backward = hardswish_backward};
