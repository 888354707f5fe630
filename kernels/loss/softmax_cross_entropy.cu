/* softmax_cross_entropy.cu: one block per image. */
#include "kernels/loss/losses.cuh"

extern "C" {
#include "kernels/loss/softmax_cross_entropy.h"
}

template <class T, int threads>
static __global__ void softmax_cross_entropy_forward_kernel(float *y, float *logsumexp, const T *x,
                                                            struct targets targets)
{
    struct target target = targets.of(blockIdx.x);
    int classes = targets.outputs;
    x += (int64_t)blockIdx.x * classes;
    double max = row_max<T, threads>(x, classes), log_sum = row_log_sum<T, threads>(x, classes, max, 1);

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
    int classes = targets.outputs;
    x += (int64_t)blockIdx.x * classes;
    d_x += (int64_t)blockIdx.x * classes;
    double lse = logsumexp[blockIdx.x], factor = weight * (double)*loss_scale / gridDim.x;

    double sum = 0;
    for (int c = threadIdx.x; c < classes; c += threads) sum += target.of(c);
    sum = block_sum<threads>(sum);
    for (int c = threadIdx.x; c < classes; c += threads)
        d_x[c] = from_float<T>((float)((exp((double)to_float(x[c]) - lse) * sum - target.of(c)) * factor));
}

static struct targets smoothed_targets(const struct call *call)
{
    return targets_of(call, ((const struct softmax_cross_entropy *)call->settings)->label_smoothing);
}

static enum status softmax_cross_entropy_forward(const struct call *call)
{
    struct targets targets = smoothed_targets(call);
    float *y = (float *)call->y.data, *logsumexp = call->saved_count ? (float *)call->saved[0].data : NULL;
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_rows(call, [&](auto type, auto threads) {
        using T = decltype(type);
        softmax_cross_entropy_forward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
            y, logsumexp, (const T *)call->x[0].data, targets);
        return launched(call);
    });
}

static enum status softmax_cross_entropy_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct targets targets = smoothed_targets(call);
    const float *logsumexp = (const float *)call->saved[0].data;
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_rows(call, [&](auto type, auto threads) {
        using T = decltype(type);
        softmax_cross_entropy_backward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
            (T *)call->d_x[0].data, (const T *)call->x[0].data, logsumexp, targets, call->loss_scale,
            call->loss_weight);
        return launched(call);
    });
}

const struct op_code softmax_cross_entropy_cuda = {
    .forward = softmax_cross_entropy_forward,
    .backward = softmax_cross_entropy_backward,
};
