/* pool.cuh: the windows of pool.h on the device, and the mapping of blocks to output images. */
#pragma once

#include "kernels/support/chunk.cuh"

extern "C" {
#include "kernels/pool/pool.h"
}

#define POOL_THREADS 256
#define GRID_MAX 65535           /* of blocks in the grid's second and third dimension */
#define NUMBER_MAX INT64_C(0x7fffffff)

/* Exact for 31-bit numbers: n / d is n * factor >> shift, factor being 2^shift / d rounded up. */
struct divider {
    uint32_t factor;
    int shift;
};
static inline struct divider divider_of(int64_t d)
{
    int bits = 0;
    while ((INT64_C(1) << bits) < d) bits++;
    uint64_t power = UINT64_C(1) << (31 + bits);
    return {.factor = (uint32_t)((power + (uint64_t)d - 1) / (uint64_t)d), .shift = 31 + bits};
}
__device__ static inline int divide(int n, struct divider by)
{
    return (int)((uint64_t)(uint32_t)n * by.factor >> by.shift);
}

/* A struct pool_axis, and a struct pool_plane, for kernels. */
struct line {
    int in, out, kernel, stride, pad, dilation;
    bool adaptive;
    struct divider by_in, by_out, by_stride, by_dilation;
};
struct plane {
    struct line h, w;
    int row_length;
    bool count_padding, relu;
    float share;             /* 1 / pool_divisor where all windows count alike; else 0 */
};

static inline struct line line_of(const struct pool_axis *a)
{
    struct line line = {.in = (int)a->in, .out = (int)a->out, .kernel = (int)a->kernel,
                        .stride = (int)a->stride, .pad = (int)a->pad, .dilation = (int)a->dilation,
                        .adaptive = a->adaptive};
    line.by_in = divider_of(a->in);
    line.by_out = divider_of(a->out);
    line.by_stride = divider_of(a->adaptive ? 1 : a->stride);
    line.by_dilation = divider_of(a->adaptive ? 1 : a->dilation);
    return line;
}

static inline bool windows_alike(const struct pool_axis *a, bool count_padding)
{
    if (a->adaptive) return a->in % a->out == 0;
    int64_t last = (a->out - 1) * a->stride - a->pad + a->kernel;
    return count_padding ? last <= a->in + a->pad : a->pad == 0 && last <= a->in;
}

static inline struct plane plane_of(const struct pool_plane *p)
{
    bool alike = windows_alike(&p->h, p->count_padding) && windows_alike(&p->w, p->count_padding);
    return {.h = line_of(&p->h), .w = line_of(&p->w), .row_length = (int)pool_row_length(p),
            .count_padding = p->count_padding, .relu = p->relu,
            .share = alike ? (float)(1 / pool_divisor(p, 0, 0)) : 0};
}

/* The side of windows that have loops of their own: 2 and 3, without dilation; else 0. */
static inline int known_kernel(const struct pool_plane *p)
{
    bool plain = !p->h.adaptive && p->h.dilation == 1;
    return plain && (p->h.kernel == 2 || p->h.kernel == 3) ? (int)p->h.kernel : 0;
}

/* An image: the plane, and the numbers of windows, cells or inputs along its height and width. */
struct grid_of_windows {
    struct plane plane;
    int rows, columns;
    struct divider by_rows, by_columns;
};

static struct grid_of_windows windows_of(const struct pool_plane *plane, int64_t rows, int64_t columns)
{
    return {plane_of(plane), (int)rows, (int)columns, divider_of(rows), divider_of(columns)};
}

/* A place of a window, or cell. */
struct window {
    int n, row, column;
};

__device__ static inline struct window window_at(const struct grid_of_windows &g, int index)
{
    int rest = divide(index, g.by_columns), n = divide(rest, g.by_rows);
    return {n, rest - n * g.rows, index - rest * g.columns};
}

/* Kernels count in 32 bits along an axis. */
static inline enum status plane_check(const struct pool_plane *p)
{
    const struct pool_axis *axes[2] = {&p->h, &p->w};
    for (int i = 0; i < 2; i++) {
        int64_t in = axes[i]->in, out = axes[i]->out;
        if (in > NUMBER_MAX / 4 || (axes[i]->adaptive && (out + 1) * (in + 1) > NUMBER_MAX))
            return fail(FAILED, "images of %lldx%lld are too large to pool on this device",
                        (long long)p->h.in, (long long)p->w.in);
    }
    return OK;
}

/* The device form of struct pool_span. */
struct span {
    int first, end, skipped;
};

__device__ static inline struct span inputs_of(const struct line &l, int output)
{
    if (l.adaptive)
        return {divide(output * l.in, l.by_out), divide((output + 1) * l.in + l.out - 1, l.by_out), 0};
    int start = output * l.stride - l.pad;
    int skipped = start < 0 ? divide(l.dilation - 1 - start, l.by_dilation) : 0;
    return {start + skipped * l.dilation, min(start + (l.kernel - 1) * l.dilation + 1, l.in), skipped};
}

__device__ static inline struct span outputs_of(const struct line &l, int input)
{
    if (l.adaptive)
        return {divide(input * l.out, l.by_in), divide((input + 1) * l.out + l.in - 1, l.by_in), 0};
    int first = max(input + l.pad - (l.kernel - 1) * l.dilation, 0);
    return {divide(first + l.stride - 1, l.by_stride), min(divide(input + l.pad, l.by_stride) + 1, l.out), 0};
}

__device__ static inline int position_of(const struct line &l, int output, int input)
{
    if (l.adaptive) return input - divide(output * l.in, l.by_out);
    int distance = input + l.pad - output * l.stride;
    if (l.dilation == 1) return distance;
    int number = divide(distance, l.by_dilation);
    return number * l.dilation == distance ? number : -1;
}

/* pool_divisor's factor of one axis. */
__device__ static inline int count_of(const struct plane &p, const struct line &l, int output)
{
    if (p.count_padding) {
        int start = output * l.stride - l.pad;
        return min(start + l.kernel, l.in + l.pad) - start;
    }
    struct span span = inputs_of(l, output);
    return span.end - span.first;
}
__device__ static inline float share_of(const struct plane &p, int h, int w)
{
    if (p.share > 0) return p.share;
    return 1.0f / ((float)count_of(p, p.h, h) * (float)count_of(p, p.w, w));
}

/* The image that is made, cut into tiles of a block each: neighbouring chunks of channels, then columns, then
 * rows; windows overlap, so that a tile is about as high as it is wide. */
struct tiles {
    int64_t n;
    int h, w, chunks;
    int across_bits, wide_bits;      /* of a tile: chunks and columns, as powers of two */
    int stripes, columns, lines;     /* tiles over all chunks, columns and rows */
};

static inline int bits_of(int power)
{
    int bits = 0;
    while (1 << bits < power) bits++;
    return bits;
}

static inline struct tiles tiles_of(struct shape made, int width)
{
    struct tiles t = {.n = made.n, .h = (int)made.h, .w = (int)made.w, .chunks = (int)(made.c / width)};
    int across = power_up(t.chunks, 8), pixels = POOL_THREADS / across;
    int high = pixels >= 64 ? 8 : 4;
    while (high > 1 && high / 2 >= t.h) high /= 2;
    int wide = power_up(t.w, pixels / high);
    while (across * 2 <= POOL_THREADS / (high * wide) && across < t.chunks) across *= 2;
    t.across_bits = bits_of(across);
    t.wide_bits = bits_of(wide);
    t.stripes = div_up(t.chunks, across);
    t.columns = div_up(t.w, wide);
    t.lines = div_up(t.h, POOL_THREADS / across / wide);
    return t;
}

static inline dim3 grid_of(const struct tiles &t)
{
    return dim3((unsigned)(t.stripes * t.columns), (unsigned)min(t.lines, GRID_MAX),
                (unsigned)(t.n < GRID_MAX ? t.n : GRID_MAX));
}

/* Calls work(n, h, w, c) for what this thread makes; c in chunks. */
template <class Work> __device__ static inline void for_each(const struct tiles &t, Work work)
{
    int stripe = blockIdx.x % t.stripes, column = blockIdx.x / t.stripes;
    int pixel = threadIdx.x >> t.across_bits, high = POOL_THREADS >> (t.across_bits + t.wide_bits);
    int c = (stripe << t.across_bits) + (threadIdx.x & ((1 << t.across_bits) - 1));
    int w = (column << t.wide_bits) + (pixel & ((1 << t.wide_bits) - 1));
    if (c >= t.chunks || w >= t.w) return;
    for (int64_t n = blockIdx.z; n < t.n; n += gridDim.z)
        for (int h = blockIdx.y * high + (pixel >> t.wide_bits); h < t.h; h += gridDim.y * high)
            work(n, h, w, c);
}
