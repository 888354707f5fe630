/* pointwise_loss.cu: one block per image. */
#include "kernels/loss/losses.cuh"

extern "C" {
#include "kernels/loss/loss_targets.h"
#include "kernels/loss/pointwise_loss.h"
}

__device__ static struct pointwise_target at(const struct targets &all, const struct target &own, int c)
{
    bool weighted = own.soft && all.row == target_row(all.outputs, true);
    return {own.of(c), weighted ? own.soft[all.outputs + 1 + c] : 1.0};
}

template <class T, int threads>
static __global__ void pointwise_loss_forward_kernel(float *y, const T *x, struct targets targets,
                                                     struct pointwise_loss s)
{
    int64_t image = blockIdx.x;
    struct target target = targets.of(image);
    x += image * targets.outputs;
    double loss = 0;
    for (int c = threadIdx.x; c < targets.outputs; c += threads)
        loss += pointwise_value(&s, to_float(x[c]), at(targets, target, c));
    loss = block_sum<threads>(loss);
    if (threadIdx.x == 0) y[image] = (float)(loss / targets.outputs);
}

template <class T, int threads>
static __global__ void pointwise_loss_backward_kernel(T *d_x, const T *x, struct targets targets,
                                                      struct pointwise_loss s, const float *loss_scale,
                                                      double weight)
{
    int64_t image = blockIdx.x;
    struct target target = targets.of(image);
    x += image * targets.outputs;
    d_x += image * targets.outputs;
    double factor = weight * (double)*loss_scale / ((double)gridDim.x * targets.outputs);
    for (int c = threadIdx.x; c < targets.outputs; c += threads) {
        double slope = pointwise_slope(&s, to_float(x[c]), at(targets, target, c));
        d_x[c] = from_float<T>((float)(factor * slope));
    }
}

static enum status pointwise_loss_forward(const struct call *call)
{
    struct pointwise_loss s = *(const struct pointwise_loss *)call->settings;
    struct targets targets = targets_of(call, s.label_smoothing);
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_rows(call, [&](auto type, auto threads) {
        using T = decltype(type);
        pointwise_loss_forward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
            (float *)call->y.data, (const T *)call->x[0].data, targets, s);
        return launched(call);
    });
}

static enum status pointwise_loss_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct pointwise_loss s = *(const struct pointwise_loss *)call->settings;
    struct targets targets = targets_of(call, s.label_smoothing);
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_rows(call, [&](auto type, auto threads) {
        using T = decltype(type);
        pointwise_loss_backward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
            (T *)call->d_x[0].data, (const T *)call->x[0].data, targets, s, call->loss_scale,
            call->loss_weight);
        return launched(call);
    });
}

const struct op_code pointwise_loss_cuda = {
    .forward = pointwise_loss_forward,
    .backward = pointwise_loss_backward,
};
