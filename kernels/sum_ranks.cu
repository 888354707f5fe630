#include "base/sum_tree.h"
#include "kernels/chunk.cuh"

#define THREADS 256
#define RANKS_MAX 1024
#define DEPTH 12             /* of partial sums, for as many ranks and a run of an odd number of them */

/* By rank: how many sums end with it. */
struct joins {
    unsigned char of[RANKS_MAX];
};

template <class T, int width>
__global__ void __launch_bounds__(THREADS)
sum_ranks_kernel(T *y, const T *x, int ranks, int64_t count, const __grid_constant__ struct joins joins)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * width;
    if (i >= count) return;
    chunk<T, width> stack[DEPTH], sum;
    int depth = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sum = *(const chunk<T, width> *)(x + rank * count + i);
        for (int join = joins.of[rank]; join > 0; join--) {
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
    struct joins joins = {};
    if (ranks > RANKS_MAX) return fail(NO_DEVICE, "gradients of %d ranks: %d is the most", ranks, RANKS_MAX);
    for (int rank = 0; rank < ranks; rank++) joins.of[rank] = (unsigned char)sum_tree_joins(ranks, rank);
    return with_chunk(call->y.dtype, call->y.shape.c, [&](auto type, auto width) {
        using T = decltype(type);
        constexpr int wide = decltype(width)::number;
        int64_t blocks = div_up(div_up(count, (int64_t)wide), (int64_t)THREADS);
        sum_ranks_kernel<T, wide><<<(unsigned)blocks, THREADS, 0, stream_of(call)>>>(
            (T *)call->y.data, (const T *)call->x[0].data, ranks, count, joins);
        return launched(call);
    });
}

const struct op_code sum_ranks_cuda = {.forward = forward};
