/* moments.cu: one thread per channel. */
#include "kernels/support/cuda.cuh"

extern "C" {
#include "kernels/norm/moments.h"
}

static constexpr int threads = 128;

/* Mean and variance of a set, by channel. */
struct set {
    const float *mean, *variance;
    double count;
};

__global__ void moments_kernel(struct set a, struct set b, float *mean, float *variance, int64_t channels)
{
    int64_t k = (int64_t)blockIdx.x * threads + threadIdx.x;
    if (k >= channels) return;
    double n = a.count + b.count, d = (double)b.mean[k] - a.mean[k];
    double squares = (a.count - 1) * a.variance[k] + (b.count - 1) * b.variance[k] +
                     d * d * (a.count * b.count / n);
    mean[k] = (float)(a.mean[k] + d * (b.count / n));
    variance[k] = (float)(squares / (n - 1));
}

static struct set set_of(const struct tensor *x, int64_t count)
{
    return {(const float *)x[0].data, (const float *)x[1].data, (double)count};
}

static enum status moments_forward(const struct call *call)
{
    const struct moments *s = (const struct moments *)call->settings;
    int64_t channels = shape_count(call->y.shape);
    moments_kernel<<<(unsigned)div_up(channels, (int64_t)threads), threads, 0, stream_of(call)>>>(
        set_of(&call->x[0], s->a), set_of(&call->x[2], s->b), (float *)call->y.data,
        (float *)call->saved[0].data, channels);
    return launched(call);
}

const struct op_code moments_cuda = {.forward = moments_forward};
