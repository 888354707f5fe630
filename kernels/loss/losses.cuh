/* losses.cuh: what losses share on CUDA, where one block computes that of an image: its targets, and sums
 * over its row of outputs. Sums are in double, as on the CPU. */
#pragma once

#include <type_traits>

#include "kernels/support/block.cuh"

/* The targets of an image after smoothing (loss_targets.h). */
struct target {
    const float *soft;         /* or NULL: label says it */
    int32_t label;
    double keep, share;        /* 1 - smoothing, smoothing / outputs */
    bool bad;                  /* the label is out of range */

    __device__ double of(int c) const
    {
        double own = soft ? soft[c] : bad ? NAN : c == label;
        return keep * own + share;
    }
};

/* All images' targets. */
struct targets {
    const int32_t *labels;     /* one of these is NULL */
    const float *soft;
    int outputs, row;          /* numbers of an image: outputs, targets */
    double smoothing;

    __device__ struct target of(int64_t image) const
    {
        int32_t label = labels ? labels[image] : 0;
        return {soft ? soft + image * row : NULL, label, 1 - smoothing, smoothing / outputs,
                label < 0 || label >= outputs};
    }
};

static inline struct targets targets_of(const struct call *call, double smoothing)
{
    const struct tensor *targets = &call->x[1];
    bool soft = targets->dtype != I32;
    return {soft ? NULL : (const int32_t *)targets->data, soft ? (const float *)targets->data : NULL,
            (int)call->x[0].shape.c, (int)targets->shape.c, smoothing};
}

template <class T, int threads> __device__ static inline double row_max(const T *x, int count)
{
    float own = -INFINITY;
    for (int c = threadIdx.x; c < count; c += threads) own = fmaxf(own, to_float(x[c]));
    return block_reduce<threads>(own, [](float a, float b) { return fmaxf(a, b); });
}

/* log(sum of exp((x - max) * scale)). */
template <class T, int threads>
__device__ static inline double row_log_sum(const T *x, int count, double max, double scale)
{
    double sum = 0;
    for (int c = threadIdx.x; c < count; c += threads) sum += exp(((double)to_float(x[c]) - max) * scale);
    return log(block_sum<threads>(sum));
}

/* Calls work(T(), threads) with the type of the outputs and as many threads as a row of them can use. */
template <class Work> static enum status with_rows(const struct call *call, Work work)
{
    return with_type(call->x[0].dtype, [&](auto type) {
        if (call->x[0].shape.c <= 64) return work(type, std::integral_constant<int, 32>());
        return work(type, std::integral_constant<int, 256>());
    });
}
