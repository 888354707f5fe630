/* attention.cuh: what the CUDA kernels of attention share: the layout of a call, and tiles of
 * 16-bit matrices in shared memory. */
#pragma once

#include "kernels/support/chunk.cuh"
#include "kernels/linear/matrices.cuh"

extern "C" {
#include "kernels/attention/attention.h"
}

namespace attention_parts {

using namespace matrices;

constexpr float log2_e = 1.44269504088896340736f;

/* attention_plane as kernels read it. Scores are in units of log(2), so that exp2 gives their exponentials;
 * `scale` is of q . k. */
struct layout {
    int64_t groups, pixels;           /* pixels of x */
    int tokens, heads, size;
    float scale;
    int window, h, w, y_h, y_w, shift_h, shift_w;
    int across, in_image;             /* windows of a row, of an image */
};

static inline layout layout_of(const struct call *call)
{
    struct attention_plane p = attention_plane(call);
    int across = p.window > 0 ? (int)(p.w / p.window) : 1;
    return {.groups = p.groups, .pixels = attention_pixels(&p), .tokens = (int)p.tokens,
            .heads = (int)p.heads, .size = (int)p.size, .scale = (float)attention_scale(&p) * log2_e,
            .window = (int)p.window, .h = (int)p.h, .w = (int)p.w, .y_h = (int)p.y_h, .y_w = (int)p.y_w,
            .shift_h = (int)p.shift_h, .shift_w = (int)p.shift_w, .across = across,
            .in_image = p.window > 0 ? across * (int)(p.h / p.window) : 1};
}

/* The device code of attention_token. */
struct token {
    int64_t pixel, y_pixel;
    int region;
};

__device__ static inline int region_of(int at, int extent, int window, int shift)
{
    return shift == 0 || at < extent - window ? 0 : at < extent - shift ? 1 : 2;
}

/* The image and the first row and column of a window, in the rolled map. */
struct corner {
    int n, h, w;
};

__device__ static inline corner corner_of(const layout &l, int64_t group)
{
    unsigned at = (unsigned)group % (unsigned)l.in_image;
    return {(int)((unsigned)group / (unsigned)l.in_image), (int)(at / (unsigned)l.across) * l.window,
            (int)(at % (unsigned)l.across) * l.window};
}

__device__ static inline token token_at(const layout &l, const corner &from, int row, int column)
{
    int h = from.h + row, w = from.w + column;
    int region = 3 * region_of(h, l.h, l.window, l.shift_h) + region_of(w, l.w, l.window, l.shift_w);
    h += l.shift_h, w += l.shift_w;
    if (h >= l.h) h -= l.h;
    if (w >= l.w) w -= l.w;
    bool in_y = h < l.y_h && w < l.y_w;
    return {((int64_t)from.n * l.h + h) * l.w + w, in_y ? ((int64_t)from.n * l.y_h + h) * l.y_w + w : -1,
            region};
}

__device__ static inline token token_of(const layout &l, int64_t group, int index)
{
    if (l.window == 0) return {group * l.tokens + index, group * l.tokens + index, 0};
    return token_at(l, corner_of(l, group), index / l.window, index % l.window);
}

/* The row of the bias table, and back: how many rows and columns the query is behind the key. */
__device__ static inline int bias_row(int window, int query, int key)
{
    return (query / window - key / window + window - 1) * (2 * window - 1) + query % window - key % window +
           window - 1;
}

/* The tensors of a call; those that are not wanted or not there are NULL. The table is [rows, heads]. */
template <class T> struct tensors {
    const T *x, *y, *d_y;
    T *to;                            /* y or d_x */
    float *lse;
    const float *table;
};

template <class T> static tensors<T> tensors_of(const struct call *call)
{
    bool backward = call->phase == PHASE_BACKWARD, saves = call->saved_count > 0;
    tensors<T> t = {};
    t.x = (const T *)call->x[0].data;
    t.y = (const T *)call->y.data, t.d_y = (const T *)call->d_y.data;
    t.to = (T *)(backward ? call->d_x[0].data : call->y.data);
    t.lse = saves && call->phase != PHASE_RECOMPUTE ? (float *)call->saved[ATTENTION_LSE].data : NULL;
    t.table = call->param_count > 0 ? (const float *)call->params[0].data : NULL;
    return t;
}

/* All of the memory that a multiprocessor can share, for several blocks. */
template <class Kernel> static enum status open_shared(const struct call *call, Kernel kernel, size_t bytes)
{
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    return cuda_status(call->device, error, "attention: shared memory");
}

__device__ static inline uint32_t pack_two(float low, float high, __half)
{
    __half2 two = __floats2half2_rn(low, high);
    return *(uint32_t *)&two;
}
__device__ static inline uint32_t pack_two(float low, float high, __nv_bfloat16)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&two;
}

/* Two units further on, k times, in a row; permuted units differ in bits of the address, as matrices begin at
 * multiples of a row's bytes. */
template <int size> __device__ static inline uint32_t units_on(uint32_t at, int k)
{
    return pitch<size>() == size / 8 ? at ^ (uint32_t)(32 * k) : at + 32 * k;
}

/* Left factors of a product over 16: those of 16 rows of a matrix, or what products left, of two tiles of
 * eight columns. */
template <int size> struct left_rows {
    uint32_t at;
    __device__ left_rows(const uint4 *matrix, int row)
    {
        int lane = threadIdx.x % 32;
        at = address_of(matrix + unit_of<size>(row + lane % 16, lane / 16));
    }
    __device__ void load(uint32_t (&to)[4], int row, int k) const
    {
        load_matrices(to, units_on<size>(at + row * (pitch<size>() * 16), k));
    }
};

template <int size>
__device__ static inline void load_rows(uint32_t (&to)[size / 16][4], const uint4 *matrix, int row)
{
    left_rows<size> rows(matrix, row);
#pragma unroll
    for (int k = 0; k < size / 16; k++) rows.load(to[k], 0, k);
}

template <class T>
__device__ static inline void pack_rows(uint32_t (&to)[4], const float (&left)[4], const float (&right)[4])
{
    to[0] = pack_two(left[0], left[1], T());
    to[1] = pack_two(left[2], left[3], T());
    to[2] = pack_two(right[0], right[1], T());
    to[3] = pack_two(right[2], right[3], T());
}

/* Where a lane reads right factors of 16 rows of a matrix: as columns of the product, k over the row; or
 * turned, k over the rows. */
template <int size> struct right_columns {
    uint32_t at;
    __device__ right_columns(const uint4 *matrix)
    {
        int lane = threadIdx.x % 32;
        at = address_of(matrix + unit_of<size>(lane % 8 + lane / 16 * 8, lane / 8 % 2));
    }
    __device__ void load(uint32_t (&to)[4], int row, int k) const
    {
        load_matrices(to, units_on<size>(at + row * (pitch<size>() * 16), k));
    }
};
template <int size> struct right_rows {
    uint32_t at;
    __device__ right_rows(const uint4 *matrix)
    {
        int lane = threadIdx.x % 32;
        at = address_of(matrix + unit_of<size>(lane % 16, lane / 16));
    }
    __device__ void load(uint32_t (&to)[4], int row, int k) const
    {
        load_turned(to, units_on<size>(at + row * (pitch<size>() * 16), k));
    }
};

/* Four words of each lane of a quad, turned: lane i gets all words i. */
__device__ static inline void turn_quad(uint32_t (&word)[4])
{
    bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? word[i] : word[i + 1], 1);
        if (odd) word[i] = got;
        else word[i + 1] = got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, high ? word[i] : word[i + 2], 2);
        if (high) word[i] = got;
        else word[i + 2] = got;
    }
}

/* Stores one of two rows, `half`, of a product times `factor` to a row of `size` numbers in memory; every
 * lane calls it. */
template <class T, int size>
__device__ static inline void store_row(T *to, const float (&d)[size / 8][4], int half, float factor,
                                        bool here)
{
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n + 4 <= size / 8; n += 4) {
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            word[i] = pack_two(d[n + i][2 * half] * factor, d[n + i][2 * half + 1] * factor, T());
        turn_quad(word);
        if (here) *(uint4 *)(to + (n + lane) * 8) = make_uint4(word[0], word[1], word[2], word[3]);
    }
#pragma unroll
    for (int n = size / 32 * 4; n < size / 8; n++)
        if (here)
            *(uint32_t *)(to + n * 8 + 2 * lane) =
                pack_two(d[n][2 * half] * factor, d[n][2 * half + 1] * factor, T());
}

/* ---- The kernels' launches: false if they are not for this call ---- */

bool tiles_take(const struct call *call, const layout &l);
/* True if all tokens of a head are in registers or shared memory at once; else they pass in parts. */
bool tiles_hold(const struct call *call, const layout &l, bool backward);
enum status tiles_forward(const struct call *call, const layout &l);
enum status tiles_backward(const struct call *call, const layout &l);

bool floats_take(const struct call *call, const layout &l);
enum status floats_run(const struct call *call, const layout &l);      /* without the table's gradient */

bool windows_take(const struct call *call, const layout &l);
size_t windows_workspace(const struct call *call, const layout &l);
enum status windows_forward(const struct call *call, const layout &l);
enum status windows_backward(const struct call *call, const layout &l);

}
