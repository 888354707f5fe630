/* rows.cuh: means over an image's rows, by one block for some of its channels, and the broadcast of a row.
 * Sums are in fp32, in an order that depends only on the shape and the device's size. */
#pragma once

#include "kernels/support/columns.cuh"

/* `images` matrices of rows x columns, each times `factor`. */
struct rows_matrices {
    int64_t images, rows, columns;
    float factor;
};

/* Blocks are `across` chunks wide and `down` rows deep; `tiles` of them are side by side. */
struct rows_layout {
    int64_t images, rows, columns;
    float factor;
    int across, down;
    int64_t tiles;
};

#define ROWS_THREADS 1024
#define ROWS_ACROSS 32

/* Few blocks are made narrower, then deeper, so that there are enough threads. */
static inline struct rows_layout rows_layout(const struct call *call, struct rows_matrices m, int width)
{
    struct rows_layout l = {.images = m.images, .rows = m.rows, .columns = m.columns, .factor = m.factor};
    int64_t chunks = m.columns / width, enough = 2 * cuda_facts(call->device)->multiprocessors;
    l.across = power_up(chunks, ROWS_ACROSS);
    while (l.across > 8 && m.images * div_up(chunks, (int64_t)l.across) < enough) l.across /= 2;
    l.tiles = div_up(chunks, (int64_t)l.across);
    l.down = power_up(m.rows, (m.images * l.tiles < enough ? ROWS_THREADS : 256) / l.across);
    return l;
}

/* Bytes of shared memory in which a block merges one sum. */
static inline size_t merge_bytes(struct rows_layout l, int width)
{
    return sizeof(float) * (size_t)(l.across * l.down / 2 * (width | 1));
}

template <class Y, class X, int width>
__global__ void __launch_bounds__(ROWS_THREADS) sum_rows_kernel(Y *y, const X *x, struct rows_layout l)
{
    extern __shared__ float room[];
    unsigned image = blockIdx.x / (unsigned)l.tiles, tile = blockIdx.x % (unsigned)l.tiles;
    int64_t column = ((int64_t)tile * l.across + threadIdx.x) * width;
    column_sums<1, width> sum = {};
    if (column < l.columns) {
        const X *at = x + image * l.rows * l.columns + column;
#pragma unroll 8
        for (int64_t row = threadIdx.y; row < l.rows; row += l.down) {
            chunk<X, width> got = *(const chunk<X, width> *)(at + row * l.columns);
#pragma unroll
            for (int e = 0; e < width; e++) sum.at[0][e] += to_float(got.at[e]);
        }
    }
    merge_lanes<merge_sums>(sum, threadIdx.y, threadIdx.x, l.across, l.down, room);
    if (threadIdx.y > 0 || column >= l.columns) return;
    chunk<Y, width> result;
#pragma unroll
    for (int e = 0; e < width; e++) result.at[e] = from_float<Y>(sum.at[0][e] * l.factor);
    *(chunk<Y, width> *)(y + image * l.columns + column) = result;
}

/* y[image][column] = factor times the sum over rows of x[image][row][column]. */
template <class Y, class X, int width>
static enum status sum_rows(const struct call *call, Y *y, const X *x, struct rows_matrices m)
{
    if (m.images * m.columns == 0) return OK;
    struct rows_layout l = rows_layout(call, m, width);
    dim3 threads(l.across, l.down);
    unsigned blocks = (unsigned)(m.images * l.tiles);
    sum_rows_kernel<Y, X, width><<<blocks, threads, merge_bytes(l, width), stream_of(call)>>>(y, x, l);
    return launched(call);
}

#define SPREAD_THREADS 256
#define SPREAD_ROWS 8     /* of one thread */

/* `groups` of rows for each image's columns. */
static inline struct rows_layout spread_layout(struct rows_matrices m, int width, int64_t *groups)
{
    struct rows_layout l = {.images = m.images, .rows = m.rows, .columns = m.columns, .factor = m.factor};
    l.across = power_up(m.columns / width, SPREAD_THREADS);
    l.down = SPREAD_THREADS / l.across;
    l.tiles = div_up(m.columns / width, (int64_t)l.across);
    *groups = div_up(m.rows, (int64_t)SPREAD_ROWS * l.down);
    return l;
}

/* Blocks go through x as it lies in memory: tiles, then groups of rows, then images. */
template <class T, int width>
__global__ void __launch_bounds__(SPREAD_THREADS)
spread_rows_kernel(T *x, const T *y, struct rows_layout l, unsigned groups)
{
    unsigned tile = blockIdx.x % (unsigned)l.tiles, rest = blockIdx.x / (unsigned)l.tiles;
    unsigned group = rest % groups, image = rest / groups;
    int64_t column = ((int64_t)tile * l.across + threadIdx.x) * width;
    if (column >= l.columns) return;
    chunk<T, width> value = *(const chunk<T, width> *)(y + image * l.columns + column);
#pragma unroll
    for (int e = 0; e < width; e++) value.at[e] = from_float<T>(to_float(value.at[e]) * l.factor);
    int64_t first = (int64_t)group * SPREAD_ROWS * l.down + threadIdx.y;
    T *at = x + image * l.rows * l.columns + column;
#pragma unroll
    for (int i = 0; i < SPREAD_ROWS; i++) {
        int64_t row = first + (int64_t)i * l.down;
        if (row < l.rows) *(chunk<T, width> *)(at + row * l.columns) = value;
    }
}

/* x[image][row][column] = factor * y[image][column]. */
template <class T, int width>
static enum status spread_rows(const struct call *call, T *x, const T *y, struct rows_matrices m)
{
    if (m.images * m.rows * m.columns == 0) return OK;
    int64_t groups;
    struct rows_layout l = spread_layout(m, width, &groups);
    dim3 threads(l.across, l.down);
    spread_rows_kernel<T, width><<<(unsigned)(m.images * groups * l.tiles), threads, 0, stream_of(call)>>>(
        x, y, l, (unsigned)groups);
    return launched(call);
}
