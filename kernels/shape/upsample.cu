/* upsample.cu: a thread gathers a chunk of channels of one pixel; neighbours find what they read in the
 * cache. */
#include "kernels/support/chunk.cuh"

extern "C" {
#include "kernels/shape/upsample.h"
}

#define THREADS 256

/* The image that is written, in chunks, and the one that is read. */
struct upsample_layout {
    struct upsample_axis axes[2];
    int64_t count;             /* chunks in all */
    int h, w, from_h, from_w, chunks;
};

template <bool forward> __device__ static inline upsample_span span_of(const upsample_axis &axis, int at)
{
    return forward ? upsample_inputs(&axis, at) : upsample_outputs(&axis, at);
}

template <bool forward> __device__ static inline float share_of(const upsample_axis &axis, int at, int from)
{
    return forward ? upsample_share(&axis, at, from) : upsample_share(&axis, from, at);
}

template <class T, int width, bool forward>
__global__ void __launch_bounds__(THREADS)
upsample_kernel(T *to, const T *from, const __grid_constant__ struct upsample_layout l)
{
    int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < l.count; i += step) {
        int64_t pixel = i / l.chunks, row = pixel / l.w, image = row / l.h;
        int c = (int)(i - pixel * l.chunks) * width;
        int h = (int)(row - image * l.h), w = (int)(pixel - row * l.w);
        const T *at = from + image * l.from_h * l.from_w * l.chunks * width + c;
        upsample_span rows = span_of<forward>(l.axes[0], h), columns = span_of<forward>(l.axes[1], w);
        float sum[width] = {};
        for (int y = rows.first; y < rows.end; y++) {
            float down = share_of<forward>(l.axes[0], h, y);
            if (down == 0) continue;
            for (int x = columns.first; x < columns.end; x++) {
                float share = down * share_of<forward>(l.axes[1], w, x);
                if (share == 0) continue;
                auto got = *(const chunk<T, width> *)(at + ((int64_t)y * l.from_w + x) * l.chunks * width);
#pragma unroll
                for (int e = 0; e < width; e++) sum[e] = fmaf(share, to_float(got.at[e]), sum[e]);
            }
        }
        chunk<T, width> result;
#pragma unroll
        for (int e = 0; e < width; e++) result.at[e] = from_float<T>(sum[e]);
        *(chunk<T, width> *)(to + i * width) = result;
    }
}

template <bool forward>
static enum status upsample_run(const struct call *call, const struct tensor *to, const struct tensor *from)
{
    struct shape shape = to->shape;
    if (!to->data || shape_count(shape) == 0) return OK;
    struct upsample_layout l = {.h = (int)shape.h, .w = (int)shape.w, .from_h = (int)from->shape.h,
                                .from_w = (int)from->shape.w};
    upsample_axes(call, l.axes);
    return with_chunk(to->dtype, shape.c, [&](auto type, auto width) {
        using T = decltype(type);
        constexpr int number = decltype(width)::number;
        l.chunks = (int)(shape.c / number);
        l.count = shape_count(shape) / number;
        upsample_kernel<T, number, forward><<<grid_of(call, l.count, THREADS, 4), THREADS, 0,
                                              stream_of(call)>>>((T *)to->data, (const T *)from->data, l);
        return launched(call);
    });
}

static enum status upsample_forward(const struct call *call)
{
    return upsample_run<true>(call, &call->y, &call->x[0]);
}

static enum status upsample_backward(const struct call *call)
{
    return upsample_run<false>(call, &call->d_x[0], &call->d_y);
}

const struct op_code upsample_cuda = {.forward = upsample_forward, .backward = upsample_backward};
