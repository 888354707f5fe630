#include "kernels/cuda.cuh"

extern "C" {
#include "kernels/pool.h"
}

static enum status adaptive_maxpool_forward(const struct call *call)
{
    struct pool_plane plane = adaptive_maxpool_plane(call);
    return pool_maximum_cuda(call, &plane);
}

static enum status adaptive_maxpool_backward(const struct call *call)
{
    struct pool_plane plane = adaptive_maxpool_plane(call);
    return pool_maximum_backward_cuda(call, &plane);
}

const struct op_code adaptive_maxpool_cuda = {
    .forward = adaptive_maxpool_forward,
    .backward = adaptive_maxpool_backward,
};
