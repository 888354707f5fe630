/* softmax_cross_entropy.cu: one block per image; sums are in double, as on the CPU. */
#include "kernels/support/block.cuh"

extern "C" {
#include "kernels/loss/softmax_cross_entropy.h"
}

/* The target of an image, after smoothing. */
struct target {
    const float *soft;         /* or NULL: label says it */
    int32_t label;
    double keep, share;        /* 1 - smoothing, smoothing / classes */
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
    int classes;
    double smoothing;

    __device__ struct target of(int64_t image) const
    {
        int32_t label = labels ? labels[image] : 0;
        return {soft ? soft + image * (classes + 1) : NULL, label, 1 - smoothing, smoothing / classes,
                label < 0 || label >= classes};
    }
};

template <class T, int threads>
static __global__ void softmax_cross_entropy_forward_kernel(float *y, float *logsumexp, const T *x,
                                                            struct targets targets)
{
    struct target target = targets.of(blockIdx.x);
    int classes = targets.classes;
    x += (int64_t)blockIdx.x * classes;

    float own = -INFINITY;
    for (int c = threadIdx.x; c < classes; c += threads) own = fmaxf(own, to_float(x[c]));
    double max = block_reduce<threads>(own, [](float a, float b) { return fmaxf(a, b); });

    double sum = 0;
    for (int c = threadIdx.x; c < classes; c += threads) sum += exp((double)to_float(x[c]) - max);
    double log_sum = log(block_sum<threads>(sum));

    double loss = 0;
    for (int c = threadIdx.x; c < classes; c += threads) {
        double t = target.of(c);
        if (t != 0) loss += t * (log_sum + (max - (double)to_float(x[c])));
    }
    loss = block_sum<threads>(loss);
    if (threadIdx.x > 0) return;
    y[blockIdx.x] = (float)loss;
    if (logsumexp) logsumexp[blockIdx.x] = (float)(max + log_sum);
}

template <class T, int threads>
static __global__ void softmax_cross_entropy_backward_kernel(T *d_x, const T *x, const float *logsumexp,
                                                             struct targets targets,
                                                             const float *loss_scale, double weight)
{
    struct target target = targets.of(blockIdx.x);
    int classes = targets.classes;
    x += (int64_t)blockIdx.x * classes;
    d_x += (int64_t)blockIdx.x * classes;
    double lse = logsumexp[blockIdx.x], factor = weight * (double)*loss_scale / gridDim.x;

    double sum = 0;
    for (int c = threadIdx.x; c < classes; c += threads) sum += target.of(c);
    sum = block_sum<threads>(sum);
    for (int c = threadIdx.x; c < classes; c += threads)
        d_x[c] = from_float<T>((float)((exp((double)to_float(x[c]) - lse) * sum - target.of(c)) * factor));
}

static struct targets targets_of(const struct call *call)
{
    const struct softmax_cross_entropy *s = (const struct softmax_cross_entropy *)call->settings;
    const struct tensor *labels = &call->x[1];
    bool soft = labels->dtype != I32;
    return {soft ? NULL : (const int32_t *)labels->data, soft ? (const float *)labels->data : NULL,
            (int)call->x[0].shape.c, s->label_smoothing};
}

/* Calls work(threads) with as many threads as a row of that many classes can use. */
template <class Work> static enum status with_threads(int classes, Work work)
{
    if (classes <= 64) return work(std::integral_constant<int, 32>());
    return work(std::integral_constant<int, 256>());
}

static enum status softmax_cross_entropy_forward(const struct call *call)
{
    struct targets targets = targets_of(call);
    float *y = (float *)call->y.data, *logsumexp = call->saved_count ? (float *)call->saved[0].data : NULL;
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        return with_threads(targets.classes, [&](auto threads) {
            softmax_cross_entropy_forward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
                y, logsumexp, (const T *)call->x[0].data, targets);
            return launched(call);
        });
    });
}

static enum status softmax_cross_entropy_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct targets targets = targets_of(call);
    const float *logsumexp = (const float *)call->saved[0].data;
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        return with_threads(targets.classes, [&](auto threads) {
            softmax_cross_entropy_backward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
                (T *)call->d_x[0].data, (const T *)call->x[0].data, logsumexp, targets, call->loss_scale,
                call->loss_weight);
            return launched(call);
        });
    });
}

const struct op_code softmax_cross_entropy_cuda = {
    .forward = softmax_cross_entropy_forward,
    .backward = softmax_cross_entropy_backward,
};
