/* elementwise.cuh: ops that look at one element of each tensor at a time, 16 bytes a thread. */
#ifndef KERNELS_ELEMENTWISE_CUH
#define KERNELS_ELEMENTWISE_CUH

#include "kernels/cuda.cuh"

/* y[i] = function(a[i], b[i]); with one input, b is a. y may be a or b. Types of storage may differ. */
template <class Y, class A, class B, class F>
__global__ void map_packs(Y *y, const A *a, const B *b, int64_t count, F function)
{
    constexpr int width = pack<Y>::count < pack<A>::count ? pack<Y>::count : pack<A>::count;
    struct alignas(width * sizeof(Y)) out { Y at[width]; };
    struct alignas(width * sizeof(A)) in_a { A at[width]; };
    struct alignas(width * sizeof(B)) in_b { B at[width]; };
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t i = first; i < count / width; i += stride) {
        in_a left = ((const in_a *)a)[i];
        in_b right = ((const in_b *)b)[i];
        out result;
#pragma unroll
        for (int k = 0; k < width; k++)
            result.at[k] = from_float<Y>(function(to_float(left.at[k]), to_float(right.at[k])));
        ((out *)y)[i] = result;
    }
    int64_t rest = count / width * width + first;
    if (rest < count) y[rest] = from_float<Y>(function(to_float(a[rest]), to_float(b[rest])));
}

/* Queues it; tensors lie at multiples of 16 bytes. */
template <class Y, class A, class B, class F>
static enum status map(const struct call *call, Y *y, const A *a, const B *b, int64_t count, F function)
{
    if (count == 0) return OK;
    constexpr int threads = 256;
    constexpr int width = pack<Y>::count < pack<A>::count ? pack<Y>::count : pack<A>::count;
    map_packs<<<grid_of(call, div_up(count, (int64_t)width), threads, 4), threads, 0, stream_of(call)>>>(y, a, b, count, function);
    return launched(call);
}

/* The same with tensors of one type. */
template <class F>
static enum status map_tensors(const struct call *call, const struct tensor *y, const struct tensor *a,
                               const struct tensor *b, F function)
{
    return with_type(y->dtype, [&](auto type) {
        using T = decltype(type);
        return map(call, (T *)y->data, (const T *)a->data, (const T *)b->data, shape_count(y->shape), function);
    });
}

#endif
