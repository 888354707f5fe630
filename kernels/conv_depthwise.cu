/* conv_depthwise.cu: convolution of each channel by itself (groups = c = k): square kernels of 3, 5 or 7 with as much
 * padding as keeps the image's size, stride 1 or 2.
 *
 * A thread works on a few neighbouring channels and on strips of neighbouring columns; a block on a run of strips
 * one after the other, so that rows are read from memory once and then found in the first cache. */
#include "kernels/conv_cuda.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define STRIP 4                      /* columns */
#define GRID_MOST 65535              /* of blocks in the grid's second dimension */

/* Channels of one thread: as many as the registers hold weights for. */
template <int kernel> constexpr int channels_of = kernel == 3 ? 4 : kernel == 5 ? 2 : 1;

template <class T, int width> struct alignas(width * sizeof(T)) chunk {
    T at[width];
};

/* How the work is laid out. Blocks are `across` threads wide in channels; each takes `run` strips. */
struct layout {
    int c, in[2], out[2];
    int across, strips_wide;         /* strips_wide: strips in one row of what is walked */
    int64_t strips, run;
};

template <class T, int width>
__device__ static inline void load(float to[width], const T *from, bool inside)
{
    chunk<T, width> got = {};
    if (inside) got = *(const chunk<T, width> *)from;
#pragma unroll
    for (int v = 0; v < width; v++) to[v] = inside ? to_float(got.at[v]) : 0.0f;
}

/* The weights of a thread's channels, tap by tap; turned by half a circle for the data gradient. */
template <class T, int kernel, int width>
__device__ static inline void load_weights(float to[kernel * kernel][width], const T *weight, int channel, bool turned)
{
    constexpr int taps = kernel * kernel;
#pragma unroll
    for (int tap = 0; tap < taps; tap++)
#pragma unroll
        for (int v = 0; v < width; v++)
            to[tap][v] = to_float(weight[(channel + v) * taps + (turned ? taps - 1 - tap : tap)]);
}

/* y from x; with stride 1 and turned weights, d_x from d_y. */
template <class T, int kernel, int stride>
__global__ void __launch_bounds__(THREADS, 2) forward_kernel(struct layout l, T *y, const T *x, const T *weight, bool turned)
{
    constexpr int width = channels_of<kernel>, pad = kernel / 2, columns = (STRIP - 1) * stride + kernel;
    int channel = (blockIdx.x * l.across + threadIdx.x % l.across) * width;
    float w[kernel * kernel][width];
    load_weights<T, kernel, width>(w, weight, channel, turned);
    int64_t first = blockIdx.y * l.run, end = first + l.run < l.strips ? first + l.run : l.strips;
    for (int64_t strip = first + threadIdx.x / l.across; strip < end; strip += THREADS / l.across) {
        int q = (int)(strip % l.strips_wide) * STRIP;
        int64_t row = strip / l.strips_wide;
        int p = (int)(row % l.out[0]);
        int64_t n = row / l.out[0];
        float sum[STRIP][width] = {};
#pragma unroll
        for (int r = 0; r < kernel; r++) {
            int h = p * stride - pad + r;
            const T *from = x + ((n * l.in[0] + h) * l.in[1]) * l.c + channel;
            float line[columns][width];
#pragma unroll
            for (int i = 0; i < columns; i++) {
                int at = q * stride - pad + i;
                load<T, width>(line[i], from + (int64_t)at * l.c, h >= 0 && h < l.in[0] && at >= 0 && at < l.in[1]);
            }
#pragma unroll
            for (int s = 0; s < kernel; s++)
#pragma unroll
                for (int i = 0; i < STRIP; i++)
#pragma unroll
                    for (int v = 0; v < width; v++) sum[i][v] += line[i * stride + s][v] * w[r * kernel + s][v];
        }
        T *to = y + (row * l.out[1] + q) * l.c + channel;
#pragma unroll
        for (int i = 0; i < STRIP; i++) {
            chunk<T, width> out;
#pragma unroll
            for (int v = 0; v < width; v++) out.at[v] = from_float<T>(sum[i][v]);
            if (q + i < l.out[1]) *(chunk<T, width> *)(to + (int64_t)i * l.c) = out;
        }
    }
}

/* d_x from d_y for stride 2: l.in is d_x's size and strips lie in d_x. Strips begin at even columns, so that which
 * taps meet which column is known when this is compiled. */
template <class T, int kernel>
__global__ void __launch_bounds__(THREADS, 2) backward_data_kernel(struct layout l, T *d_x, const T *d_y, const T *weight)
{
    constexpr int width = channels_of<kernel>, pad = kernel / 2;
    constexpr int before = (kernel - 1 - pad) / 2, columns = before + (STRIP - 1 + pad) / 2 + 1;
    int channel = (blockIdx.x * l.across + threadIdx.x % l.across) * width;
    float w[kernel * kernel][width];
    load_weights<T, kernel, width>(w, weight, channel, false);
    int64_t first = blockIdx.y * l.run, end = first + l.run < l.strips ? first + l.run : l.strips;
    for (int64_t strip = first + threadIdx.x / l.across; strip < end; strip += THREADS / l.across) {
        int left = (int)(strip % l.strips_wide) * STRIP;
        int64_t row = strip / l.strips_wide;
        int h = (int)(row % l.in[0]);
        int64_t n = row / l.in[0];
        float sum[STRIP][width] = {};
#pragma unroll
        for (int r = 0; r < kernel; r++) {
            int p = (h + pad - r) >> 1;
            if ((h + pad - r) & 1) continue;
            const T *from = d_y + ((n * l.out[0] + p) * l.out[1]) * l.c + channel;
            float line[columns][width];
#pragma unroll
            for (int i = 0; i < columns; i++) {
                int q = left / 2 - before + i;
                load<T, width>(line[i], from + (int64_t)q * l.c, p >= 0 && p < l.out[0] && q >= 0 && q < l.out[1]);
            }
#pragma unroll
            for (int s = 0; s < kernel; s++)
#pragma unroll
                for (int i = 0; i < STRIP; i++) {
                    constexpr int even = 2 * kernel;          /* keeps the quotient's sign positive */
                    int steps = i + pad - s + even;
                    if (steps % 2 != 0) continue;
#pragma unroll
                    for (int v = 0; v < width; v++)
                        sum[i][v] += line[before + steps / 2 - kernel][v] * w[r * kernel + s][v];
                }
        }
        T *to = d_x + (row * l.in[1] + left) * l.c + channel;
#pragma unroll
        for (int i = 0; i < STRIP; i++) {
            chunk<T, width> out;
#pragma unroll
            for (int v = 0; v < width; v++) out.at[v] = from_float<T>(sum[i][v]);
            if (left + i < l.in[1]) *(chunk<T, width> *)(to + (int64_t)i * l.c) = out;
        }
    }
}

/* Each block's share of the weights' gradient: shares[blockIdx.y][channel][tap]. Strips lie in d_y. */
template <class T, int kernel, int stride>
__global__ void __launch_bounds__(THREADS, 2) weight_shares_kernel(struct layout l, float *shares, const T *x, const T *d_y)
{
    constexpr int width = channels_of<kernel>, pad = kernel / 2, columns = (STRIP - 1) * stride + kernel;
    constexpr int taps = kernel * kernel;
    extern __shared__ float warp_sums[];               /* [WARPS][across][width][taps] */
    int lane = threadIdx.x % l.across, channel = (blockIdx.x * l.across + lane) * width;
    float sum[taps][width] = {};
    int64_t first = blockIdx.y * l.run, end = first + l.run < l.strips ? first + l.run : l.strips;
    for (int64_t strip = first + threadIdx.x / l.across; strip < end; strip += THREADS / l.across) {
        int q = (int)(strip % l.strips_wide) * STRIP;
        int64_t row = strip / l.strips_wide;
        int p = (int)(row % l.out[0]);
        int64_t n = row / l.out[0];
        const T *gradient = d_y + (row * l.out[1] + q) * l.c + channel;
        float d[STRIP][width];
#pragma unroll
        for (int i = 0; i < STRIP; i++) load<T, width>(d[i], gradient + (int64_t)i * l.c, q + i < l.out[1]);
#pragma unroll
        for (int r = 0; r < kernel; r++) {
            int h = p * stride - pad + r;
            const T *from = x + ((n * l.in[0] + h) * l.in[1]) * l.c + channel;
            float line[columns][width];
#pragma unroll
            for (int i = 0; i < columns; i++) {
                int at = q * stride - pad + i;
                load<T, width>(line[i], from + (int64_t)at * l.c, h >= 0 && h < l.in[0] && at >= 0 && at < l.in[1]);
            }
#pragma unroll
            for (int s = 0; s < kernel; s++)
#pragma unroll
                for (int i = 0; i < STRIP; i++)
#pragma unroll
                    for (int v = 0; v < width; v++) sum[r * kernel + s][v] += line[i * stride + s][v] * d[i][v];
        }
    }
    float *mine = warp_sums + ((threadIdx.x / 32) * l.across + lane) * width * taps;
#pragma unroll
    for (int tap = 0; tap < taps; tap++)
#pragma unroll
        for (int v = 0; v < width; v++) {
            float total = sum[tap][v];
            for (int step = 16; step >= l.across; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
            if (threadIdx.x % 32 < l.across) mine[v * taps + tap] = total;
        }
    __syncthreads();
    int count = l.across * width * taps;
    float *to = shares + ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * count;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        float total = 0;
        for (int warp = 0; warp < WARPS; warp++) total += warp_sums[warp * count + i];
        to[i] = total;
    }
}

/* Strips are counted over images of `size`. */
static struct layout layout_make(const struct conv_problem *p, const int size[2])
{
    struct layout l = {.c = p->c, .in = {p->in[0], p->in[1]}, .out = {p->out[0], p->out[1]}, .across = 8};
    int lanes = p->c / (p->kernel[0] == 3 ? 4 : p->kernel[0] == 5 ? 2 : 1);
    if (p->kernel[0] > 3) l.across = 32;
    while (lanes % l.across != 0) l.across /= 2;
    l.strips_wide = div_up(size[1], STRIP);
    l.strips = (int64_t)p->n * size[0] * l.strips_wide;
    return l;
}

static unsigned blocks_wide(const struct conv_problem *p, const struct layout *l, int width)
{
    return (unsigned)(p->c / width / l->across);
}

/* Runs as long as reuse wants, and as short as it takes to fill the device `waves` times with `each` blocks on a
 * multiprocessor. */
static unsigned runs_make(struct layout *l, unsigned wide, int multiprocessors, int64_t longest, int64_t waves)
{
    int64_t step = THREADS / l->across, most = div_up(l->strips, step);
    int64_t wanted = div_up(waves * multiprocessors, (int64_t)wide);
    int64_t steps = div_up(most, wanted < 1 ? 1 : wanted);
    if (longest > 0 && steps > longest) steps = longest;
    if (steps < div_up(most, (int64_t)GRID_MOST)) steps = div_up(most, (int64_t)GRID_MOST);
    l->run = steps * step;
    return (unsigned)div_up(l->strips, l->run);
}

#define RUN_STEPS 8                  /* strips that a thread takes one after the other */
#define SHARE_WAVES 4

template <class T, int kernel> static enum status run_forward(const struct conv_problem *p, const struct call *call)
{
    struct conv_operands at = conv_operands(call);
    constexpr int width = channels_of<kernel>;
    struct layout l = layout_make(p, p->out);
    unsigned wide = blocks_wide(p, &l, width);
    dim3 blocks(wide, runs_make(&l, wide, cuda_facts(call->device)->multiprocessors, RUN_STEPS, 8));
    if (p->stride[0] == 1)
        forward_kernel<T, kernel, 1><<<blocks, THREADS, 0, stream_of(call)>>>(l, (T *)at.y, (const T *)at.x,
                                                                             (const T *)at.weight, false);
    else
        forward_kernel<T, kernel, 2><<<blocks, THREADS, 0, stream_of(call)>>>(l, (T *)at.y, (const T *)at.x,
                                                                             (const T *)at.weight, false);
    return launched(call);
}

template <class T, int kernel> static enum status run_data(const struct conv_problem *p, const struct call *call)
{
    struct conv_operands at = conv_operands(call);
    constexpr int width = channels_of<kernel>;
    struct layout l = layout_make(p, p->in);
    unsigned wide = blocks_wide(p, &l, width);
    dim3 blocks(wide, runs_make(&l, wide, cuda_facts(call->device)->multiprocessors, RUN_STEPS, 8));
    if (p->stride[0] == 1)
        forward_kernel<T, kernel, 1><<<blocks, THREADS, 0, stream_of(call)>>>(l, (T *)at.x, (const T *)at.y,
                                                                             (const T *)at.weight, true);
    else
        backward_data_kernel<T, kernel><<<blocks, THREADS, 0, stream_of(call)>>>(l, (T *)at.x, (const T *)at.y,
                                                                                (const T *)at.weight);
    return launched(call);
}

template <class T, int kernel> static enum status run_params(const struct conv_problem *p, const struct call *call)
{
    struct conv_operands at = conv_operands(call);
    constexpr int width = channels_of<kernel>, taps = kernel * kernel;
    struct layout l = layout_make(p, p->out);
    unsigned wide = blocks_wide(p, &l, width);
    unsigned shares = runs_make(&l, wide, cuda_facts(call->device)->multiprocessors, 0, SHARE_WAVES);
    size_t shared = (size_t)WARPS * l.across * width * taps * sizeof(float);
    float *to = (float *)call->workspace;
    cudaStream_t stream = stream_of(call);
    if (p->stride[0] == 1)
        weight_shares_kernel<T, kernel, 1><<<dim3(wide, shares), THREADS, shared, stream>>>(l, to, (const T *)at.x,
                                                                                          (const T *)at.y);
    else
        weight_shares_kernel<T, kernel, 2><<<dim3(wide, shares), THREADS, shared, stream>>>(l, to, (const T *)at.x,
                                                                                          (const T *)at.y);
    TRY(launched(call));
    return conv_sum_shares(call, (float *)at.weight, to, (int)shares, p->c * taps);
}

template <class T, int kernel> static enum status run_phase(const struct conv_problem *p, const struct call *call)
{
    if (p->phase == PHASE_FORWARD) return run_forward<T, kernel>(p, call);
    if (p->phase == PHASE_BACKWARD_DATA) return run_data<T, kernel>(p, call);
    return run_params<T, kernel>(p, call);
}

static enum status run(const struct conv_way *way, const struct call *call, cudnnHandle_t handle)
{
    (void)handle;
    const struct conv_problem *p = &way->problem;
    return with_type(p->dtype, [&](auto type) {
        using T = decltype(type);
        if (p->kernel[0] == 3) return run_phase<T, 3>(p, call);
        if (p->kernel[0] == 5) return run_phase<T, 5>(p, call);
        return run_phase<T, 7>(p, call);
    });
}

static bool is_ours(const struct conv_problem *p)
{
    int kernel = p->kernel[0], stride = p->stride[0];
    if (p->groups != p->c || p->k != p->c || p->bias) return false;
    if ((kernel != 3 && kernel != 5 && kernel != 7) || (stride != 1 && stride != 2)) return false;
    if (p->c % (kernel == 3 ? 4 : kernel == 5 ? 2 : 1) != 0) return false;
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != kernel || p->stride[i] != stride || p->pad[i] != kernel / 2 || p->dilation[i] != 1)
            return false;
    return true;
}

static int offer(const struct conv_problem *problem, cudnnHandle_t handle, int most, char choices[][CONV_CHOICE])
{
    (void)handle;
    if (most < 1 || !is_ours(problem)) return 0;
    snprintf(choices[0], CONV_CHOICE, "depthwise");
    return 1;
}

#define MULTIPROCESSORS 256          /* as many as a device may have, to bound a workspace before one is known */

static bool make(struct conv_way *way, cudnnHandle_t handle)
{
    (void)handle;
    const struct conv_problem *p = &way->problem;
    if (!is_ours(p)) return false;
    if (p->phase != PHASE_BACKWARD_PARAMS) return true;
    struct layout l = layout_make(p, p->out);
    int width = p->kernel[0] == 3 ? 4 : p->kernel[0] == 5 ? 2 : 1;
    unsigned shares = runs_make(&l, blocks_wide(p, &l, width), MULTIPROCESSORS, 0, SHARE_WAVES);
    way->workspace = (size_t)shares * p->c * p->kernel[0] * p->kernel[0] * sizeof(float);
    return true;
}

static void release(struct conv_way *way)
{
    (void)way;
}

const struct conv_kind conv_by_depthwise = {
    .name = "depthwise", .offer = offer, .make = make, .release = release, .run = run,
};
