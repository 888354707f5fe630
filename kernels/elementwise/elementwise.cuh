/* elementwise.cuh: ops that process one element of each tensor at a time, with 16-byte loads. */
#pragma once

#include <type_traits>

#include "kernels/support/chunk.cuh"

#define MAP_THREADS 256
#define MAP_CHUNKS 2     /* of one thread, in flight at once */

/* The second tensor of those that have one. */
struct nothing {};

template <class F, class A> __device__ static inline float apply(const F &function, A a, nothing)
{
    return function(to_float(a));
}
template <class F, class A, class B> __device__ static inline float apply(const F &function, A a, B b)
{
    return function(to_float(a), to_float(b));
}

/* y[i] = function(a[i], b[i]), or function(a[i]). y may be a or b. Types of storage may differ. The first
 * `chunks` * width elements are loaded and stored in chunks, the others one by one. */
template <class Y, class A, class B, class F>
__global__ void __launch_bounds__(MAP_THREADS)
elementwise_kernel(Y *y, const A *a, const B *b, int64_t count, int64_t chunks, F function)
{
    constexpr bool two = !std::is_same<B, nothing>::value;
    constexpr int width = pack<Y>::count < pack<A>::count ? pack<Y>::count : pack<A>::count;
    chunk<A, width> left[MAP_CHUNKS];
    chunk<B, width> right[MAP_CHUNKS];
    int64_t first = (int64_t)blockIdx.x * (MAP_THREADS * MAP_CHUNKS) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < MAP_CHUNKS; k++) {
        int64_t i = first + k * MAP_THREADS;
        if (i < chunks) left[k] = ((const chunk<A, width> *)a)[i];
        if (two && i < chunks) right[k] = ((const chunk<B, width> *)b)[i];
    }
#pragma unroll
    for (int k = 0; k < MAP_CHUNKS; k++) {
        int64_t i = first + k * MAP_THREADS;
        if (i >= chunks) break;
        chunk<Y, width> result;
#pragma unroll
        for (int e = 0; e < width; e++)
            result.at[e] = from_float<Y>(apply(function, left[k].at[e], right[k].at[e]));
        ((chunk<Y, width> *)y)[i] = result;
    }
    for (int64_t i = chunks * width + first, k = 0; k < MAP_CHUNKS && i < count; k++, i += MAP_THREADS) {
        if constexpr (two) y[i] = from_float<Y>(apply(function, a[i], b[i]));
        else y[i] = from_float<Y>(apply(function, a[i], nothing()));
    }
}

/* Queues it. Tensors that do not all lie at multiples of 16 bytes (the logits of a micro-batch among those of
 * the batch) are read and written one element at a time. */
template <class Y, class A, class B, class F>
static enum status map(const struct call *call, Y *y, const A *a, const B *b, int64_t count, F function)
{
    if (count == 0) return OK;
    constexpr int width = pack<Y>::count < pack<A>::count ? pack<Y>::count : pack<A>::count;
    bool aligned = ((uintptr_t)y | (uintptr_t)a | (uintptr_t)b) % 16 == 0;
    int64_t chunks = aligned ? count / width : 0;
    int64_t items = aligned ? div_up(count, (int64_t)width) : count;
    int64_t blocks = div_up(items, (int64_t)(MAP_THREADS * MAP_CHUNKS));
    elementwise_kernel<<<(unsigned)blocks, MAP_THREADS, 0, stream_of(call)>>>(y, a, b, count, chunks,
                                                                              function);
    return launched(call);
}

/* y = function(a), or function(a, b), of tensors of one type. */
template <class F>
static enum status map_tensor(const struct call *call, const struct tensor *y, const struct tensor *a,
                              F function)
{
    return with_type(y->dtype, [&](auto type) {
        using T = decltype(type);
        return map(call, (T *)y->data, (const T *)a->data, (const nothing *)NULL, shape_count(y->shape),
                   function);
    });
}
template <class F>
static enum status map_tensors(const struct call *call, const struct tensor *y, const struct tensor *a,
                               const struct tensor *b, F function)
{
    return with_type(y->dtype, [&](auto type) {
        using T = decltype(type);
        return map(call, (T *)y->data, (const T *)a->data, (const T *)b->data, shape_count(y->shape),
                   function);
    });
}
