/* grn.cu: two sweeps over an image each way: blocks add up columns of pixels, then one block for each image
 * makes the factors of its channels, which the second sweep applies. */
#include "kernels/support/columns.cuh"

extern "C" {
#include "kernels/norm/grn.h"
}

#define THREADS 256
#define DEPTH 32               /* pixels of a thread, about */

struct grn_layout {
    int64_t pixels;            /* of an image */
    int channels, across, down, tiles, depth;    /* depth: blocks below one another in an image */
    float eps;
};

static struct grn_layout grn_layout(const struct call *call, int width)
{
    struct shape x = call->x[0].shape;
    struct grn_layout l = {.pixels = x.h * x.w, .channels = (int)x.c};
    l.across = power_up(x.c / width, 32);
    l.down = THREADS / l.across;
    l.tiles = (int)div_up(x.c / width, (int64_t)l.across);
    l.depth = (int)div_up(l.pixels, (int64_t)l.down * DEPTH);
    l.eps = (float)((const struct grn *)call->settings)->eps;
    return l;
}

/* Adds up a * b and, with `both`, a, of an image's channels. */
template <class T, int w, bool both> struct grn_sums {
    static constexpr int width = w, sums = both ? 2 : 1, in_flight = 4, blocks = 4;
    struct cells {
        chunk<T, width> a, b;
    };
    const T *a, *b;

    __device__ void begin(const grn_sums &, int) {}
    __device__ void load(cells &to, int64_t, int64_t at) const
    {
        to = {*(const chunk<T, width> *)(a + at), *(const chunk<T, width> *)(b + at)};
    }
    __device__ void add(const cells &in, int64_t, int64_t, float (&sum)[sums][width]) const
    {
#pragma unroll
        for (int e = 0; e < width; e++) {
            sum[0][e] = fmaf(to_float(in.a.at[e]), to_float(in.b.at[e]), sum[0][e]);
            if constexpr (both) sum[1][e] += to_float(in.a.at[e]);
        }
    }
};

/* Blocks over an image. */
static struct columns grn_columns(const struct call *call, int width)
{
    struct shape x = call->x[0].shape;
    return columns_open(call->x[0].dtype, shape_nhwc(1, x.h, x.w, x.c), width, 4);
}

/* The workspace: sums of each block of an image, then the factors of an image's channels. */
static float *behind_parts(const struct call *call, int width)
{
    size_t parts = columns_bytes(grn_columns(call, width), 2, call->x[0].shape.n);
    return (float *)((char *)call->workspace + parts);
}

/* The sum of a value over the block's threads. */
__device__ static float grn_block_sum(float value)
{
    __shared__ float partial[THREADS];
    __syncthreads();
    partial[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    __syncthreads();
    return partial[0];
}

__device__ static float sum_parts(const struct column_parts &parts, int64_t image, int sum, int channel)
{
    float total = 0;
    for (int i = 0; i < parts.count; i++)
        total += parts.at[((image * parts.count + i) * parts.sums + sum) * parts.channels + channel];
    return total;
}

/* 1 + weight * r of an image's channels. With `parts` norms are computed, and written. */
__global__ void __launch_bounds__(THREADS)
grn_factors_kernel(float *factors, float *norms, struct column_parts parts, const float *weight,
                   struct grn_layout l)
{
    int64_t image = blockIdx.x;
    float sum = 0;
    for (int c = threadIdx.x; c < l.channels; c += THREADS) {
        float *norm = norms + image * l.channels + c;
        if (parts.at) *norm = sqrtf(sum_parts(parts, image, 0, c));
        sum += *norm;
    }
    float mean = grn_block_sum(sum) / (float)l.channels + l.eps;
    for (int c = threadIdx.x; c < l.channels; c += THREADS)
        factors[image * l.channels + c] = 1 + weight[c] * (norms[image * l.channels + c] / mean);
}

/* The factors of d_y and of x in d_x, and the image's parts of the parameters' gradients. */
struct grn_factors {
    float *of_d_y, *of_x;      /* [images, channels] */
    float *d_params;           /* [images, weight and bias, channels] */
};

__global__ void __launch_bounds__(THREADS)
grn_backward_factors_kernel(struct grn_factors f, const float *norms, struct column_parts parts,
                            const float *weight, struct grn_layout l)
{
    int64_t image = blockIdx.x, row = image * l.channels;
    float sum = 0, common = 0;
    for (int c = threadIdx.x; c < l.channels; c += THREADS) sum += norms[row + c];
    float mean = grn_block_sum(sum) / (float)l.channels + l.eps;
    for (int c = threadIdx.x; c < l.channels; c += THREADS) {
        float share = norms[row + c] / mean, product = sum_parts(parts, image, 0, c);
        f.of_d_y[row + c] = 1 + weight[c] * share;
        f.of_x[row + c] = weight[c] * product;
        f.d_params[2 * row + c] = share * product;
        f.d_params[2 * row + l.channels + c] = sum_parts(parts, image, 1, c);
        common += weight[c] * product * share;
    }
    common = grn_block_sum(common) / (float)l.channels;
    for (int c = threadIdx.x; c < l.channels; c += THREADS) {
        float norm = norms[row + c];
        f.of_x[row + c] = norm > 0 ? (f.of_x[row + c] - common) / mean / norm : 0;
    }
}

/* y = a * by + b * times, or a * by + bias. y may be a. Block x: tile, group of pixels, image. */
template <class T, int width, bool back> __global__ void __launch_bounds__(THREADS)
grn_apply_kernel(T *y, const T *a, const float *by, const T *b, const float *times, struct grn_layout l)
{
    int tile = blockIdx.x % l.tiles, part = blockIdx.x / l.tiles % l.depth;
    int64_t image = blockIdx.x / l.tiles / l.depth;
    int column = (tile * l.across + threadIdx.x) * width;
    if (column >= l.channels) return;
    float first[width], second[width];
#pragma unroll
    for (int e = 0; e < width; e++) {
        first[e] = by[image * l.channels + column + e];
        second[e] = times[back ? image * l.channels + column + e : column + e];
    }
    int64_t at = image * l.pixels * l.channels + column;
#pragma unroll 4
    for (int64_t p = (int64_t)part * l.down + threadIdx.y; p < l.pixels; p += (int64_t)l.down * l.depth) {
        chunk<T, width> one = *(const chunk<T, width> *)(a + at + p * l.channels), other = {};
        if (back) other = *(const chunk<T, width> *)(b + at + p * l.channels);
#pragma unroll
        for (int e = 0; e < width; e++) {
            float more = back ? to_float(other.at[e]) * second[e] : second[e];
            one.at[e] = from_float<T>(fmaf(to_float(one.at[e]), first[e], more));
        }
        *(chunk<T, width> *)(y + at + p * l.channels) = one;
    }
}

static unsigned sweep_blocks(const struct grn_layout *l, int64_t images)
{
    return (unsigned)(images * l->depth * l->tiles);
}

static enum status grn_normalise(const struct call *call)
{
    struct shape x = call->x[0].shape;
    bool fresh = call->phase == PHASE_FORWARD;
    return with_chunk(call->y.dtype, x.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct grn_layout l = grn_layout(call, width);
        dim3 threads(l.across, l.down);
        struct column_parts parts = {};
        float *factors = behind_parts(call, width);
        float *norms = call->saved_count > 0 ? (float *)call->saved[0].data : factors + x.n * x.c;
        const T *from = (const T *)call->x[0].data;
        if (fresh)
            TRY(columns_sweep(call, grn_sums<T, width, false>{from, from}, grn_columns(call, width), x.n,
                              (float *)call->workspace, &parts));
        grn_factors_kernel<<<(unsigned)x.n, THREADS, 0, stream_of(call)>>>(
            factors, norms, parts, (const float *)call->params[0].data, l);
        grn_apply_kernel<T, width, false><<<sweep_blocks(&l, x.n), threads, 0, stream_of(call)>>>(
            (T *)call->y.data, from, factors, NULL, (const float *)call->params[1].data, l);
        return launched(call);
    });
}

static enum status grn_backward(const struct call *call)
{
    struct shape x = call->x[0].shape;
    struct grn_factors f;
    TRY(with_chunk(call->d_y.dtype, x.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct grn_layout l = grn_layout(call, width);
        dim3 threads(l.across, l.down);
        struct column_parts parts;
        float *rows = behind_parts(call, width);
        f = {rows, rows + x.n * x.c, rows + 2 * x.n * x.c};
        const T *from = (const T *)call->x[0].data, *d_y = (const T *)call->d_y.data;
        TRY(columns_sweep(call, grn_sums<T, width, true>{d_y, from}, grn_columns(call, width), x.n,
                          (float *)call->workspace, &parts));
        grn_backward_factors_kernel<<<(unsigned)x.n, THREADS, 0, stream_of(call)>>>(
            f, (const float *)call->saved[0].data, parts, (const float *)call->params[0].data, l);
        if (call->d_x[0].data)
            grn_apply_kernel<T, width, true><<<sweep_blocks(&l, x.n), threads, 0, stream_of(call)>>>(
                (T *)call->d_x[0].data, d_y, f.of_d_y, from, f.of_x, l);
        return launched(call);
    }));
    return columns_finish(call, {f.d_params, (int)x.n, 2, (int)x.c}, (float *)call->d_params[0].data,
                          (float *)call->d_params[1].data);
}

static size_t grn_workspace(const struct call *call)
{
    struct shape x = call->x[0].shape;
    int whole = 16 / (int)dtype_bytes(call->x[0].dtype), width = x.c % whole ? 1 : whole;
    return columns_bytes(grn_columns(call, width), 2, x.n) + (size_t)(4 * x.n * x.c) * sizeof(float);
}

const struct op_code grn_cuda = {
    .workspace = grn_workspace,
    .forward = grn_normalise,
    .backward = grn_backward,
    .recompute = grn_normalise,
};
