/* rank_moments.cu: one thread per channel. */
#include "kernels/support/cuda.cuh"

extern "C" {
#include "kernels/exchange/rank_moments.h"
}

static constexpr int threads = 128;

struct rank_moments_out {
    float *mean, *invstd, *variance;
};

__global__ void rank_moments_kernel(const float *x, int ranks, int64_t channels, double count, double eps,
                                    struct rank_moments_out out)
{
    int64_t k = (int64_t)blockIdx.x * threads + threadIdx.x;
    if (k >= channels) return;
    struct rank_sum sum = {0, 0, 0};
    for (int rank = 0; rank < ranks; rank++)
        rank_sum_add(&sum, x[2 * rank * channels + k], x[(2 * rank + 1) * channels + k], count);
    double squares = fmax(sum.squares, 0.0);
    out.mean[k] = (float)sum.mean;
    out.invstd[k] = (float)(1 / sqrt(squares / sum.count + eps));
    out.variance[k] = sum.count > 1 ? (float)(squares / (sum.count - 1)) : 0;
}

static enum status rank_moments_forward(const struct call *call)
{
    const struct rank_moments *s = (const struct rank_moments *)call->settings;
    int64_t channels = call->x[0].shape.c;
    struct rank_moments_out out = {(float *)call->y.data, (float *)call->saved[RANK_INVSTD].data,
                                   (float *)call->saved[RANK_VARIANCE].data};
    rank_moments_kernel<<<(unsigned)div_up(channels, (int64_t)threads), threads, 0, stream_of(call)>>>(
        (const float *)call->x[0].data, (int)call->x[0].shape.n, channels, (double)s->count, s->eps, out);
    return launched(call);
}

const struct op_code rank_moments_cuda = {.forward = rank_moments_forward};
