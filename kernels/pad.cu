#include "kernels/cuda.cuh"

extern "C" {
#include "kernels/border.h"
}

static enum status pad_forward(const struct call *call)
{
    struct border border = pad_border(call);
    return border_forward_cuda(call, &border);
}

static enum status pad_backward(const struct call *call)
{
    struct border border = pad_border(call);
    return border_backward_cuda(call, &border);
}

const struct op_code pad_cuda = {.forward = pad_forward, .backward = pad_backward};
