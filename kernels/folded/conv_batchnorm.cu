/* conv_batchnorm.cu: conv_batchnorm by cuBLASLt's matrix products, with small kernels on matrices of filters
 * x channels in between. Names are those of the formulas in conv_batchnorm.c.
 *
 * Forward: a a' and the sums of a; statistics; s W and the bias; y and its mask by one product.
 * Backward: dz and its sums in one sweep; dz a'; the parameters' gradients; Q and the bias; d_a by two
 * products, Q a + q, to which the second adds (s W)' dz. q = -Q m - (s W)' D is computed from Q and s W as
 * they were rounded.
 * On Hopper kernels of our own write y (conv_batchnorm_output.cu) and d_a (conv_batchnorm_data.cu), for
 * extents that fit, and gram.cu has a a' for 64 and 128 channels. */
#include "kernels/folded/conv_batchnorm_data.cuh"
#include "kernels/folded/conv_batchnorm_output.cuh"
#include "kernels/linear/matmul.cuh"
#include "kernels/norm/batchnorm.cuh"
#include "kernels/norm/gram.cuh"
#include "kernels/support/block.cuh"
#include "kernels/support/columns.cuh"
#include "kernels/support/join.cuh"
#include "kernels/support/tf32.cuh"

extern "C" {
#include "base/memory.h"
#include "kernels/folded/conv_batchnorm.h"
}

using namespace batchnorm_parts;

/* Entries of Q are smaller than those of d_a, by at least about the deviation of a times the square root of
 * the number of channels; they are stored multiplied by this, for fp16's range. */
#define SQUARE_SCALE 1024.0f

/* Both factors of Q contain the square root of b, multiplied by this: so b may be from 1e-10 to 1e6. */
#define ROOT_SCALE 64.0f

enum product { GRAM, OUTPUT, WEIGHTS, SQUARE, CORRECTION, DATA, PRODUCTS };

struct conv_batchnorm_plans {
    struct matmul *of[PRODUCTS];
    bool mask;                           /* what computes y also computes its mask */
    bool output;                         /* a kernel computes y; else a product */
    size_t data_parts;                   /* bytes for the kernel that makes d_a; 0: products do */
};

static const struct conv_batchnorm_plans *plans_of(const struct call *call)
{
    return (const struct conv_batchnorm_plans *)call->kernel_plan->state;
}

struct extents {
    int64_t pixels;
    int channels, filters;
};

static const struct conv_batchnorm *settings_of(const struct call *call)
{
    return (const struct conv_batchnorm *)call->settings;
}

static struct extents extents_of(const struct call *call)
{
    struct shape taken = conv_batchnorm_taken(settings_of(call), call->x[0].shape);
    return {taken.n * taken.h * taken.w, (int)taken.c, (int)settings_of(call)->filters};
}

static bool is_strided(const struct call *call) { return settings_of(call)->stride > 1; }

/* True if products round fp32 to tf32: then what kernels make for them is rounded before. */
static bool rounds(const struct call *call) { return call->tf32 && call->x[0].dtype == F32; }

/* True if pixels that the stride leaves out have a gradient, of 0. */
static bool is_spread(const struct call *call)
{
    return is_strided(call) && shape_equal(call->d_x[0].shape, call->x[0].shape);
}

static enum activation activation_of(const struct call *call)
{
    return (enum activation)settings_of(call)->norm.activation;
}

/* True if the phase computes statistics. */
static bool measures(const struct call *call)
{
    return call->training && call->phase == PHASE_FORWARD;
}

/* True if a a' comes with the sums of a; if one kernel computes both here. */
static bool gram_is_given(const struct call *call)
{
    const struct tensor *sums = conv_batchnorm_sums(call);
    return sums && sums->shape.dim[0] == 1 + call->x[0].shape.c && gram_fits(&call->x[0], call->device);
}
static bool gram_is_made(const struct call *call)
{
    return !conv_batchnorm_sums(call) && !is_strided(call) && gram_fits(&call->x[0], call->device);
}

static struct matmul_problem problem_of(const struct call *call, enum product product)
{
    struct extents e = extents_of(call);
    enum dtype dtype = call->x[0].dtype;
    struct matmul_problem p = {.factor = dtype, .result = dtype, .m = e.channels, .n = e.pixels,
                               .k = e.filters, .tf32 = rounds(call),
                               .deterministic = call->deterministic};
    switch (product) {
    case GRAM:
        p.n = e.channels, p.k = e.pixels, p.turn_b = true, p.result = F32;
        break;
    case OUTPUT:
        p.m = e.filters, p.k = e.channels, p.turn_a = true, p.bias = true;
        p.relu = activation_of(call) != ACTIVATION_NONE;
        p.adds = settings_of(call)->norm.residual;
        p.mask = call_operand(call, OPERAND_MASK) && e.filters % MATMUL_BITS == 0;
        break;
    case WEIGHTS:
        p.n = e.filters, p.k = e.pixels, p.turn_b = true, p.result = F32;
        break;
    case SQUARE:
        p.n = e.channels, p.turn_b = true;
        break;
    case CORRECTION:
        p.k = e.channels, p.bias = true;
        break;
    case DATA:
        p.adds = true;
        break;
    case PRODUCTS: break;
    }
    return p;
}

static struct folded_data folded_data_of(const struct call *call)
{
    struct extents e = extents_of(call);
    return {.dtype = call->x[0].dtype, .pixels = e.pixels, .channels = e.channels, .filters = e.filters,
            .scale = SQUARE_SCALE};
}

static struct folded_output folded_output_of(const struct call *call)
{
    struct extents e = extents_of(call);
    return {.dtype = call->x[0].dtype, .pixels = e.pixels, .channels = e.channels, .filters = e.filters};
}

/* True if it ends in relu behind a residual, and there is a kernel for that. */
static bool folded_output_can(const struct call *call)
{
    struct folded_output of = folded_output_of(call);
    return settings_of(call)->norm.residual && activation_of(call) == ACTIVATION_RELU && call->device &&
           folded_output_fits(&of, call->device);
}

/* ---- The workspace ---- */

/* The offset of each part in bytes, 0 for those that the phase does not need, and the total size. */
struct workspace_layout {
    size_t scratch, parts;               /* of products; partial sums */
    size_t scaled, square;               /* s W; behind it, without a gap, Q or a a' */
    size_t sums, bias;                   /* of a or of dz; of a product */
    size_t data_parts;                   /* partial sums of d_a */
    size_t mask, gradient, roots, dz;    /* G, not centered; W sqrt|b|, then the same with b's signs */
    size_t taken, d_taken;               /* with a stride: the pixels of a and d_a that it takes */
    size_t bytes;
};

static size_t part(struct workspace_layout *layout, size_t bytes)
{
    size_t at = layout->bytes;
    layout->bytes += workspace_align(bytes);
    return at;
}

static struct workspace_layout layout_of(const struct call *call)
{
    const struct conv_batchnorm_plans *plans = plans_of(call);
    struct extents e = extents_of(call);
    struct workspace_layout r = {};
    size_t size = dtype_bytes(call->x[0].dtype), channels = (size_t)e.channels, filters = (size_t)e.filters;
    size_t pixels = (size_t)e.pixels, scratch = 0;
    bool backward = call->phase == PHASE_BACKWARD;
    for (int i = 0; i < PRODUCTS; i++)
        if ((i == GRAM || i == OUTPUT) != backward && matmul_scratch(plans->of[i]) > scratch)
            scratch = matmul_scratch(plans->of[i]);
    r.scratch = part(&r, scratch);
    r.scaled = part(&r, filters * channels * size);
    if (measures(call) || backward) r.square = part(&r, channels * channels * sizeof(float));
    r.bias = part(&r, (backward ? channels : filters) * size);
    if (is_strided(call)) r.taken = part(&r, pixels * channels * size);
    if (is_spread(call) && backward) r.d_taken = part(&r, pixels * channels * size);
    bool sums = measures(call) && !conv_batchnorm_sums(call), gram = sums && gram_is_made(call);
    if (sums) r.sums = part(&r, (gram ? 1 + channels : 1) * channels * sizeof(float));
    struct tensor taken = call->x[0];
    taken.shape = conv_batchnorm_taken(settings_of(call), taken.shape);
    if (sums) r.parts = part(&r, gram ? gram_workspace(&call->x[0], call->device)
                                      : columns_workspace(&taken, false));
    if (plans->mask && !plans->output && !backward && !call_operand(call, OPERAND_MASK))
        r.mask = part(&r, pixels * filters / 8);
    if (!backward) return r;
    r.gradient = part(&r, filters * channels * sizeof(float));
    r.roots = part(&r, 2 * filters * channels * size);
    r.data_parts = part(&r, plans->data_parts);
    if (conv_batchnorm_sums(call)) return r;
    r.sums = part(&r, filters * sizeof(float));
    r.parts = part(&r, join_workspace(&call->d_y));
    bool given = call->x_count > 1 && call->d_x[1].shape.rank > 0;
    bool made = activation_of(call) != ACTIVATION_NONE || call_operand(call, OPERAND_D_Y_ADDEND);
    if (made && !given) r.dz = part(&r, pixels * filters * size);
    return r;
}

static size_t workspace(const struct call *call)
{
    bool nothing = call->phase == PHASE_UPDATE || shape_count(call->x[0].shape) == 0;
    return nothing ? 0 : layout_of(call).bytes;
}

template <class T> static T *at(const struct call *call, size_t offset)
{
    return (T *)((char *)call->workspace + offset);
}

/* ---- Small kernels ---- */

/* The batch norm's values, by filter; weight and bias may be NULL. */
struct norm_values {
    const float *mean, *invstd, *weight, *bias;
};

template <class T> struct matrices {
    struct extents e;
    const T *weight;                     /* W [filters][channels] */
    const float *mean;                   /* of a; NULL in evaluation */
    struct norm_values norm;
    T *scaled;                           /* s W */
    bool tf32;                           /* it is rounded to that */
    __device__ T factor(float value) const
    {
        return tf32 ? factor_from_float<T>(value) : from_float<T>(value);
    }
};

template <class T>
static struct matrices<T> matrices_of(const struct call *call, const struct workspace_layout &r)
{
    const struct batchnorm *norm = (const struct batchnorm *)call->settings;
    struct extents e = extents_of(call);
    struct channel_values v = values_of(call);
    return {.e = e,
            .weight = (const T *)call->params[conv_batchnorm_weight(norm)].data,
            .mean = call->training ? (const float *)call->saved[SAVED_COVARIANCE].data +
                                         (int64_t)e.filters * e.channels
                                   : NULL,
            .norm = {v.mean, v.spread, v.weight, v.bias},
            .scaled = at<T>(call, r.scaled),
            .tf32 = rounds(call)};
}

constexpr int warps = threads / 32;
constexpr int measuring = 512;           /* threads of a block that computes statistics */
constexpr int chunk_rows = 256;          /* rows of the covariance in shared memory at a time */

/* The negative normal number closest to 0; of fp16, the subnormal one. */
template <class T> __device__ inline T least_below();
template <> __device__ inline float least_below<float>() { return -1.17549435e-38f; }
template <> __device__ inline __half least_below<__half>() { return __ushort_as_half(0x8001); }
template <> __device__ inline __nv_bfloat16 least_below<__nv_bfloat16>()
{
    return __ushort_as_bfloat16(0x8080);
}

template <class V> __device__ static inline V warp_sum(V value)
{
    return warp_reduce(value, [](V a, V b) { return a + b; });
}

/* A filter is far if its mean is more deviations from 0 than fp32 sums of squares, or a 16-bit bias, can
 * represent: its variance and y are computed from x itself. That is slow, but no network that learns has many
 * such filters. */
__device__ static inline bool is_far(float mean, float invstd) { return fabsf(mean) * invstd > 16; }

/* x - mean of one pixel and filter. */
template <class T, class Mean>
__device__ static inline float deviation(const T *a, const T *weight, Mean mean, int channels)
{
    constexpr int width = pack<T>::count;
    float sum = 0;
    for (int c = 0; c < channels; c += width) {
        cell<T, width> x = load<T, width>(a + c), w = load<T, width>(weight + c);
#pragma unroll
        for (int i = 0; i < width; i++) sum = fmaf(w.get(i), x.get(i) - mean(c + i), sum);
    }
    return sum;
}

/* The inputs of the statistics, and the results; the covariance is followed by the means of a. */
template <class T> struct measured {
    const T *a;
    const float *gram, *sums;            /* a a' and the sums of a */
    double eps;
    struct statistics out;
    float *covariance;                   /* W times that of a [filters][channels] */
    T *bias;                             /* of y */
};

/* Runs on a whole block. Errors of the covariance are along the means of a; it is corrected to give the right
 * variance. */
template <class T>
__device__ static inline void measure_far(const struct matrices<T> &m, const struct measured<T> &of,
                                          int filter)
{
    const struct statistics &out = of.out;
    const float *sums = of.sums;
    double sum = 0, squares = 0, variance = 0, count = (double)m.e.pixels, share = 1 / count;
    const T *weight = m.weight + (int64_t)filter * m.e.channels;
    float *row = of.covariance + (int64_t)filter * m.e.channels;
    for (int64_t p = threadIdx.x; p < m.e.pixels; p += measuring) {
        float x = deviation(of.a + p * m.e.channels, weight, [&](int c) { return (float)(sums[c] * share); },
                            m.e.channels);
        sum += x;
        squares += (double)x * x;
    }
    for (int c = threadIdx.x; c < m.e.channels; c += measuring)
        variance += (double)to_float(weight[c]) * row[c];
    sum = block_sum<measuring>(sum);
    squares = fmax(block_sum<measuring>(squares) - sum * sum / count, 0.0);
    variance = (squares / count - block_sum<measuring>(variance)) / out.mean[filter];
    for (int c = threadIdx.x; c < m.e.channels; c += measuring) row[c] += (float)(variance * sums[c] * share);
    __syncthreads();
    if (threadIdx.x > 0) return;
    out.mean[filter] = (float)(out.mean[filter] + sum / count);
    out.invstd[filter] = (float)(1 / sqrt(squares / count + of.eps));
    out.variance[filter] = count > 1 ? (float)(squares / (count - 1)) : 0;
}

/* s W and y's bias for one filter, by a warp; a far filter's are as if x were its mean everywhere. Without
 * means of a (evaluation), invstd is a variance. A bias is never 0, so that z is not: for z = 0, the
 * library's mask lets gradients pass. */
template <class T, class Mean>
__device__ static inline void scale_filter(const struct matrices<T> &m, Mean mean, int filter, double eps,
                                           T *bias)
{
    int lane = threadIdx.x % 32, channels = m.e.channels;
    double scale = m.mean ? m.norm.invstd[filter] : 1 / sqrt(m.norm.invstd[filter] + eps), middle = 0;
    if (m.norm.weight) scale *= m.norm.weight[filter];
    if (m.mean && is_far(m.norm.mean[filter], m.norm.invstd[filter])) scale = 0;
    for (int c = lane; c < channels; c += 32) {
        int64_t i = (int64_t)filter * channels + c;
        T scaled = m.factor((float)(scale * to_float(m.weight[i])));
        m.scaled[i] = scaled;
        if (m.mean) middle += (double)to_float(scaled) * mean(c);
    }
    middle = m.mean ? warp_sum(middle) : scale * m.norm.mean[filter];
    float offset = (float)((m.norm.bias ? m.norm.bias[filter] : 0) - middle);
    T rounded = from_float<T>(offset);
    if (lane == 0) bias[filter] = to_float(rounded) == 0 ? least_below<T>() : rounded;
}

/* A block processes `warps` filters: first W times the covariance of a, whose terms are divided among groups
 * of threads; then, with a warp per filter, mean and variance, s W and the bias. Means may be many deviations
 * from 0: each is two fp32 numbers, whose products fma subtracts as they are. */
template <class T>
__global__ void __launch_bounds__(measuring)
    conv_batchnorm_statistics_kernel(struct matrices<T> m, struct measured<T> of)
{
    __shared__ float weight[chunk_rows][warps], partial[measuring][warps + 1];
    __shared__ float totals[chunk_rows];
    int channels = m.e.channels, first = blockIdx.x * warps, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int span = min(channels, measuring), groups = measuring / span;
    int column = threadIdx.x % span, group = threadIdx.x / span;
    double share = 1 / (double)m.e.pixels;
    for (int start = 0; start < channels; start += span) {
        int c = start + column;
        bool here = group < groups && c < channels;
        float sum[warps] = {};
        double own = here ? of.sums[c] * share : 0;
        float high = (float)own, low = (float)(own - high);
        for (int base = 0; base < channels; base += chunk_rows) {
            int rows = min(chunk_rows, channels - base);
            __syncthreads();
            for (int i = threadIdx.x; i < rows * warps; i += measuring) {
                int d = i % rows, k = i / rows;
                weight[d][k] = first + k < m.e.filters
                                   ? to_float(m.weight[(int64_t)(first + k) * channels + base + d])
                                   : 0;
                if (k == 0) totals[d] = of.sums[base + d];
            }
            __syncthreads();
            if (!here) continue;
#pragma unroll 8
            for (int d = group; d < rows; d += groups) {
                float both = of.gram[(int64_t)(base + d) * channels + c];
                float centered = fmaf(-low, totals[d], fmaf(-high, totals[d], both));
#pragma unroll
                for (int k = 0; k < warps; k++) sum[k] = fmaf(weight[d][k], centered, sum[k]);
            }
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < warps; k++) partial[threadIdx.x][k] = sum[k];
        __syncthreads();
        if (!here || group > 0) continue;
        for (int k = 0; k < warps && first + k < m.e.filters; k++) {
            float total = 0;
            for (int g = 0; g < groups; g++) total += partial[g * span + column][k];
            of.covariance[(int64_t)(first + k) * channels + c] = (float)(total * share);
        }
        if (blockIdx.x == 0) of.covariance[(int64_t)m.e.filters * channels + c] = high;
    }
    __syncthreads();
    int filter = first + warp;
    bool mine = warp < warps && filter < m.e.filters;
    double middle = 0, variance = 0, count = (double)m.e.pixels;
    for (int c = lane; mine && c < channels; c += 32) {
        double w = to_float(m.weight[(int64_t)filter * channels + c]);
        middle += w * (of.sums[c] * share);
        variance += w * of.covariance[(int64_t)filter * channels + c];
    }
    middle = warp_sum(middle);
    variance = fmax(warp_sum(variance), 0.0);
    if (lane == 0 && mine) {
        of.out.mean[filter] = (float)middle;
        of.out.invstd[filter] = (float)(1 / sqrt(variance + of.eps));
        of.out.variance[filter] = count > 1 ? (float)(variance * count / (count - 1)) : 0;
    }
    __syncthreads();
    for (int k = first; k < first + warps && k < m.e.filters; k++) {
        bool far = is_far(of.out.mean[k], of.out.invstd[k]);
        __syncthreads();
        if (far) measure_far(m, of, k);
    }
    __syncthreads();
    if (mine) scale_filter(m, [&](int c) { return (float)(of.sums[c] * share); }, filter, of.eps, of.bias);
}

/* s W and the bias from known statistics. */
template <class T>
__global__ void __launch_bounds__(threads)
    conv_batchnorm_scale_kernel(struct matrices<T> m, double eps, T *bias)
{
    int filter = blockIdx.x * warps + threadIdx.x / 32;
    if (filter < m.e.filters) scale_filter(m, [&](int c) { return m.mean[c]; }, filter, eps, bias);
}

/* y of far filters, and their bits of the mask, if there is one: a block processes the 8 filters of a byte,
 * for a share of the pixels. */
#define FAR_BLOCKS 8                     /* that share the pixels of a byte's filters */

template <class T> struct outputs {
    const T *a, *residual;               /* no residual: NULL */
    T *y;
    uint8_t *mask;
    bool activates, clips;
};

template <class T>
__global__ void __launch_bounds__(threads)
    conv_batchnorm_far_kernel(struct matrices<T> m, struct outputs<T> out)
{
    int first = blockIdx.x * 8;
    unsigned far = 0;
    for (int k = 0; k < 8; k++)
        far |= (unsigned)is_far(m.norm.mean[first + k], m.norm.invstd[first + k]) << k;
    if (!far) return;
    int64_t step = (int64_t)gridDim.y * threads;
    for (int64_t p = (int64_t)blockIdx.y * threads + threadIdx.x; p < m.e.pixels; p += step) {
        int64_t at = p * m.e.filters + first;
        unsigned bits = out.mask ? out.mask[at / 8] : 0;
        for (int k = 0; k < 8; k++) {
            if (!(far >> k & 1)) continue;
            float x = deviation(out.a + p * m.e.channels, m.weight + (int64_t)(first + k) * m.e.channels,
                                [&](int c) { return m.mean[c]; }, m.e.channels);
            float scale = m.norm.invstd[first + k] * (m.norm.weight ? m.norm.weight[first + k] : 1);
            float z = fmaf(x, scale, m.norm.bias ? m.norm.bias[first + k] : 0);
            if (out.residual) z += to_float(out.residual[at + k]);
            if (out.activates) z = activate<ACTIVATION_RELU>(z, 0);
            T y = from_float<T>(out.clips ? activate<ACTIVATION_RELU6>(z, 0) : z);
            out.y[at + k] = y;
            bits = (bits & ~(1u << k)) | (unsigned)(to_float(y) != 0) << k;
        }
        if (out.mask) out.mask[at / 8] = (uint8_t)bits;
    }
}

/* Turns relu's y into relu6's. Few numbers are above 6. */
template <class T>
__global__ void __launch_bounds__(threads) conv_batchnorm_clamp_kernel(T *y, int64_t packs)
{
    constexpr int width = pack<T>::count;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
#pragma unroll 4
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += step) {
        cell<T, width> in = load<T, width>(y + i * width);
        float out[width];
        bool above = false;
#pragma unroll
        for (int k = 0; k < width; k++) {
            above = above || in.get(k) > 6;
            out[k] = in.get(k) > 6 ? 6 : in.get(k);
        }
        if (above) store<T, width>(y + i * width, out);
    }
}

/* A bit for each number of y, a byte per thread. */
template <class T> __global__ void __launch_bounds__(threads)
    conv_batchnorm_mask_kernel(uint8_t *mask, const T *y, int64_t bytes)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += step)
        mask[i] = mask_of(load<T, 8>(y + 8 * i));
}

/* From G, not centered, and the sums of dz: the parameters' gradients, which may be NULL; s W; W sqrt|b|, and
 * the same with b's signs. A warp per filter. */
template <class T> struct filter_gradients {
    const float *gradient, *sums, *covariance;
    float *d_norm_weight, *d_norm_bias, *d_weight;
    T *roots, *signed_roots;
    double eps;
};

template <class T>
__global__ void __launch_bounds__(threads)
    conv_batchnorm_params_kernel(struct matrices<T> m, struct filter_gradients<T> g)
{
    int filter = blockIdx.x * warps + threadIdx.x / 32, lane = threadIdx.x % 32, channels = m.e.channels;
    if (filter >= m.e.filters) return;
    double invstd = m.norm.invstd[filter], scale = m.norm.weight ? invstd * m.norm.weight[filter] : invstd;
    double sum = g.sums[filter], product = 0;
    int64_t row = (int64_t)filter * channels;
    for (int c = lane; c < channels; c += 32)
        product += (double)to_float(m.weight[row + c]) * (g.gradient[row + c] - sum * m.mean[c]);
    product = warp_sum(product);
    /* The variation of a constant x is rounding alone. */
    if (invstd * invstd * g.eps > 1 - 1e-6) product = 0;
    double slope = -scale * invstd * invstd * product;          /* b times the number of pixels */
    float root = (float)sqrt(fabs(slope) / (double)m.e.pixels) * ROOT_SCALE;
    for (int c = lane; c < channels; c += 32) {
        double centered = g.gradient[row + c] - sum * m.mean[c];
        float weight = to_float(m.weight[row + c]);
        m.scaled[row + c] = m.factor((float)(scale * weight));
        g.roots[row + c] = m.factor(root * weight);
        g.signed_roots[row + c] = m.factor(slope < 0 ? -root * weight : root * weight);
        if (g.d_weight)
            g.d_weight[row + c] = (float)(scale * centered + slope * g.covariance[row + c]);
    }
    if (lane > 0) return;
    if (g.d_norm_weight) g.d_norm_weight[filter] = (float)(invstd * product);
    if (g.d_norm_bias) g.d_norm_bias[filter] = (float)sum;
}

/* q, a block for 32 channels: its warps share the rows of Q, which it rounds, and of s W. */
constexpr int bias_warps = 32;

template <class T>
__global__ void __launch_bounds__(32 * bias_warps)
    conv_batchnorm_bias_kernel(struct matrices<T> m, const float *sums, T *square, T *bias)
{
    __shared__ double partial[bias_warps][33];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, channels = m.e.channels;
    int c = blockIdx.x * 32 + lane;
    double sum = 0, share = 1 / (double)m.e.pixels;
    if (c < channels) {
#pragma unroll 4
        for (int d = warp; d < channels; d += bias_warps) {
            T &entry = square[(int64_t)d * channels + c];
            if (m.tf32) entry = m.factor(to_float(entry));
            sum += (double)(to_float(entry) / SQUARE_SCALE) * m.mean[d];
        }
#pragma unroll 8
        for (int k = warp; k < m.e.filters; k += bias_warps)
            sum += (double)to_float(m.scaled[(int64_t)k * channels + c]) * (sums[k] * share);
    }
    partial[warp][lane] = sum;
    __syncthreads();
    sum = warp_sum(partial[lane][warp]);
    c = blockIdx.x * 32 + warp;
    if (lane == 0 && c < channels) bias[c] = from_float<T>((float)-sum);
}

/* ---- The phases ---- */

static unsigned filter_blocks(struct extents e) { return (unsigned)div_up(e.filters, warps); }

static double eps_of(const struct call *call)
{
    return ((const struct batchnorm *)call->settings)->eps;
}

static struct matmul_operands operands(const struct call *call, const struct workspace_layout &r,
                                       const void *a,
                                       const void *b, void *d)
{
    return {.a = a, .b = b, .d = d, .alpha = 1, .scratch = at<char>(call, r.scratch)};
}

/* The pixels that a stride takes of a tensor like x[0]. */
static struct pick pick_of_taken(const struct call *call)
{
    struct shape x = call->x[0].shape;
    return pick_of(call->x[0].dtype, x, conv_batchnorm_taken(settings_of(call), x),
                   (int)settings_of(call)->stride);
}

/* The pixels of a that enter the products: with a stride, a copy of those that it takes, whose sums are left
 * where statistics are computed. */
static enum status take(const struct call *call, const struct workspace_layout &r, struct tensor *a)
{
    *a = call->x[0];
    if (!is_strided(call)) return OK;
    struct pick p = pick_of_taken(call);
    a->shape = conv_batchnorm_taken(settings_of(call), a->shape);
    a->data = at<char>(call, r.taken);
    if (!measures(call)) return copy_picked(call, &p, a->data, call->x[0].data);
    struct call summing = *call;
    summing.workspace = at<char>(call, r.parts);
    return columns_sum_picked(&summing, &p, a->data, call->x[0].data, at<float>(call, r.sums));
}

static const float *sums_of(const struct call *call, const struct workspace_layout &r)
{
    const struct tensor *given = conv_batchnorm_sums(call);
    return given ? (const float *)given->data : at<float>(call, r.sums);
}

/* The sums of a, unless they are given, and a a'. */
static enum status multiply_a(const struct call *call, const struct workspace_layout &r,
                              const struct tensor *a,
                              const float **gram)
{
    struct call summing = *call;
    summing.workspace = at<char>(call, r.parts);
    summing.y.data = NULL;
    *call_put(&summing, OPERAND_Y_SUMS) = {.data = at<float>(call, r.sums)};
    *gram = sums_of(call, r) + extents_of(call).channels;
    if (gram_is_given(call)) return OK;
    if (gram_is_made(call)) return gram_run(&summing, false);
    bool summed = conv_batchnorm_sums(call) || is_strided(call);
    if (!summed) TRY(columns_sum(&summing, a, at<float>(call, r.sums), false));
    struct matmul_operands product = operands(call, r, a->data, a->data, at<float>(call, r.square));
    *gram = at<float>(call, r.square);
    return matmul_run(plans_of(call)->of[GRAM], call, &product);
}

template <class T> static enum status measure(const struct call *call, const struct workspace_layout &r,
                                              const struct tensor *a)
{
    const float *gram;
    struct extents e = extents_of(call);
    TRY(multiply_a(call, r, a, &gram));
    struct measured<T> of = {
        .a = (const T *)a->data,
        .gram = gram,
        .sums = sums_of(call, r),
        .eps = eps_of(call),
        .out = statistics_of(call),
        .covariance = (float *)call->saved[SAVED_COVARIANCE].data,
        .bias = at<T>(call, r.bias),
    };
    conv_batchnorm_statistics_kernel<T>
        <<<filter_blocks(e), measuring, 0, stream_of(call)>>>(matrices_of<T>(call, r), of);
    return launched(call);
}

template <class T> static enum status write_y(const struct call *call, const struct workspace_layout &r,
                                              const struct tensor *a)
{
    const struct conv_batchnorm_plans *plans = plans_of(call);
    struct extents e = extents_of(call);
    struct matrices<T> m = matrices_of<T>(call, r);
    T *bias = at<T>(call, r.bias);
    uint8_t *mask = (uint8_t *)call_data(call, OPERAND_MASK);
    if (!measures(call))
        conv_batchnorm_scale_kernel<T>
            <<<filter_blocks(e), threads, 0, stream_of(call)>>>(m, eps_of(call), bias);
    TRY(launched(call));
    if (plans->output) {
        struct folded_output of = folded_output_of(call);
        of.a = a->data, of.residual = call->x[1].data, of.y = call->y.data;
        of.factors = m.scaled, of.bias = bias, of.mask = mask;
        TRY(folded_output_run(call, &of));
    } else {
        struct matmul_operands product = operands(call, r, m.scaled, a->data, call->y.data);
        product.bias = bias;
        if (call->x_count > 1) product.c = call->x[1].data;
        product.mask = mask ? (char *)mask : at<char>(call, r.mask);
        TRY(matmul_run(plans->of[OUTPUT], call, &product));
    }
    struct outputs<T> out = {
        .a = (const T *)a->data,
        .residual = call->x_count > 1 ? (const T *)call->x[1].data : NULL,
        .y = (T *)call->y.data,
        .mask = plans->mask ? mask : NULL,
        .activates = activation_of(call) != ACTIVATION_NONE,
        .clips = activation_of(call) == ACTIVATION_RELU6,
    };
    if (activation_of(call) == ACTIVATION_RELU6) {
        int64_t packs = e.pixels * e.filters / pack<T>::count;
        conv_batchnorm_clamp_kernel<T><<<grid_of(call, packs, threads), threads, 0, stream_of(call)>>>(
            out.y, packs);
    }
    dim3 grid((unsigned)(e.filters / 8), FAR_BLOCKS);
    if (call->training) conv_batchnorm_far_kernel<T><<<grid, threads, 0, stream_of(call)>>>(m, out);
    TRY(launched(call));
    if (!mask || plans->mask) return OK;
    if constexpr (sizeof(T) == 2) {
        int64_t bytes = e.pixels * e.filters / 8;
        conv_batchnorm_mask_kernel<T><<<grid_of(call, bytes, threads), threads, 0, stream_of(call)>>>(
            mask, out.y, bytes);
    }
    return launched(call);
}

static enum status forward(const struct call *call)
{
    if (shape_count(call->x[0].shape) == 0) return OK;
    struct workspace_layout r = layout_of(call);
    struct tensor a;
    TRY(take(call, r, &a));
    return with_type(a.dtype, [&](auto type) {
        using T = decltype(type);
        if (measures(call)) TRY(measure<T>(call, r, &a));
        return write_y<T>(call, r, &a);
    });
}

/* dz and its sums, unless the call brings both. dz is written to the residual's gradient, or else to the
 * workspace, unless d_y is dz already. */
static enum status join(const struct call *call, const struct workspace_layout &r, const void **dz)
{
    struct join join = {.d_y = call->d_y, .d_y_more = call_data(call, OPERAND_D_Y_ADDEND),
                        .y = activation_of(call) == ACTIVATION_NONE ? NULL : call->y.data,
                        .mask = (const uint8_t *)call_data(call, OPERAND_MASK),
                        .top = activation_of(call) == ACTIVATION_RELU6 ? 6 : INFINITY,
                        .sums = at<float>(call, r.sums)};
    *dz = call->d_y.data;
    if (conv_batchnorm_sums(call)) return OK;
    if (call->x_count > 1) join.dz = call->d_x[1].data;
    if (!join.dz && r.dz > 0) join.dz = at<void>(call, r.dz);
    if (join.dz) *dz = join.dz;
    return join_run(call, &join, at<float>(call, r.parts));
}

static float *gradient_at(const struct call *call, int param)
{
    return (float *)call->d_params[param].data;
}

template <class T> static enum status write_params(const struct call *call, const struct workspace_layout &r)
{
    const struct batchnorm *norm = (const struct batchnorm *)call->settings;
    struct extents e = extents_of(call);
    struct filter_gradients<T> g = {
        .gradient = at<float>(call, r.gradient),
        .sums = sums_of(call, r),
        .covariance = (const float *)call->saved[SAVED_COVARIANCE].data,
        .d_norm_weight = norm->affine ? gradient_at(call, 0) : NULL,
        .d_norm_bias = norm->affine ? gradient_at(call, 1) : NULL,
        .d_weight = gradient_at(call, conv_batchnorm_weight(norm)),
        .roots = at<T>(call, r.roots),
        .signed_roots = at<T>(call, r.roots) + (int64_t)e.filters * e.channels,
        .eps = norm->eps,
    };
    conv_batchnorm_params_kernel<T>
        <<<filter_blocks(e), threads, 0, stream_of(call)>>>(matrices_of<T>(call, r), g);
    return launched(call);
}

/* Without sums of d_a they are NaN: not known. */
static enum status multiply_d_a(const struct call *call, const struct workspace_layout &r, const void *a,
                                const void *dz,
                                void *d_a)
{
    const struct conv_batchnorm_plans *plans = plans_of(call);
    float *sums = (float *)call_data(call, OPERAND_X_PRODUCTS);
    if (plans->data_parts > 0) {
        struct folded_data of = folded_data_of(call);
        of.dz = dz, of.a = a, of.d_a = d_a;
        of.factors = at<void>(call, r.scaled), of.bias = at<void>(call, r.bias);
        of.sums = sums, of.parts = at<float>(call, r.data_parts);
        return folded_data_run(call, &of);
    }
    struct matmul_operands product = operands(call, r, at<void>(call, r.square), a, d_a);
    product.bias = at<void>(call, r.bias);
    product.alpha = 1 / SQUARE_SCALE;
    TRY(matmul_run(plans->of[CORRECTION], call, &product));
    product = operands(call, r, at<void>(call, r.scaled), dz, d_a);
    product.c = d_a;
    TRY(matmul_run(plans->of[DATA], call, &product));
    if (!sums) return OK;
    size_t bytes = 2 * (size_t)extents_of(call).channels * sizeof(float);
    return cuda_status(call->device, cudaMemsetAsync(sums, 0xff, bytes, stream_of(call)), "filling memory");
}

template <class T> static enum status write_d_a(const struct call *call, const struct workspace_layout &r,
                                                const struct tensor *a, const T *dz)
{
    const struct conv_batchnorm_plans *plans = plans_of(call);
    struct matrices<T> m = matrices_of<T>(call, r);
    T *square = at<T>(call, r.square), *bias = at<T>(call, r.bias);
    void *d_a = is_spread(call) ? at<void>(call, r.d_taken) : call->d_x[0].data;
    const T *roots = at<T>(call, r.roots), *signed_roots = roots + (int64_t)m.e.filters * m.e.channels;
    struct matmul_operands product = operands(call, r, roots, signed_roots, square);
    product.alpha = SQUARE_SCALE / (ROOT_SCALE * ROOT_SCALE);
    TRY(matmul_run(plans->of[SQUARE], call, &product));
    conv_batchnorm_bias_kernel<T>
        <<<(unsigned)div_up(m.e.channels, 32), 32 * bias_warps, 0, stream_of(call)>>>(
            m, sums_of(call, r), square, bias);
    TRY(launched(call));
    TRY(multiply_d_a(call, r, a->data, dz, d_a));
    struct pick p = pick_of_taken(call);
    return is_spread(call) ? copy_spread(call, &p, call->d_x[0].data, d_a) : OK;
}

static enum status backward(const struct call *call)
{
    if (shape_count(call->x[0].shape) == 0) return OK;
    struct workspace_layout r = layout_of(call);
    struct tensor a;
    const void *dz;
    TRY(take(call, r, &a));
    TRY(join(call, r, &dz));
    struct matmul_operands product = operands(call, r, a.data, dz, at<float>(call, r.gradient));
    TRY(matmul_run(plans_of(call)->of[WEIGHTS], call, &product));
    return with_type(a.dtype, [&](auto type) {
        using T = decltype(type);
        TRY(write_params<T>(call, r));
        return call->d_x[0].data ? write_d_a<T>(call, r, &a, (const T *)dz) : OK;
    });
}

/* ---- The algorithm ---- */

static enum status run(const struct call *call, const struct kernel_plan *plan)
{
    (void)plan;
    return call->phase == PHASE_BACKWARD ? backward(call) : forward(call);
}

static void release(struct kernel_plan *plan)
{
    struct conv_batchnorm_plans *plans = (struct conv_batchnorm_plans *)plan->state;
    for (int i = 0; i < PRODUCTS; i++) matmul_close(plans->of[i]);
    free(plans);
}

/* The products of the phase. */
static bool make(const struct call *call, struct kernel_plan *plan)
{
    struct conv_batchnorm_plans *plans = (struct conv_batchnorm_plans *)memory_new(1, sizeof *plans);
    bool back = call->phase == PHASE_BACKWARD, data = back && call->d_x[0].shape.rank > 0;
    struct folded_data of = folded_data_of(call);
    bool fits = data && call->device && folded_data_fits(&of, call->device);
    plan->state = plans;
    plans->output = folded_output_can(call);
    const bool wanted[PRODUCTS] = {!back && call->training, !back && !plans->output, back, data,
                                   data && !fits, data && !fits};
    if (fits) plans->data_parts = folded_data_workspace(&of, call->device);
    for (int i = 0; i < PRODUCTS; i++) {
        struct matmul_problem problem = problem_of(call, (enum product)i);
        if (i == OUTPUT) plans->mask = problem.mask || plans->output;
        if (!wanted[i] || matmul_open(&problem, call->device, &plans->of[i]) == OK) continue;
        release(plan);
        return false;
    }
    return true;
}

static const struct algorithm folded = {.name = "folded", .make = make, .run = run, .release = release};
static const struct algorithm *const algorithms[] = {&folded, NULL};

const struct op_code conv_batchnorm_cuda = {
    .plans_together = true,
    .supports = conv_batchnorm_supports,
    .algorithms = algorithms,
    .workspace = workspace,
    .forward = kernel_plan_run,
    .backward = kernel_plan_run,
    .update = batchnorm_update_cuda,
    .recompute = kernel_plan_run,
};
