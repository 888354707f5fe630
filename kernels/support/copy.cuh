/* copy.cuh: copies of whole tensors, and of the pixels that a stride picks. */
#pragma once

#include "kernels/support/cuda.cuh"

/* Queues a copy to a tensor of the same size, unless both are the same memory. */
static inline enum status copy_tensor(const struct call *call, const struct tensor *to,
                                      const struct tensor *from)
{
    if (to->data == from->data) return OK;
    cudaError_t error = cudaMemcpyAsync(to->data, from->data, tensor_bytes(to), cudaMemcpyDeviceToDevice,
                                        stream_of(call));
    return cuda_status(call->device, error, "a copy on the device");
}

/* Images of `in` pixels, of which `out` are picked. */
struct pick {
    enum dtype dtype;
    int n, c, in[2], out[2], stride[2];
};

static inline struct pick pick_of(enum dtype dtype, struct shape in, struct shape out, int stride)
{
    return {.dtype = dtype, .n = (int)in.n, .c = (int)in.c, .in = {(int)in.h, (int)in.w},
            .out = {(int)out.h, (int)out.w}, .stride = {stride, stride}};
}

enum status copy_picked(const struct call *call, const struct pick *pick, void *picked, const void *x);
/* Copies them back to x; its other pixels become zero. */
enum status copy_spread(const struct call *call, const struct pick *pick, void *x, const void *picked);
