#include "base/sum_tree.h"
#include "kernels/support/chunk.cuh"
#include "kernels/exchange/sum_ranks.h"

#define THREADS 256
#define RANKS_MAX 1024
#define DEPTH 12             /* of partial sums, for as many ranks and a run of an odd number of them */

/* Shares of all ranks, one behind another, but for that of the rank `own`. */
struct shares {
    const void *all, *apart;
    int own, ranks;
    unsigned char joins[RANKS_MAX];      /* by rank: how many sums end with it */
};

template <class T, int width>
__global__ void __launch_bounds__(THREADS)
sum_ranks_kernel(T *y, int64_t count, const __grid_constant__ struct shares shares)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * width;
    if (i >= count) return;
    chunk<T, width> stack[DEPTH], sum;
    int depth = 0;
    for (int rank = 0; rank < shares.ranks; rank++) {
        const T *from = rank == shares.own ? (const T *)shares.apart : (const T *)shares.all + rank * count;
        sum = *(const chunk<T, width> *)(from + i);
        for (int join = shares.joins[rank]; join > 0; join--) {
            depth--;
#pragma unroll
            for (int e = 0; e < width; e++)
                sum.at[e] = from_float<T>(to_float(stack[depth].at[e]) + to_float(sum.at[e]));
        }
        stack[depth++] = sum;
    }
    *(chunk<T, width> *)(y + i) = sum;
}

static enum status forward(const struct call *call)
{
    int ranks = (int)call->x[0].shape.n;
    int64_t count = shape_count(call->y.shape);
    struct shares shares = {call->x[0].data, NULL, sum_ranks_own(call), ranks, {}};
    if (shares.own >= 0) shares.apart = call->x[1].data;
    if (ranks > RANKS_MAX) return fail(NO_DEVICE, "gradients of %d ranks: %d is the most", ranks, RANKS_MAX);
    for (int rank = 0; rank < ranks; rank++) shares.joins[rank] = (unsigned char)sum_tree_joins(ranks, rank);
    return with_chunk(call->y.dtype, call->y.shape.c, [&](auto type, auto width) {
        using T = decltype(type);
        constexpr int wide = decltype(width)::number;
        int64_t blocks = div_up(div_up(count, (int64_t)wide), (int64_t)THREADS);
        sum_ranks_kernel<T, wide><<<(unsigned)blocks, THREADS, 0, stream_of(call)>>>(
            (T *)call->y.data, count, shares);
        return launched(call);
    });
}

const struct op_code sum_ranks_cuda = {.forward = forward};
