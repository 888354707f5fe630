/* batchnorm_exact.cu: batchnorm of small fp32 tensors in double, rounded once, as batchnorm_exact.c does it
 * on the CPU: the formulas of the reference, element by element.
 *
 * A block has 32 channels and all of their rows, so that one kernel does everything; sums are merged in a
 * fixed order. */
#include "kernels/batchnorm.cuh"

constexpr int across = 32, down = 32;   /* threads over channels, and over rows */

/* What a block works on; NULL where there is nothing. */
struct exact {
    int64_t rows, channels;
    const float *x, *residual, *side, *d_y, *d_y_more, *weight, *bias, *running_mean, *running_variance;
    float *y, *d_x, *d_residual, *d_weight, *d_bias, *mean, *invstd, *variance;
    double eps, negative, top;
    bool measures, runs;                /* statistics are taken here; or they are the running ones */
};

static struct exact exact_open(const struct call *call)
{
    const struct batchnorm *s = (const struct batchnorm *)call->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    struct batchnorm_parts::bend bend = batchnorm_parts::bend_of(s);
    bool backward = call->phase == PHASE_BACKWARD, saves = call->training;
    struct exact e = {};
    e.channels = call->x[0].shape.c;
    e.rows = shape_count(call->x[0].shape) / e.channels;
    e.x = (const float *)call->x[0].data;
    e.residual = s->residual && !backward ? (const float *)call->x[1].data : NULL;
    e.side = backward && s->residual && s->activation != ACTIVATION_NONE ? (const float *)call->y.data : NULL;
    e.d_y = (const float *)call->d_y.data;
    e.d_y_more = (const float *)call->d_y_more.data;
    e.weight = s->affine ? (const float *)call->params[0].data : NULL;
    e.bias = s->affine ? (const float *)call->params[1].data : NULL;
    e.measures = call->phase == PHASE_FORWARD && call->training;
    e.runs = call->phase == PHASE_FORWARD && !call->training;
    if (e.runs) e.running_mean = (const float *)call->params[at.mean].data;
    if (e.runs) e.running_variance = (const float *)call->params[at.variance].data;
    e.y = (float *)call->y.data;
    if (backward) {
        e.d_x = (float *)call->d_x[0].data;
        e.d_residual = s->residual ? (float *)call->d_x[1].data : NULL;
        e.d_weight = s->affine ? (float *)call->d_params[0].data : NULL;
        e.d_bias = s->affine ? (float *)call->d_params[1].data : NULL;
    }
    if (saves) e.mean = (float *)call->saved[SAVED_MEAN].data;
    if (saves) e.invstd = (float *)call->saved[SAVED_INVSTD].data;
    if (saves) e.variance = (float *)call->saved[SAVED_VARIANCE].data;
    e.eps = s->eps, e.negative = bend.negative, e.top = bend.top;
    return e;
}

/* The sum over a column of threads, for all of them. */
__device__ static inline double add_up(double value)
{
    __shared__ double room[down][across + 1];
    room[threadIdx.y][threadIdx.x] = value;
    for (int half = down / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) room[threadIdx.y][threadIdx.x] += room[threadIdx.y + half][threadIdx.x];
    }
    __syncthreads();
    value = room[0][threadIdx.x];
    __syncthreads();
    return value;
}

/* What a channel's elements are normalised by. */
struct exact_channel {
    double mean, invstd, weight, bias;
};

__device__ static inline double exact_normal(const exact_channel &c, float x)
{
    return ((double)x - c.mean) * c.invstd;
}

/* Contraction would make forward and backward see different sides of the activation's corner. */
__device__ static inline double exact_z(const exact_channel &c, float x)
{
    return __dadd_rn(__dmul_rn(exact_normal(c, x), c.weight), c.bias);
}

/* Statistics that forward takes and saves; rounded, so that all that comes after goes by the same numbers. */
__device__ static inline void exact_measure(const exact &e, int64_t k, bool here)
{
    double sum = 0, squares = 0;
    for (int64_t r = threadIdx.y; here && r < e.rows; r += down) sum += e.x[r * e.channels + k];
    double mean = add_up(sum) / (double)e.rows;
    for (int64_t r = threadIdx.y; here && r < e.rows; r += down) {
        double deviation = e.x[r * e.channels + k] - mean;
        squares += deviation * deviation;
    }
    squares = add_up(squares);
    if (here && threadIdx.y == 0) {
        e.mean[k] = (float)mean;
        e.invstd[k] = (float)(1 / sqrt(squares / (double)e.rows + e.eps));
        e.variance[k] = e.rows > 1 ? (float)(squares / (double)(e.rows - 1)) : 0;
    }
    __syncthreads();
}

__device__ static inline exact_channel exact_channel_of(const exact &e, int64_t k)
{
    return {e.runs ? e.running_mean[k] : e.mean[k],
            e.runs ? 1 / sqrt(e.running_variance[k] + e.eps) : (double)e.invstd[k],
            e.weight ? e.weight[k] : 1, e.bias ? e.bias[k] : 0};
}

static __global__ void __launch_bounds__(across * down) exact_forward(struct exact e)
{
    int64_t k = (int64_t)blockIdx.x * across + threadIdx.x;
    bool here = k < e.channels;
    if (e.measures) exact_measure(e, k, here);
    if (!here) return;
    exact_channel c = exact_channel_of(e, k);
    for (int64_t r = threadIdx.y; r < e.rows; r += down) {
        int64_t at = r * e.channels + k;
        double z = exact_z(c, e.x[at]);
        if (e.residual) z += e.residual[at];
        e.y[at] = (float)(z <= 0 ? (e.negative == 0 ? 0 : e.negative * z) : z >= e.top ? e.top : z);
    }
}

/* The gradient behind the activation. */
__device__ static inline double exact_d_z(const exact &e, const exact_channel &c, int64_t at)
{
    double side = e.side ? (double)e.side[at] : exact_z(c, e.x[at]);
    float d_y = e.d_y_more ? (float)((double)e.d_y[at] + e.d_y_more[at]) : e.d_y[at];
    return d_y * (side <= 0 ? e.negative : side >= e.top ? 0 : 1);
}

static __global__ void __launch_bounds__(across * down) exact_backward(struct exact e)
{
    int64_t k = (int64_t)blockIdx.x * across + threadIdx.x;
    bool here = k < e.channels;
    exact_channel c = here ? exact_channel_of(e, k) : exact_channel{0, 0, 0, 0};
    double sum = 0, product = 0;
    for (int64_t r = threadIdx.y; here && r < e.rows; r += down) {
        int64_t at = r * e.channels + k;
        double dz = exact_d_z(e, c, at);
        sum += dz;
        product += dz * exact_normal(c, e.x[at]);
    }
    sum = add_up(sum);
    product = add_up(product);
    if (!here) return;
    if (threadIdx.y == 0 && e.d_weight) e.d_weight[k] = (float)product;
    if (threadIdx.y == 0 && e.d_bias) e.d_bias[k] = (float)sum;
    for (int64_t r = threadIdx.y; r < e.rows; r += down) {
        int64_t at = r * e.channels + k;
        double dz = exact_d_z(e, c, at), normal = exact_normal(c, e.x[at]);
        if (e.d_residual) e.d_residual[at] = (float)dz;
        double spread = dz - (sum + normal * product) / (double)e.rows;
        if (e.d_x) e.d_x[at] = (float)(c.weight * c.invstd * spread);
    }
}

bool batchnorm_exact_applies(const struct call *call)
{
    return !call->tf32 && batchnorm_is_small(call);
}

enum status batchnorm_exact_run(const struct call *call)
{
    struct exact e = exact_open(call);
    dim3 block(across, down);
    unsigned blocks = (unsigned)div_up(e.channels, (int64_t)across);
    if (call->phase == PHASE_BACKWARD) exact_backward<<<blocks, block, 0, stream_of(call)>>>(e);
    else exact_forward<<<blocks, block, 0, stream_of(call)>>>(e);
    TRY(launched(call));
    if (!call->y_again.data) return OK;
    struct call again = batchnorm_again(call);
    return batchnorm_exact_run(&again);
}
