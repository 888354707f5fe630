/* dropout.cu: a thread draws four random words and applies them to the corresponding elements. */
#include "kernels/support/copy.cuh"

extern "C" {
#include "kernels/elementwise/dropout.h"
}

static constexpr int threads = 256;

template <class T> struct alignas(4 * sizeof(T)) four {
    T at[4];
};

/* Words of `random` from `first` on; elements whose word is below the threshold are dropped, the others
 * scaled. */
struct dropout_mask {
    struct op_random random;
    uint64_t first, threshold;
    float scale;
};

/* Groups of the batch from first / 4 on; if `first` is not a multiple of four, groups are not packs.
 * y may be x. */
template <class T>
static __global__ void dropout_kernel(T *y, const T *x, int64_t count, struct dropout_mask mask)
{
    uint64_t first = mask.first, threshold = mask.threshold;
    float scale = mask.scale;
    __shared__ struct random stream;
    if (threadIdx.x == 0) stream = dropout_stream(&mask.random, *mask.random.step);
    __syncthreads();
    int64_t stride = (int64_t)gridDim.x * blockDim.x, before = (int64_t)(first % 4);
    for (int64_t g = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; 4 * g < before + count; g += stride) {
        uint32_t words[4];
        philox_words(&stream, first / 4 + (uint64_t)g, words);
        int64_t i = 4 * g - before;
        if (before == 0 && i + 4 <= count) {
            four<T> v = *(const four<T> *)(x + i);
#pragma unroll
            for (int k = 0; k < 4; k++)
                v.at[k] = from_float<T>(words[k] >= threshold ? scale * to_float(v.at[k]) : 0);
            *(four<T> *)(y + i) = v;
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (i + k >= 0 && i + k < count)
                    y[i + k] = from_float<T>(words[k] >= threshold ? scale * to_float(x[i + k]) : 0);
        }
    }
}

static enum status drop(const struct call *call, const struct tensor *to, const struct tensor *from)
{
    int64_t count = shape_count(to->shape);
    if (count == 0) return OK;
    if (!call->training) return copy_tensor(call, to, from);
    const struct dropout *s = (const struct dropout *)call->settings;
    return with_type(to->dtype, [&](auto type) {
        using T = decltype(type);
        struct dropout_mask mask = {*call->random, dropout_first(call->random, count), dropout_threshold(s),
                                    dropout_scale(s)};
        dropout_kernel<<<grid_of(call, count / 4 + 2, threads), threads, 0, stream_of(call)>>>(
            (T *)to->data, (const T *)from->data, count, mask);
        return launched(call);
    });
}

static enum status dropout_forward(const struct call *call) { return drop(call, &call->y, &call->x[0]); }

static enum status dropout_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    return drop(call, &call->d_x[0], &call->d_y);
}

const struct op_code dropout_cuda = {.forward = dropout_forward, .backward = dropout_backward};
