/* block.cuh: reductions over the threads of a warp and of a block, in a fixed order. */
#pragma once

#include "kernels/support/cuda.cuh"

/* `combine` is commutative; every thread gets the result. Distances below `width` are used. */
template <class V, class F> __device__ static inline V warp_reduce(V value, F combine, int width = 32)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        if (distance < width) value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

/* Reduces over a block of `threads`, a power of two of at least 32, all of whom must call it. */
template <int threads, class V, class F> __device__ static inline V block_reduce(V value, F combine)
{
    constexpr int warps = threads / 32;
    value = warp_reduce(value, combine);
    if (warps == 1) return value;
    __shared__ V of_warp[warps];
    __syncthreads();                 /* results of an earlier call may still be read */
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_reduce(of_warp[threadIdx.x % warps], combine, warps);
}

template <int threads, class V> __device__ static inline V block_sum(V value)
{
    return block_reduce<threads>(value, [](V a, V b) { return a + b; });
}

/* True in one block: the last to finish, which sees what the others wrote before (read with
 * __ldcg). `finished` is 0 before the kernel and after it. */
__device__ static inline bool block_is_last(unsigned *finished)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(finished, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}
