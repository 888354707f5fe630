/* channel_sums.cu: each block sums a share of the pixels, then the shares are summed in a fixed order. */
#include "kernels/support/channel_sums.cuh"

#include "kernels/support/chunk.cuh"
#include "kernels/support/dependent_launch.cuh"

#define THREADS 256
#define SHARES 512
#define PACK 8               /* numbers of 16 bits that are loaded at once */

static int64_t share_count(int64_t rows)
{
    int64_t shares = div_up(rows, (int64_t)64);
    return shares < 1 ? 1 : shares < SHARES ? shares : SHARES;
}

/* So many rows side by side have a multiple of PACK channels. */
static int side_by_side(int channels)
{
    int rows = 1;
    while (rows * channels % PACK != 0) rows *= 2;
    return rows;
}

size_t channel_sums_workspace(int64_t rows, int width, bool squares)
{
    return (size_t)(share_count(rows) * width * side_by_side(width)) * sizeof(float) * (squares ? 2 : 1);
}

/* Summands: where there are numbers, only y whose number is not left_out; or, of larger images y, the
 * pixels that a stride picks, which are copied. */
template <class T> struct summands {
    const T *y;
    const uint8_t *numbers;
    int left_out;
    int64_t rows;
    int channels;
    T *copy;
    int in[2], out[2], stride[2];
    /* The row of y that a row of the copy is of. */
    __device__ int64_t picked(int64_t row) const
    {
        unsigned w = (unsigned)row % out[1], line = (unsigned)row / out[1];
        unsigned h = line % out[0] * stride[0], n = line / out[0];
        return ((int64_t)n * in[0] + h) * in[1] + w * stride[1];
    }
};

enum summing { SUMS, SUMS_AND_SQUARES, SUMS_OF_PICKED };

/* A block is `across` threads wide, each with `width` channels: shares[blockIdx.y][sums, squares][channel].
 */
template <class T, int width, enum summing what>
__global__ void channel_shares_kernel(float *shares, const __grid_constant__ summands<T> of, int across)
{
    constexpr bool squares = what == SUMS_AND_SQUARES, copies = what == SUMS_OF_PICKED;
    constexpr int kinds = squares ? 2 : 1, unroll = squares ? 1 : 4;   /* rows of a thread in flight */
    bool numbered = !copies && of.numbers;
    __shared__ float sums[kinds][THREADS * width];
    int lane = threadIdx.x % across, down = THREADS / across, first = (blockIdx.x * across + lane) * width;
    int channels = of.channels;
    float sum[kinds][width] = {};
    let_next_begin();
    int64_t step = (int64_t)gridDim.y * down, row = (int64_t)blockIdx.y * down + threadIdx.x / across;
    for (; first < channels && row < of.rows; row += unroll * step) {
        chunk<T, width> got[unroll];
        chunk<uint8_t, width> numbers[unroll] = {};
#pragma unroll
        for (int j = 0; j < unroll; j++) {
            int64_t here = row + j * step;
            if (here >= of.rows) continue;
            int64_t from = copies ? of.picked(here) : here;
            got[j] = *(const chunk<T, width> *)(of.y + from * channels + first);
            if (numbered)
                numbers[j] = *(const chunk<uint8_t, width> *)(of.numbers + here * channels + first);
        }
#pragma unroll
        for (int j = 0; j < unroll; j++) {
            int64_t here = row + j * step;
            if (here >= of.rows) continue;
            if (copies) *(chunk<T, width> *)(of.copy + here * channels + first) = got[j];
#pragma unroll
            for (int i = 0; i < width; i++) {
                if (numbered && numbers[j].at[i] == of.left_out) continue;
                float value = to_float(got[j].at[i]);
                sum[0][i] += value;
                if (squares) sum[kinds - 1][i] += value * value;
            }
        }
    }
#pragma unroll
    for (int kind = 0; kind < kinds; kind++)
#pragma unroll
        for (int i = 0; i < width; i++) sums[kind][threadIdx.x * width + i] = sum[kind][i];
    __syncthreads();
    int wide = across * width;
    for (int i = threadIdx.x; i < kinds * wide; i += THREADS) {
        int kind = i / wide, channel = blockIdx.x * wide + i % wide;
        float total = 0;
        for (int k = 0; k < down; k++) total += sums[kind][k * wide + i % wide];
        if (channel < channels) shares[((int64_t)blockIdx.y * kinds + kind) * channels + channel] = total;
    }
}

/* to[i] = the sum of shares[s][i], a block for 32 of them. */
__global__ static void channel_sum_shares_kernel(float *to, const float *shares, int share_count, int count)
{
    __shared__ float sums[32][33];
    int i = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    wait_for_last();
    let_next_begin();
    if (i < count)
        for (int share = threadIdx.y; share < share_count; share += 32)
            sum += shares[(int64_t)share * count + i];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = sums[threadIdx.x][threadIdx.y];              /* now a warp holds the parts of one element */
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    int element = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && element < count) to[element] = sum;
}

enum status channel_sum_shares(const struct call *call, float *to, const float *shares, int share_count,
                            int count)
{
    unsigned blocks = (unsigned)div_up(count, 32);
    return launch_behind(call, channel_sum_shares_kernel, blocks, dim3(32, 32), to, shares, share_count,
                         count);
}

/* `beside`: pixels that a row has side by side, whose shares are shares of the same channels. */
template <class T, int width, enum summing what>
static enum status sums_by(const struct call *call, const summands<T> &of, int beside, float *to)
{
    int lanes = of.channels / width, across = power_up(lanes, 32);
    unsigned shares = (unsigned)share_count(of.rows), wide = (unsigned)div_up(lanes, across);
    float *workspace = (float *)call->workspace;
    channel_shares_kernel<T, width, what>
        <<<dim3(wide, shares), THREADS, 0, stream_of(call)>>>(workspace, of, across);
    TRY(launched(call));
    int kinds = what == SUMS_AND_SQUARES ? 2 : 1;
    return channel_sum_shares(call, to, workspace, (int)shares * beside, of.channels / beside * kinds);
}

template <enum summing what>
static enum status sums_of(const struct call *call, const struct tensor *y, float *to, const uint8_t *numbers,
                           int left_out)
{
    int channels = (int)y->shape.c, beside = side_by_side(channels);
    int64_t rows = y->shape.n * y->shape.h * y->shape.w;
    if (what != SUMS || rows % beside != 0) beside = 1;
    rows /= beside, channels *= beside;
    return with_chunk(y->dtype, channels, [&](auto type, auto wide) {
        using T = decltype(type);
        summands<T> of = {.y = (const T *)y->data, .numbers = numbers, .left_out = left_out, .rows = rows,
                          .channels = channels};
        return sums_by<T, decltype(wide)::number, what>(call, of, beside, to);
    });
}

enum status channel_sums(const struct call *call, const struct tensor *y, float *to, bool squares)
{
    return squares ? sums_of<SUMS_AND_SQUARES>(call, y, to, NULL, 0) : sums_of<SUMS>(call, y, to, NULL, 0);
}

enum status channel_sums_where(const struct call *call, const struct tensor *y, float *to,
                            const uint8_t *numbers, int left_out)
{
    return sums_of<SUMS>(call, y, to, numbers, left_out);
}

enum status channel_sums_picked(const struct pick *p, const struct call *call, void *picked,
                             const void *x, float *to)
{
    return with_chunk(p->dtype, p->c, [&](auto type, auto wide) {
        using T = decltype(type);
        summands<T> of = {.y = (const T *)x,
                          .rows = (int64_t)p->n * p->out[0] * p->out[1],
                          .channels = p->c,
                          .copy = (T *)picked,
                          .in = {p->in[0], p->in[1]},
                          .out = {p->out[0], p->out[1]},
                          .stride = {p->stride[0], p->stride[1]}};
        return sums_by<T, decltype(wide)::number, SUMS_OF_PICKED>(call, of, 1, to);
    });
}
