#include "kernels/cuda.cuh"

extern "C" {
#include "kernels/pool.h"
}

static enum status maxpool_forward(const struct call *call)
{
    struct pool_plane plane = maxpool_plane(call);
    return pool_maximum_cuda(call, &plane);
}

static enum status maxpool_backward(const struct call *call)
{
    struct pool_plane plane = maxpool_plane(call);
    return pool_maximum_backward_cuda(call, &plane);
}

const struct op_code maxpool_cuda = {.forward = maxpool_forward, .backward = maxpool_backward};
