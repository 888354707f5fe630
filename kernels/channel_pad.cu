#include "kernels/cuda.cuh"

extern "C" {
#include "kernels/border.h"
}

static enum status channel_pad_forward(const struct call *call)
{
    struct border border = channel_pad_border(call);
    return border_forward_cuda(call, &border);
}

static enum status channel_pad_backward(const struct call *call)
{
    struct border border = channel_pad_border(call);
    return border_backward_cuda(call, &border);
}

const struct op_code channel_pad_cuda = {.forward = channel_pad_forward, .backward = channel_pad_backward};
