#include "kernels/cuda.cuh"

extern "C" {
#include "kernels/pool.h"
}

static enum status adaptive_avgpool_forward(const struct call *call)
{
    struct pool_plane plane = adaptive_avgpool_plane(call);
    return pool_average_cuda(call, &plane);
}

static enum status adaptive_avgpool_backward(const struct call *call)
{
    struct pool_plane plane = adaptive_avgpool_plane(call);
    return pool_average_backward_cuda(call, &plane);
}

const struct op_code adaptive_avgpool_cuda = {
    .forward = adaptive_avgpool_forward,
    .backward = adaptive_avgpool_backward,
};
