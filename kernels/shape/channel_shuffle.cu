#include "kernels/support/chunk.cuh"

extern "C" {
#include "kernels/shape/channel_shuffle.h"
}

#define THREADS 256

/* A thread gathers one chunk of the output. */
template <class T, int width>
__global__ void __launch_bounds__(THREADS)
channel_shuffle_kernel(T *to, const T *from, int64_t chunks, int channels, int groups)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= chunks) return;
    int c = (int)(i * width % channels), each = channels / groups;
    int turn = c % groups, at = turn * each + c / groups;
    const T *pixel = from + (i * width - c);
    chunk<T, width> out;
#pragma unroll
    for (int e = 0; e < width; e++) {
        out.at[e] = pixel[at];
        at += each;
        if (++turn == groups) turn = 0, at += 1 - channels;
    }
    *(chunk<T, width> *)(to + i * width) = out;
}

static enum status shuffle(const struct call *call, const struct tensor *to, const struct tensor *from,
                           int64_t groups)
{
    int64_t count = shape_count(to->shape), channels = to->shape.c;
    if (count == 0) return OK;
    return with_chunk(to->dtype, channels, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        channel_shuffle_kernel<T, width>
            <<<(unsigned)div_up(count / width, (int64_t)THREADS), THREADS, 0, stream_of(call)>>>(
                (T *)to->data, (const T *)from->data, count / width, (int)channels, (int)groups);
        return launched(call);
    });
}

static enum status channel_shuffle_forward(const struct call *call)
{
    return shuffle(call, &call->y, &call->x[0], ((const struct channel_shuffle *)call->settings)->groups);
}

static enum status channel_shuffle_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    int64_t groups = ((const struct channel_shuffle *)call->settings)->groups;
    return shuffle(call, &call->d_x[0], &call->d_y, call->d_y.shape.c / groups);
}

const struct op_code channel_shuffle_cuda = {
    .forward = channel_shuffle_forward,
    .backward = channel_shuffle_backward,
};
