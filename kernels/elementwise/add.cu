#include "kernels/elementwise/elementwise.cuh"

/* The inputs' addresses: given to the kernel by value. */
struct terms {
    int count;
    bool relu;
    const void *at[OP_MAX_INPUTS];
};

/* Adds the inputs in order and rounds once. y may be the first of them. */
template <class T, int width>
__global__ void __launch_bounds__(MAP_THREADS)
add_kernel(T *y, struct terms terms, int64_t first, int64_t end)
{
    int64_t i = first + ((int64_t)blockIdx.x * MAP_THREADS + threadIdx.x) * width;
    if (i >= end) return;
    float sum[width] = {};
#pragma unroll 4
    for (int term = 0; term < terms.count; term++) {
        chunk<T, width> x = *(const chunk<T, width> *)((const T *)terms.at[term] + i);
#pragma unroll
        for (int e = 0; e < width; e++) sum[e] = term == 0 ? to_float(x.at[e]) : sum[e] + to_float(x.at[e]);
    }
    chunk<T, width> result;
#pragma unroll
    for (int e = 0; e < width; e++) result.at[e] = from_float<T>(terms.relu && sum[e] <= 0 ? 0 : sum[e]);
    *(chunk<T, width> *)(y + i) = result;
}

/* Whole chunks, then the remaining elements. */
static enum status add_many(const struct call *call)
{
    struct terms terms = {.count = call->x_count, .relu = call_epilogue(call, EPILOGUE_RELU) != NULL};
    for (int i = 0; i < call->x_count; i++) terms.at[i] = call->x[i].data;
    int64_t count = shape_count(call->y.shape);
    return with_type(call->y.dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int width = pack<T>::count;
        int64_t whole = count / width * width;
        unsigned blocks = (unsigned)div_up(whole / width, (int64_t)MAP_THREADS);
        T *y = (T *)call->y.data;
        if (whole > 0)
            add_kernel<T, width><<<blocks, MAP_THREADS, 0, stream_of(call)>>>(y, terms, 0, whole);
        if (whole < count)
            add_kernel<T, 1><<<1, MAP_THREADS, 0, stream_of(call)>>>(y, terms, whole, count);
        return launched(call);
    });
}

static enum status add_forward(const struct call *call)
{
    if (call->x_count != 2) return add_many(call);
    if (call_epilogue(call, EPILOGUE_RELU))
        return map_tensors(call, &call->y, &call->x[0], &call->x[1],
                           [] __device__(float a, float b) { return a + b <= 0 ? 0 : a + b; });
    return map_tensors(call, &call->y, &call->x[0], &call->x[1],
                       [] __device__(float a, float b) { return a + b; });
}

const struct op_code add_cuda = {.supports = call_applies_relu, .forward = add_forward};
const struct op_code sum_cuda = {.forward = add_forward};
