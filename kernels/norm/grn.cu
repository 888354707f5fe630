/* grn.cu: two sweeps over an image each way: blocks add up columns of pixels, then one block for each image
 * makes the factors of its channels, which the second sweep applies. */
#include "kernels/support/rows.cuh"

extern "C" {
#include "kernels/norm/grn.h"
}

#define THREADS 256
#define DEPTH 32               /* pixels of a thread in a sum, about */

struct grn_layout {
    int64_t pixels;            /* of an image */
    int channels, across, down, tiles, depth;    /* depth: blocks below one another in an image's sums */
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

/* The workspace: sums of each block of an image, then the factors of an image's channels. */
static int64_t parts_count(const struct grn_layout *l, int64_t images)
{
    return 2 * images * l->depth * l->channels;
}

/* parts[0]: of a * b, parts[1]: of a, if b is another. Block x: tile, depth, image. */
template <class T, int width> __global__ void __launch_bounds__(THREADS)
grn_sums_kernel(float *parts, const T *a, const T *b, struct grn_layout l, int64_t second)
{
    __shared__ float partial[width * THREADS];
    int tile = blockIdx.x % l.tiles, part = blockIdx.x / l.tiles % l.depth;
    int64_t image = blockIdx.x / l.tiles / l.depth;
    int column = (tile * l.across + threadIdx.x) * width;
    float products[width] = {}, sums[width] = {};
    if (column < l.channels) {
        int64_t first = image * l.pixels * l.channels + column;
#pragma unroll 4
        for (int64_t p = (int64_t)part * l.down + threadIdx.y; p < l.pixels; p += (int64_t)l.down * l.depth) {
            chunk<T, width> one = *(const chunk<T, width> *)(a + first + p * l.channels);
            chunk<T, width> other = *(const chunk<T, width> *)(b + first + p * l.channels);
#pragma unroll
            for (int e = 0; e < width; e++) {
                products[e] = fmaf(to_float(one.at[e]), to_float(other.at[e]), products[e]);
                sums[e] += to_float(one.at[e]);
            }
        }
    }
    sum_down<width>(products, THREADS, l.across, partial);
    if (second) __syncthreads();
    if (second) sum_down<width>(sums, THREADS, l.across, partial);
    if (threadIdx.y > 0 || column >= l.channels) return;
    float *to = parts + (image * l.depth + part) * l.channels + column;
#pragma unroll
    for (int e = 0; e < width; e++) {
        to[e] = products[e];
        if (second) to[second + e] = sums[e];
    }
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

__device__ static float sum_parts(const float *parts, const struct grn_layout &l, int64_t image, int channel)
{
    float sum = 0;
    for (int i = 0; i < l.depth; i++) sum += parts[(image * l.depth + i) * l.channels + channel];
    return sum;
}

/* 1 + weight * r of an image's channels. With `parts` norms are computed, and written. */
__global__ void __launch_bounds__(THREADS)
grn_factors_kernel(float *factors, float *norms, const float *parts, const float *weight, struct grn_layout l)
{
    int64_t image = blockIdx.x;
    float sum = 0;
    for (int c = threadIdx.x; c < l.channels; c += THREADS) {
        float *norm = norms + image * l.channels + c;
        if (parts) *norm = sqrtf(sum_parts(parts, l, image, c));
        sum += *norm;
    }
    float mean = grn_block_sum(sum) / (float)l.channels + l.eps;
    for (int c = threadIdx.x; c < l.channels; c += THREADS)
        factors[image * l.channels + c] = 1 + weight[c] * (norms[image * l.channels + c] / mean);
}

/* The factors of d_y and of x in d_x, and the image's parts of the parameters' gradients. */
struct grn_factors {
    float *of_d_y, *of_x, *d_weight, *d_bias;      /* [images, channels] */
};

__global__ void __launch_bounds__(THREADS)
grn_backward_factors_kernel(struct grn_factors f, const float *norms, const float *parts, int64_t second,
                            const float *weight, struct grn_layout l)
{
    int64_t image = blockIdx.x, row = image * l.channels;
    float sum = 0, common = 0;
    for (int c = threadIdx.x; c < l.channels; c += THREADS) sum += norms[row + c];
    float mean = grn_block_sum(sum) / (float)l.channels + l.eps;
    for (int c = threadIdx.x; c < l.channels; c += THREADS) {
        float share = norms[row + c] / mean, product = sum_parts(parts, l, image, c);
        f.of_d_y[row + c] = 1 + weight[c] * share;
        f.of_x[row + c] = weight[c] * product;
        f.d_weight[row + c] = share * product;
        f.d_bias[row + c] = sum_parts(parts + second, l, image, c);
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
        float *parts = (float *)call->workspace, *factors = parts + parts_count(&l, x.n);
        float *norms = call->saved_count > 0 ? (float *)call->saved[0].data : factors + x.n * x.c;
        const T *from = (const T *)call->x[0].data;
        if (fresh)
            grn_sums_kernel<T, width>
                <<<sweep_blocks(&l, x.n), threads, 0, stream_of(call)>>>(parts, from, from, l, 0);
        grn_factors_kernel<<<(unsigned)x.n, THREADS, 0, stream_of(call)>>>(
            factors, norms, fresh ? parts : NULL, (const float *)call->params[0].data, l);
        grn_apply_kernel<T, width, false><<<sweep_blocks(&l, x.n), threads, 0, stream_of(call)>>>(
            (T *)call->y.data, from, factors, NULL, (const float *)call->params[1].data, l);
        return launched(call);
    });
}

static enum status grn_sum_images(const struct call *call, const struct tensor *to, const float *from)
{
    if (!to->data) return OK;
    struct rows_matrices images = {1, call->d_y.shape.n, call->d_y.shape.c, 1};
    return sum_rows<float, float, 1>(call, (float *)to->data, from, images);
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
        float *parts = (float *)call->workspace, *rows = parts + parts_count(&l, x.n);
        int64_t second = parts_count(&l, x.n) / 2, row = x.n * x.c;
        f = {rows, rows + row, rows + 2 * row, rows + 3 * row};
        const T *from = (const T *)call->x[0].data, *d_y = (const T *)call->d_y.data;
        grn_sums_kernel<T, width>
            <<<sweep_blocks(&l, x.n), threads, 0, stream_of(call)>>>(parts, d_y, from, l, second);
        grn_backward_factors_kernel<<<(unsigned)x.n, THREADS, 0, stream_of(call)>>>(
            f, (const float *)call->saved[0].data, parts, second, (const float *)call->params[0].data, l);
        if (call->d_x[0].data)
            grn_apply_kernel<T, width, true><<<sweep_blocks(&l, x.n), threads, 0, stream_of(call)>>>(
                (T *)call->d_x[0].data, d_y, f.of_d_y, from, f.of_x, l);
        return launched(call);
    }));
    TRY(grn_sum_images(call, &call->d_params[0], f.d_weight));
    return grn_sum_images(call, &call->d_params[1], f.d_bias);
}

static size_t grn_workspace(const struct call *call)
{
    struct shape x = call->x[0].shape;
    int64_t parts = 0;
    for (int width = 1; width <= 8; width *= 2) {
        struct grn_layout l = grn_layout(call, width);
        if (parts_count(&l, x.n) > parts) parts = parts_count(&l, x.n);
    }
    return (size_t)(parts + 4 * x.n * x.c) * sizeof(float);
}

const struct op_code grn_cuda = {
    .workspace = grn_workspace,
    .forward = grn_normalise,
    .backward = grn_backward,
    .recompute = grn_normalise,
};
