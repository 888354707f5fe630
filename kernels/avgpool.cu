#include "kernels/cuda.cuh"

extern "C" {
#include "kernels/pool.h"
}

static enum status avgpool_forward(const struct call *call)
{
    struct pool_plane plane = avgpool_plane(call);
    return pool_average_cuda(call, &plane);
}

static enum status avgpool_backward(const struct call *call)
{
    struct pool_plane plane = avgpool_plane(call);
    return pool_average_backward_cuda(call, &plane);
}

const struct op_code avgpool_cuda = {.forward = avgpool_forward, .backward = avgpool_backward};
