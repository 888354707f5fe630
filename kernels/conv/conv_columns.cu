/* conv_columns.cu: im2col and col2im: the conversion of images to the rows of a matrix, and back. */
#include "kernels/support/chunk.cuh"
#include "kernels/conv/conv_cuda.cuh"

#define THREADS 256

static int taps(const struct conv_sizes *p)
{
    return p->kernel[0] * p->kernel[1];
}

/* Writes the same columns with longer words: a row of a patch is one piece of x, as if it were one pixel. */
static struct conv_call widened(const struct conv_call *p)
{
    struct conv_call wide = *p;
    if (!conv_is_patches(p) || p->in[1] % p->kernel[1] != 0) return wide;
    wide.c *= p->kernel[1], wide.in[1] /= p->kernel[1];
    wide.kernel[1] = wide.stride[1] = 1;
    return wide;
}

/* One word of channels per thread; all channels are `width` words. */
template <class V>
__global__ void columns_make_kernel(struct conv_sizes p, int width, V *columns, const V *x, int64_t count)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    unsigned taps = p.kernel[0] * p.kernel[1];
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned rest = (unsigned)(i / width), c = (unsigned)(i % width);
        unsigned tap = rest % taps, row = rest / taps;
        unsigned q = row % p.out[1], line = row / p.out[1], n = line / p.out[0];
        int h = (int)(line % p.out[0]) * p.stride[0] - p.pad[0] + (int)(tap / p.kernel[1]) * p.dilation[0];
        int w = (int)q * p.stride[1] - p.pad[1] + (int)(tap % p.kernel[1]) * p.dilation[1];
        bool inside = h >= 0 && h < p.in[0] && w >= 0 && w < p.in[1];
        columns[i] = inside ? x[(((int64_t)n * p.in[0] + h) * p.in[1] + w) * width + c] : V();
    }
}

enum status conv_columns_make(const struct conv_call *of, void *columns, const void *x)
{
    const struct conv_call p = widened(of);
    const struct call *call = p.call;
    return with_word(p.c * dtype_bytes(p.dtype), [&](auto word) {
        using W = decltype(word);
        int width = (int)(p.c * dtype_bytes(p.dtype) / sizeof(W));
        int64_t count = (int64_t)p.n * p.out[0] * p.out[1] * taps(&p) * width;
        columns_make_kernel<<<grid_of(call, count, THREADS, 4), THREADS, 0, stream_of(call)>>>(
            p, width, (W *)columns, (const W *)x, count);
        return launched(call);
    });
}

/* The output position that reads input position `in` at a tap; -1: none. */
__device__ static inline int output_at(const struct conv_sizes &p, int axis, int in, int tap)
{
    int out = in + p.pad[axis] - tap * p.dilation[axis];
    if (out < 0 || out % p.stride[axis] != 0) return -1;
    out /= p.stride[axis];
    return out < p.out[axis] ? out : -1;
}

/* `width` channels of a pixel per thread. */
template <class T, class From, int width>
__global__ void columns_add_kernel(struct conv_sizes p, T *x, const From *columns, int64_t count)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    int chunks = p.c / width, taps = p.kernel[0] * p.kernel[1];
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned pixel = (unsigned)(i / chunks), c = (unsigned)(i % chunks) * width;
        int w = (int)(pixel % p.in[1]), h = (int)(pixel / p.in[1] % p.in[0]);
        int64_t n = pixel / p.in[1] / p.in[0];
        float sums[width] = {};
        for (int tap = 0; tap < taps; tap++) {
            int row = output_at(p, 0, h, tap / p.kernel[1]), q = output_at(p, 1, w, tap % p.kernel[1]);
            if (row < 0 || q < 0) continue;
            int64_t at = (((n * p.out[0] + row) * p.out[1] + q) * taps + tap) * p.c + c;
            chunk<From, width> got = *(const chunk<From, width> *)(columns + at);
            for (int k = 0; k < width; k++) sums[k] += to_float(got.at[k]);
        }
        chunk<T, width> out;
        for (int k = 0; k < width; k++) out.at[k] = from_float<T>(sums[k]);
        *(chunk<T, width> *)(x + (int64_t)pixel * p.c + c) = out;
    }
}

template <class T, class From, int width>
static enum status columns_add(const struct conv_call *p, const void *columns, void *x)
{
    const struct call *call = p->call;
    int64_t count = (int64_t)p->n * p->in[0] * p->in[1] * (p->c / width);
    columns_add_kernel<T, From, width><<<grid_of(call, count, THREADS, 4), THREADS, 0, stream_of(call)>>>(
        *p, (T *)x, (const From *)columns, count);
    return launched(call);
}

enum status conv_columns_add(const struct conv_call *of, enum dtype columns_type, const void *columns,
                             void *x)
{
    const struct conv_call p = widened(of);
    return with_chunk(p.dtype, p.c, [&](auto type, auto width) {
        using T = decltype(type);
        constexpr int number = decltype(width)::number;
        if (columns_type == F32) return columns_add<T, float, number>(&p, columns, x);
        return columns_add<T, T, number>(&p, columns, x);
    });
}
