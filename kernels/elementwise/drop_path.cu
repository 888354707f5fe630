/* drop_path.cu: a block processes a part of one image. */
#include "kernels/support/copy.cuh"
#include "kernels/elementwise/elementwise.cuh"

extern "C" {
#include "kernels/elementwise/dropout.h"
}

struct drop_path_images {
    struct op_random random;
    uint64_t first, threshold;
    float scale;
    int64_t chunks;            /* of an image */
    unsigned blocks;
};

/* y may be x. */
template <class T, int width>
__global__ void __launch_bounds__(MAP_THREADS)
drop_path_kernel(T *y, const T *x, struct drop_path_images images)
{
    __shared__ bool kept;
    unsigned image = blockIdx.x / images.blocks, part = blockIdx.x % images.blocks;
    int64_t start = image * images.chunks;
    chunk<T, width> in[MAP_CHUNKS];
    if (threadIdx.x == 0) {
        struct random stream = dropout_stream(&images.random, *images.random.step);
        uint32_t words[4];
        philox_words(&stream, (images.first + image) / 4, words);
        kept = words[(images.first + image) % 4] >= images.threshold;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < MAP_CHUNKS; k++) {
        int64_t i = ((int64_t)part * MAP_CHUNKS + k) * MAP_THREADS + threadIdx.x;
        if (kept && i < images.chunks) in[k] = ((const chunk<T, width> *)x)[start + i];
    }
#pragma unroll
    for (int k = 0; k < MAP_CHUNKS; k++) {
        int64_t i = ((int64_t)part * MAP_CHUNKS + k) * MAP_THREADS + threadIdx.x;
        if (i >= images.chunks) return;
#pragma unroll
        for (int e = 0; e < width; e++)
            in[k].at[e] = from_float<T>(kept ? images.scale * to_float(in[k].at[e]) : 0);
        ((chunk<T, width> *)y)[start + i] = in[k];
    }
}

static enum status drop(const struct call *call, const struct tensor *to, const struct tensor *from)
{
    int64_t count = shape_count(to->shape), n = to->shape.n;
    if (count == 0) return OK;
    const struct dropout *s = (const struct dropout *)call->settings;
    if (!call->training || s->rate == 0) return copy_tensor(call, to, from);
    return with_chunk(to->dtype, count / n, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct drop_path_images images = {*call->random, dropout_first(call->random, n), dropout_threshold(s),
                                          dropout_scale(s), count / n / width};
        images.blocks = (unsigned)div_up(images.chunks, (int64_t)(MAP_THREADS * MAP_CHUNKS));
        drop_path_kernel<T, width><<<(unsigned)n * images.blocks, MAP_THREADS, 0, stream_of(call)>>>(
            (T *)to->data, (const T *)from->data, images);
        return launched(call);
    });
}

static enum status drop_path_forward(const struct call *call) { return drop(call, &call->y, &call->x[0]); }

static enum status drop_path_backward(const struct call *call)
{
    return call->d_x[0].data ? drop(call, &call->d_x[0], &call->d_y) : OK;
}

const struct op_code drop_path_cuda = {.forward = drop_path_forward, .backward = drop_path_backward};
