/* attention_tiles.cuh: what one warp computes of attention: scores and gradients of tiles of 16 rows. */
#pragma once

#include "kernels/attention/attention.cuh"

namespace attention_parts {

/* Over the four lanes that share a row. */
__device__ static inline float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ static inline float quad_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* s = q k' for 16 queries and all of `tiles` * 8 keys. */
template <class T, int size, int tiles>
__device__ static inline void scores_of(float (&s)[tiles][4], const uint32_t (&q)[size / 16][4],
                                        const right_columns<size> &keys)
{
#pragma unroll
    for (int n = 0; n < tiles; n += 2) {
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = s[n + 1][e] = 0;
#pragma unroll
        for (int k = 0; k < size / 16; k++) {
            uint32_t b[4];
            keys.load(b, n * 8, k);
            multiply(s[n], q[k], b[0], b[1], T());
            multiply(s[n + 1], q[k], b[2], b[3], T());
        }
    }
}

/* The columns behind the last key become -inf. */
template <int tiles> __device__ static inline void cut_columns(float (&s)[tiles][4], int columns)
{
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < tiles; n++)
        if (8 * n + 8 > columns)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (8 * n + 2 * lane + e % 2 >= columns) s[n][e] = -INFINITY;
}

/* The softmax of two rows of a lane so far: sums of exp2(score - max). */
struct softmax {
    float max[2], sum[2];
};

/* s becomes exp2(s * scale - max), with the row's maximum so far; factor: what earlier sums and results are
 * multiplied by. */
template <int tiles>
__device__ static inline void exponentials(float (&s)[tiles][4], float scale, softmax &of, float (&factor)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float max = -INFINITY, sum = 0;
#pragma unroll
        for (int n = 0; n < tiles; n++) max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        max = fmaxf(of.max[half], quad_max(max) * scale);
        factor[half] = exp2_of(of.max[half] - max);
        of.max[half] = max;
#pragma unroll
        for (int n = 0; n < tiles; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                s[n][e] = exp2_of(fmaf(s[n][e], scale, -max));
                sum += s[n][e];
            }
        of.sum[half] = fmaf(of.sum[half], factor[half], sum);
    }
}

/* out += p v. */
template <class T, int size, int tiles>
__device__ static inline void mix(float (&out)[size / 8][4], const float (&p)[tiles][4],
                                  const right_rows<size> &values)
{
#pragma unroll
    for (int n = 0; n < tiles; n += 2) {
        uint32_t a[4];
        pack_rows<T>(a, p[n], p[n + 1]);
#pragma unroll
        for (int k = 0; k < size / 16; k++) {
            uint32_t b[4];
            values.load(b, n * 8, k);
            multiply(out[2 * k], a, b[0], b[1], T());
            multiply(out[2 * k + 1], a, b[2], b[3], T());
        }
    }
}

/* Stores y and the logarithm of the sum of two rows of a lane, from their softmax and place in y. */
template <class T, int size>
__device__ static inline void store_results(const tensors<T> &t, const layout &l, const token (&of)[2],
                                            const bool (&here)[2], int head, const float (&out)[size / 8][4],
                                            softmax &rows)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = quad_sum(rows.sum[half]);
        bool stored = here[half] && of[half].y_pixel >= 0;
        store_row<T, size>(t.to + (of[half].y_pixel * l.heads + head) * size, out, half, 1 / sum, stored);
        if (t.lse && here[half] && threadIdx.x % 4 == 0)
            t.lse[head * l.pixels + of[half].pixel] = (rows.max[half] + log2f(sum)) / log2_e;
    }
}

/* ---- Backward: `many` tiles of 16 rows of a warp with 16 columns at a time ---- */

/* Their left factors: those of the second matrix are loaded again for each product if registers are short. */
template <int size, int many, bool kept> struct own_rows {
    uint32_t first[many][size / 16][4], second[kept ? many : 1][size / 16][4];
    left_rows<size> again;
    __device__ own_rows(const uint4 *first_matrix, const uint4 *second_matrix, int row)
        : again(second_matrix, row)
    {
        left_rows<size> rows(first_matrix, row);
#pragma unroll
        for (int m = 0; m < many; m++)
#pragma unroll
            for (int k = 0; k < size / 16; k++) {
                rows.load(first[m][k], 16 * m, k);
                if (kept) again.load(second[m][k], 16 * m, k);
            }
    }
};

/* s = own.first columns.first', d = own.second columns.second'. */
template <class T, int size, int many, bool kept>
__device__ static inline void products_of(float (&s)[many][2][4], float (&d)[many][2][4],
                                          const own_rows<size, many, kept> &own,
                                          const right_columns<size> &first,
                                          const right_columns<size> &second, int column)
{
#pragma unroll
    for (int m = 0; m < many; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[m][n][e] = d[m][n][e] = 0;
#pragma unroll
    for (int k = 0; k < size / 16; k++) {
        uint32_t b[4], c[4];
        first.load(b, column, k);
        second.load(c, column, k);
#pragma unroll
        for (int m = 0; m < many; m++) {
            multiply(s[m][0], own.first[m][k], b[0], b[1], T());
            multiply(s[m][1], own.first[m][k], b[2], b[3], T());
            if (kept) {
                multiply(d[m][0], own.second[m][k], c[0], c[1], T());
                multiply(d[m][1], own.second[m][k], c[2], c[3], T());
            } else {
                uint32_t a[4];
                own.again.load(a, 16 * m, k);
                multiply(d[m][0], a, c[0], c[1], T());
                multiply(d[m][1], a, c[2], c[3], T());
            }
        }
    }
}

/* sums += p rows, of 16 rows from `row` on. */
template <class T, int size, int many>
__device__ static inline void collect(float (&sums)[many][size / 8][4], const float (&p)[many][2][4],
                                      const right_rows<size> &rows, int row)
{
    uint32_t a[many][4];
#pragma unroll
    for (int m = 0; m < many; m++) pack_rows<T>(a[m], p[m][0], p[m][1]);
#pragma unroll
    for (int k = 0; k < size / 16; k++) {
        uint32_t b[4];
        rows.load(b, row, k);
#pragma unroll
        for (int m = 0; m < many; m++) {
            multiply(sums[m][2 * k], a[m], b[0], b[1], T());
            multiply(sums[m][2 * k + 1], a[m], b[2], b[3], T());
        }
    }
}

template <int size, int many> __device__ static inline void clear(float (&sums)[many][size / 8][4])
{
#pragma unroll
    for (int m = 0; m < many; m++)
#pragma unroll
        for (int n = 0; n < size / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[m][n][e] = 0;
}

/* Takes 16 columns that are queries, from `column` on: p = exp2(s * scale - lse), s becomes p, d becomes
 * p (d - delta). */
template <int many>
__device__ static inline void gradients_of_keys(float (&s)[many][2][4], float (&d)[many][2][4], float scale,
                                                const float *lse, const float *delta, int column)
{
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float2 log = *(const float2 *)(lse + column + 8 * n + 2 * lane);
        float2 sum = *(const float2 *)(delta + column + 8 * n + 2 * lane);
#pragma unroll
        for (int m = 0; m < many; m++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[m][n][e] = exp2_of(fmaf(s[m][n][e], scale, e % 2 ? -log.y : -log.x));
                d[m][n][e] = s[m][n][e] * (d[m][n][e] - (e % 2 ? sum.y : sum.x));
            }
    }
}

/* Takes 16 columns that are keys, of which `columns` exist; lse and delta are of a lane's rows. d becomes
 * p (d - delta). */
template <int many>
__device__ static inline void gradients_of_queries(float (&s)[many][2][4], float (&d)[many][2][4],
                                                   float scale, const float (&lse)[many][2],
                                                   const float (&delta)[many][2], int columns)
{
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < many; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float p = exp2_of(fmaf(s[m][n][e], scale, -lse[m][e / 2]));
                if (columns < 16 && 8 * n + 2 * lane + e % 2 >= columns) p = 0;
                d[m][n][e] = p * (d[m][n][e] - delta[m][e / 2]);
            }
}

}
