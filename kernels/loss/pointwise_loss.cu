/* pointwise_loss.cu: one block per image; sums are in double, as on the CPU. */
#include "kernels/support/block.cuh"

extern "C" {
#include "kernels/loss/loss_targets.h"
#include "kernels/loss/pointwise_loss.h"
}

/* All images' targets. */
struct pointwise_targets {
    const int32_t *labels;     /* one of these is NULL */
    const float *soft;
    int outputs;
    bool weighted;

    __device__ struct pointwise_target of(int64_t image, int c, double smoothing) const
    {
        const float *row = soft ? soft + image * target_row(outputs, weighted) : NULL;
        int32_t label = labels ? labels[image] : 0;
        double own = row ? row[c] : label < 0 || label >= outputs ? NAN : label == c;
        return {(1 - smoothing) * own + smoothing / outputs, weighted ? row[outputs + 1 + c] : 1.0};
    }
};

template <class T, int threads>
static __global__ void pointwise_loss_forward_kernel(float *y, const T *x, struct pointwise_targets targets,
                                                     struct pointwise_loss s)
{
    int64_t image = blockIdx.x;
    x += image * targets.outputs;
    double loss = 0;
    for (int c = threadIdx.x; c < targets.outputs; c += threads)
        loss += pointwise_value(&s, to_float(x[c]), targets.of(image, c, s.label_smoothing));
    loss = block_sum<threads>(loss);
    if (threadIdx.x == 0) y[image] = (float)(loss / targets.outputs);
}

template <class T, int threads>
static __global__ void pointwise_loss_backward_kernel(T *d_x, const T *x, struct pointwise_targets targets,
                                                      struct pointwise_loss s, const float *loss_scale,
                                                      double weight)
{
    int64_t image = blockIdx.x;
    x += image * targets.outputs;
    d_x += image * targets.outputs;
    double factor = weight * (double)*loss_scale / ((double)gridDim.x * targets.outputs);
    for (int c = threadIdx.x; c < targets.outputs; c += threads) {
        struct pointwise_target target = targets.of(image, c, s.label_smoothing);
        d_x[c] = from_float<T>((float)(factor * pointwise_slope(&s, to_float(x[c]), target)));
    }
}

static struct pointwise_targets targets_of(const struct call *call)
{
    const struct tensor *labels = &call->x[1];
    int64_t outputs = call->x[0].shape.c;
    bool soft = labels->dtype != I32;
    return {soft ? NULL : (const int32_t *)labels->data, soft ? (const float *)labels->data : NULL,
            (int)outputs, soft && labels->shape.c == target_row(outputs, true)};
}

/* Calls work(threads) with as many threads as a row of that many outputs can use. */
template <class Work> static enum status with_threads(int outputs, Work work)
{
    if (outputs <= 64) return work(std::integral_constant<int, 32>());
    return work(std::integral_constant<int, 256>());
}

static enum status pointwise_loss_forward(const struct call *call)
{
    struct pointwise_targets targets = targets_of(call);
    struct pointwise_loss s = *(const struct pointwise_loss *)call->settings;
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        return with_threads(targets.outputs, [&](auto threads) {
            pointwise_loss_forward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
                (float *)call->y.data, (const T *)call->x[0].data, targets, s);
            return launched(call);
        });
    });
}

static enum status pointwise_loss_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct pointwise_targets targets = targets_of(call);
    struct pointwise_loss s = *(const struct pointwise_loss *)call->settings;
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        return with_threads(targets.outputs, [&](auto threads) {
            pointwise_loss_backward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
                (T *)call->d_x[0].data, (const T *)call->x[0].data, targets, s, call->loss_scale,
                call->loss_weight);
            return launched(call);
        });
    });
}

const struct op_code pointwise_loss_cuda = {
    .forward = pointwise_loss_forward,
    .backward = pointwise_loss_backward,
};
