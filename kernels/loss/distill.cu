/* distill.cu: one block per image. */
#include "kernels/loss/losses.cuh"

extern "C" {
#include "kernels/loss/distill.h"
}

/* Numbers by which a class's log probability at the temperature is x * scale - `own`, or `teacher`. */
struct warm_logits {
    double scale;              /* 1 / temperature */
    double own, teacher;       /* log(sum of exp(x * scale)) of each */
};

/* The first class with the largest output; the first class of all if all outputs are NaN. */
template <class T, int threads> __device__ static int row_best(const T *x, int count)
{
    double max = row_max<T, threads>(x, count);
    int best = count;
    for (int c = threadIdx.x; c < count && best == count; c += threads)
        if (to_float(x[c]) == max) best = c;
    best = block_reduce<threads>(best, [](int a, int b) { return a < b ? a : b; });
    return best < count ? best : 0;
}

/* log(sum of exp(x * scale)). */
template <class T, int threads> __device__ static double row_logsumexp(const T *x, int count, double scale)
{
    double max = row_max<T, threads>(x, count);
    return max * scale + row_log_sum<T, threads>(x, count, max, scale);
}

template <class T, int threads>
__device__ static double label_loss(const T *x, int classes, const struct target &target, double sum)
{
    double loss = 0;
    for (int c = threadIdx.x; c < classes; c += threads) {
        double t = target.of(c);
        if (t != 0) loss += t * (sum - (double)to_float(x[c]));
    }
    return block_sum<threads>(loss);
}

/* The divergence, without the square of the temperature. */
template <class T, int threads>
__device__ static double soft_loss(const T *x, const T *teacher, int classes, struct warm_logits warm)
{
    double loss = 0;
    for (int c = threadIdx.x; c < classes; c += threads) {
        double right = (double)to_float(teacher[c]) * warm.scale - warm.teacher;
        loss += exp(right) * (right - ((double)to_float(x[c]) * warm.scale - warm.own));
    }
    return block_sum<threads>(loss);
}

template <class T, int threads>
static __global__ void distill_forward_kernel(float *y, float *saved, const T *x, const T *teacher,
                                              const T *taught, struct targets targets, struct distill s)
{
    int64_t image = blockIdx.x;
    int classes = targets.outputs, best = 0;
    x += image * classes;
    teacher += image * classes;
    taught += image * classes;
    double sum = row_logsumexp<T, threads>(x, classes, 1), guided;
    struct warm_logits warm = {s.kind == DISTILL_HARD ? 1 : 1 / s.temperature, 0, 0};
    warm.own = row_logsumexp<T, threads>(taught, classes, warm.scale);
    if (s.kind == DISTILL_HARD) {
        best = row_best<T, threads>(teacher, classes);
        guided = warm.own - (double)to_float(taught[best]);
    } else {
        warm.teacher = row_logsumexp<T, threads>(teacher, classes, warm.scale);
        guided = s.temperature * s.temperature * soft_loss<T, threads>(taught, teacher, classes, warm);
    }
    double labelled = label_loss<T, threads>(x, classes, targets.of(image), sum);
    if (threadIdx.x > 0) return;
    y[image] = (float)((1 - s.alpha) * labelled + s.alpha * guided);
    if (!saved) return;
    saved += image * DISTILL_SAVED;
    saved[DISTILL_SUM] = (float)sum;
    saved[DISTILL_WARM_SUM] = (float)warm.own;
    saved[DISTILL_TEACHER] = s.kind == DISTILL_HARD ? (float)best : (float)warm.teacher;
}

template <class T, int threads>
static __global__ void distill_backward_kernel(T *d_x, T *d_taught, const T *x, const T *teacher,
                                               const T *taught, const float *saved, struct targets targets,
                                               struct distill s, const float *loss_scale, double weight)
{
    int64_t image = blockIdx.x;
    int classes = targets.outputs;
    struct target target = targets.of(image);
    bool apart = taught != x;
    x += image * classes;
    teacher += image * classes;
    taught += image * classes;
    saved += image * DISTILL_SAVED;
    double factor = weight * (double)*loss_scale / gridDim.x, all = 0;
    struct warm_logits warm = {1 / s.temperature, saved[DISTILL_WARM_SUM], saved[DISTILL_TEACHER]};

    for (int c = threadIdx.x; c < classes; c += threads) all += target.of(c);
    all = block_sum<threads>(all);
    for (int c = threadIdx.x; c < classes; c += threads) {
        double own = to_float(taught[c]), guided;
        if (s.kind == DISTILL_HARD)
            guided = exp(own - warm.own) - (c == (int)saved[DISTILL_TEACHER]);
        else
            guided = s.temperature * (exp(own * warm.scale - warm.own) -
                                      exp((double)to_float(teacher[c]) * warm.scale - warm.teacher));
        double softmax = exp((double)to_float(x[c]) - saved[DISTILL_SUM]);
        double label = (1 - s.alpha) * (softmax * all - target.of(c));
        guided *= s.alpha;
        if (!apart) label += guided;
        if (d_x) d_x[image * classes + c] = from_float<T>((float)(label * factor));
        if (apart && d_taught) d_taught[image * classes + c] = from_float<T>((float)(guided * factor));
    }
}

/* The input that learns from the teacher: the logits, or those of a head of its own. */
static int taught_of(const struct call *call) { return call->x_count > 3 ? 3 : 0; }

static enum status distill_forward(const struct call *call)
{
    struct distill s = *(const struct distill *)call->settings;
    struct targets targets = targets_of(call, s.label_smoothing);
    float *saved = call->saved_count ? (float *)call->saved[0].data : NULL;
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_rows(call, [&](auto type, auto threads) {
        using T = decltype(type);
        distill_forward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
            (float *)call->y.data, saved, (const T *)call->x[0].data, (const T *)call->x[2].data,
            (const T *)call->x[taught_of(call)].data, targets, s);
        return launched(call);
    });
}

static enum status distill_backward(const struct call *call)
{
    int taught = taught_of(call);
    if (!call->d_x[0].data && !call->d_x[taught].data) return OK;
    struct distill s = *(const struct distill *)call->settings;
    struct targets targets = targets_of(call, s.label_smoothing);
    unsigned images = (unsigned)call->x[0].shape.n;
    return with_rows(call, [&](auto type, auto threads) {
        using T = decltype(type);
        distill_backward_kernel<T, threads()><<<images, threads(), 0, stream_of(call)>>>(
            (T *)call->d_x[0].data, (T *)call->d_x[taught].data, (const T *)call->x[0].data,
            (const T *)call->x[2].data, (const T *)call->x[taught].data,
            (const float *)call->saved[0].data, targets, s, call->loss_scale, call->loss_weight);
        return launched(call);
    });
}

const struct op_code distill_cuda = {
    .forward = distill_forward,
    .backward = distill_backward,
};
