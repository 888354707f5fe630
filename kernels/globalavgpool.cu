#include "kernels/cuda.cuh"

extern "C" {
#include "kernels/pool.h"
}

static enum status globalavgpool_forward(const struct call *call)
{
    struct pool_plane plane = globalavgpool_plane(call);
    return pool_average_cuda(call, &plane);
}

static enum status globalavgpool_backward(const struct call *call)
{
    struct pool_plane plane = globalavgpool_plane(call);
    return pool_average_backward_cuda(call, &plane);
}

const struct op_code globalavgpool_cuda = {
    .forward = globalavgpool_forward,
    .backward = globalavgpool_backward,
};
