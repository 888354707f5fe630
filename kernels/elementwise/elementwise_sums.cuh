/* elementwise_sums.cuh: gradients of elementwise ops and, in the same sweep, their sums by channel, which the
 * bias of the op in front needs, and y, if that is wanted again. Each block leaves sums of its rows, which
 * are added up in order. */
#pragma once

#include "kernels/elementwise/elementwise.cuh"
#include "kernels/support/rows.cuh"

#define MAP_SHARES 512       /* blocks below one another, at most */
#define MAP_ROWS 3           /* of a thread, in flight at once */

template <class F, class T>
__device__ static inline float gradient_again(const F &function, float d_y, float x, T *again)
{
    float y, d_x = function(d_y, x, &y);
    *again = from_float<T>(y);
    return d_x;
}

/* d_x = function(d_y, x) of rows of `channels`; with `remakes`, function(d_y, x, &y). A block is `across`
 * chunks wide: shares[blockIdx.y][channel], unless that is NULL. */
template <class T, int width, bool remakes, class F>
__global__ void __launch_bounds__(MAP_THREADS)
elementwise_sums_kernel(T *d_x, T *again, const T *d_y, const T *x, float *shares, int64_t rows,
                        int channels, int across, F function)
{
    __shared__ float room[width * MAP_THREADS];
    int down = MAP_THREADS / across, lane = threadIdx.x % across, first = threadIdx.x / across;
    int channel = (blockIdx.x * across + lane) * width;
    int64_t step = (int64_t)gridDim.y * down;
    float sum[width] = {};
    for (int64_t row = (int64_t)blockIdx.y * down + first; channel < channels && row < rows;
         row += MAP_ROWS * step) {
        chunk<T, width> a[MAP_ROWS], b[MAP_ROWS];
#pragma unroll
        for (int k = 0; k < MAP_ROWS; k++) {
            int64_t at = (row + k * step) * channels + channel;
            if (row + k * step >= rows) continue;
            a[k] = *(const chunk<T, width> *)(d_y + at);
            b[k] = *(const chunk<T, width> *)(x + at);
        }
#pragma unroll
        for (int k = 0; k < MAP_ROWS; k++) {
            if (row + k * step >= rows) continue;
            chunk<T, width> out, y;
#pragma unroll
            for (int e = 0; e < width; e++) {
                float own = to_float(a[k].at[e]), at = to_float(b[k].at[e]);
                if constexpr (remakes) out.at[e] = from_float<T>(gradient_again(function, own, at, &y.at[e]));
                else out.at[e] = from_float<T>(function(own, at));
                sum[e] += to_float(out.at[e]);
            }
            int64_t place = (row + k * step) * channels + channel;
            *(chunk<T, width> *)(d_x + place) = out;
            if constexpr (remakes) *(chunk<T, width> *)(again + place) = y;
        }
    }
    if (!shares) return;
#pragma unroll
    for (int e = 0; e < width; e++) room[e * MAP_THREADS + threadIdx.x] = sum[e];
    __syncthreads();
    if (first > 0 || channel >= channels) return;
#pragma unroll
    for (int e = 0; e < width; e++) {
        float total = 0;
        for (int i = 0; i < down; i++) total += room[e * MAP_THREADS + i * across + lane];
        shares[(int64_t)blockIdx.y * channels + channel + e] = total;
    }
}

static inline int64_t map_shares(const struct tensor *d_x)
{
    int64_t rows = shape_count(d_x->shape) / d_x->shape.c, shares = div_up(rows, (int64_t)64);
    return shares < MAP_SHARES ? shares : MAP_SHARES;
}

/* op_code.workspace of code that writes D_X_SUMS. */
static size_t map_sums_workspace(const struct call *call)
{
    const struct tensor *d_x = &call->d_x[0];
    bool wanted = call_operand(call, OPERAND_D_X_SUMS) && d_x->shape.rank > 0;
    if (!wanted || shape_count(d_x->shape) == 0) return 0;
    return (size_t)(map_shares(d_x) * d_x->shape.c) * sizeof(float);
}

/* d_x = function(d_y, value), and its sums, if the call has them; with `remakes`, Y_RECOMPUTED, too. d_x may
 * be d_y. */
template <bool remakes = false, class F>
static enum status map_with_sums(const struct call *call, const struct tensor *value, F function)
{
    const struct tensor *d_x = &call->d_x[0];
    int64_t channels = d_x->shape.c, rows = shape_count(d_x->shape) / channels, shares = map_shares(d_x);
    return with_chunk(d_x->dtype, channels, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        int across = power_up(channels / width, 32);
        dim3 grid((unsigned)div_up(channels / width, (int64_t)across), (unsigned)shares);
        float *sums = (float *)call_data(call, OPERAND_D_X_SUMS);
        elementwise_sums_kernel<T, width, remakes><<<grid, MAP_THREADS, 0, stream_of(call)>>>(
            (T *)d_x->data, (T *)call_data(call, OPERAND_Y_RECOMPUTED), (const T *)call->d_y.data,
            (const T *)value->data, sums ? (float *)call->workspace : NULL, rows, (int)channels, across,
            function);
        TRY(launched(call));
        if (!sums) return OK;
        return sum_rows<float, float, 1>(call, sums, (const float *)call->workspace,
                                         {1, shares, channels, 1});
    });
}
