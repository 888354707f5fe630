/* topk.cu: one block per image counts the classes ranked above the true one. */
#include "kernels/support/block.cuh"

static constexpr int threads = 128;

/* The true class, the last element of the targets; -1: none. */
__device__ static int target_class(const float *targets, int classes)
{
    float label = targets[classes];
    return label >= 0 && label < classes ? (int)label : -1;
}

__device__ static bool beats(float value, int c, float own, int label)
{
    if (isnan(own)) return !isnan(value) || c < label;
    return value > own || (value == own && c < label);
}

template <class T>
static __global__ void topk_kernel(int32_t *y, const T *x, const int32_t *labels, const float *targets,
                                   int classes, int row)
{
    int64_t image = blockIdx.x;
    x += image * classes;
    int label = labels ? labels[image] : target_class(targets + image * row, classes);
    bool bad = label < 0 || label >= classes;
    float own = bad ? 0 : to_float(x[label]);
    int rank = 0;
    for (int c = threadIdx.x; c < classes; c += threads) rank += bad || beats(to_float(x[c]), c, own, label);
    rank = block_sum<threads>(rank);
    if (threadIdx.x == 0) y[image] = rank;
}

static enum status topk_forward(const struct call *call)
{
    const struct tensor *labels = &call->x[1];
    const int32_t *hard = labels->dtype == I32 ? (const int32_t *)labels->data : NULL;
    const float *targets = hard ? NULL : (const float *)labels->data;
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        topk_kernel<<<(unsigned)call->x[0].shape.n, threads, 0, stream_of(call)>>>(
            (int32_t *)call->y.data, (const T *)call->x[0].data, hard, targets, (int)call->x[0].shape.c,
            (int)labels->shape.c);
        return launched(call);
    });
}

const struct op_code topk_cuda = {.forward = topk_forward};
