/* conv_direct.cu: convolution by plain loops, for shapes without another algorithm and for very small images.
 *
 * If they fit, the weights are in the block's shared memory, as floats. */
#include <limits.h>

#include "kernels/support/block.cuh"
#include "kernels/conv/conv_cuda.cuh"

#define THREADS 256
#define CLOSE_BYTES 32768                /* of weights that are copied to shared memory */

/* A row is the weights of a filter of a group: all taps and channels. */
template <class T, bool close> struct rows_of_weights;

template <class T> struct rows_of_weights<T, false> {
    const T *data;
    int row;
    __device__ rows_of_weights(const T *weight, int, int length) : data(weight), row(length) {}
    __device__ float at(int k, int i) const { return to_float(data[(int64_t)k * row + i]); }
};

/* Rows of an odd length: neighbouring filters lie in different banks. */
template <class T> struct rows_of_weights<T, true> {
    const float *data;
    int row;
    __device__ rows_of_weights(const T *weight, int rows, int length) : row(length | 1)
    {
        extern __shared__ float memory[];
        for (int i = (int)threadIdx.x; i < rows * length; i += THREADS)
            memory[i / length * row + i % length] = to_float(weight[i]);
        data = memory;
        __syncthreads();
    }
    __device__ float at(int k, int i) const { return data[k * row + i]; }
};

/* The output position that reads input position `in` at tap `tap` along axis `i`; -1: none. */
__device__ static inline int output_at(const struct conv_sizes &g, int i, int in, int tap)
{
    int out = in + g.pad[i] - tap * g.dilation[i];
    if (out < 0) return -1;
    if (g.stride[i] > 1) {
        if (out % g.stride[i] != 0) return -1;
        out /= g.stride[i];
    }
    return out < g.out[i] ? out : -1;
}

__device__ static inline int64_t pixel(int64_t n, int h, int w, const int size[2])
{
    return (n * size[0] + h) * size[1] + w;
}

/* One output per thread. I: a type that can count the outputs. */
template <class T, class I, bool close>
__global__ void direct_forward_kernel(struct conv_sizes g, T *y, const T *x, const T *weight, const T *bias,
                                      I count)
{
    int channels = g.c / g.groups, filters = g.k / g.groups;
    const rows_of_weights<T, close> weights(weight, g.k, g.kernel[0] * g.kernel[1] * channels);
    I stride = (I)gridDim.x * blockDim.x;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        int k = (int)(i % g.k);
        I rest = i / g.k;
        int q = (int)(rest % g.out[1]), p = (int)(rest / g.out[1] % g.out[0]);
        int64_t n = rest / g.out[1] / g.out[0];
        float sum = bias ? to_float(bias[k]) : 0;
        for (int r = 0; r < g.kernel[0]; r++) {
            int h = p * g.stride[0] - g.pad[0] + r * g.dilation[0];
            if (h < 0 || h >= g.in[0]) continue;
            for (int s = 0; s < g.kernel[1]; s++) {
                int w = q * g.stride[1] - g.pad[1] + s * g.dilation[1];
                if (w < 0 || w >= g.in[1]) continue;
                const T *from = x + pixel(n, h, w, g.in) * g.c + k / filters * channels;
                int tap = (r * g.kernel[1] + s) * channels;
                for (int c = 0; c < channels; c++)
                    sum += to_float(from[c]) * weights.at(k, tap + c);
            }
        }
        y[i] = from_float<T>(sum);
    }
}

/* The gradient of one input per thread. */
template <class T, class I, bool close>
__global__ void direct_backward_data_kernel(struct conv_sizes g, T *d_x, const T *d_y, const T *weight,
                                            I count)
{
    int channels = g.c / g.groups, filters = g.k / g.groups;
    const rows_of_weights<T, close> weights(weight, g.k, g.kernel[0] * g.kernel[1] * channels);
    I stride = (I)gridDim.x * blockDim.x;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        int channel = (int)(i % g.c), first = channel / channels * filters, c = channel % channels;
        I rest = i / g.c;
        int w = (int)(rest % g.in[1]), h = (int)(rest / g.in[1] % g.in[0]);
        int64_t n = rest / g.in[1] / g.in[0];
        float sum = 0;
        for (int r = 0; r < g.kernel[0]; r++) {
            int p = output_at(g, 0, h, r);
            if (p < 0) continue;
            for (int s = 0; s < g.kernel[1]; s++) {
                int q = output_at(g, 1, w, s);
                if (q < 0) continue;
                const T *from = d_y + pixel(n, p, q, g.out) * g.k + first;
                int tap = (r * g.kernel[1] + s) * channels + c;
                for (int k = 0; k < filters; k++)
                    sum += to_float(from[k]) * weights.at(first + k, tap);
            }
        }
        d_x[i] = from_float<T>(sum);
    }
}

/* The gradients of a tile of weights, TILE filters by TILE columns (a tap's channel) of a group, from a share
 * of the output pixels: a block loads the d_y of some pixels and the x that they read, and each thread adds
 * up one weight over every nth of them. */
#define TILE 16
#define BROUGHT 1024                     /* numbers of d_y, and of x, at a time */
#define BLOCKS 512                       /* that all tiles' shares are to be */
#define SHARE_PIXELS 96                  /* at least, or loading them is not worthwhile */

struct tiles {
    int columns;                         /* of a group */
    int column_tiles, filter_tiles, shares;
    int64_t weights, pixels;
};

static struct tiles tiles_of(const struct conv_sizes *p)
{
    struct tiles t = {.columns = p->kernel[0] * p->kernel[1] * (p->c / p->groups)};
    t.column_tiles = (int)div_up((int64_t)t.columns, (int64_t)TILE);
    t.filter_tiles = (int)div_up((int64_t)(p->k / p->groups), (int64_t)TILE);
    t.weights = (int64_t)p->k * t.columns;
    t.pixels = (int64_t)p->n * p->out[0] * p->out[1];
    int64_t shares = BLOCKS / ((int64_t)p->groups * t.column_tiles * t.filter_tiles);
    if (shares > t.pixels / SHARE_PIXELS) shares = t.pixels / SHARE_PIXELS;
    t.shares = shares < 1 ? 1 : (int)shares;
    return t;
}

/* The offset of a column's x from the first one that an output pixel reads. */
struct column {
    int h, w, channel;
};

/* An output pixel. */
struct spot {
    int64_t n;
    int p, q;
};

__device__ static inline void spot_move(struct spot &at, int pixels, const int out[2])
{
    at.q += pixels;
    while (at.q >= out[1]) {
        at.q -= out[1];
        if (++at.p == out[0]) at.p = 0, at.n++;
    }
}

template <class T>
__global__ void direct_backward_params_kernel(struct conv_sizes g, struct tiles tiles, float *shares,
                                              const T *x, const T *d_y)
{
    __shared__ float from_x[BROUGHT], from_y[BROUGHT];
    __shared__ struct column columns[TILE];
    int channels = g.c / g.groups, filters = g.k / g.groups;
    int first_column = (int)blockIdx.x % tiles.column_tiles * TILE;
    int first_filter = (int)blockIdx.x / tiles.column_tiles % tiles.filter_tiles * TILE;
    int group = (int)blockIdx.x / tiles.column_tiles / tiles.filter_tiles;
    int wide = min(TILE, tiles.columns - first_column), high = min(TILE, filters - first_filter);
    if (threadIdx.x < wide) {
        int j = first_column + (int)threadIdx.x, tap = j / channels;
        columns[threadIdx.x] = {tap / g.kernel[1] * g.dilation[0] - g.pad[0],
                                tap % g.kernel[1] * g.dilation[1] - g.pad[1],
                                group * channels + j % channels};
    }
    int pairs = wide * high, teams = THREADS / pairs;
    int team = (int)threadIdx.x / pairs, pair = (int)threadIdx.x % pairs;
    int64_t begin = tiles.pixels * blockIdx.y / tiles.shares;
    int64_t end = tiles.pixels * (blockIdx.y + 1) / tiles.shares;
    int most = BROUGHT / max(wide, high);
    /* A thread loads every nth row of one filter, and of one column. */
    int y_step = THREADS / high, y_row = (int)threadIdx.x / high, x_step = THREADS / wide,
        x_row = (int)threadIdx.x / wide, mine = (int)threadIdx.x % wide;
    const T *gradient = d_y + group * filters + first_filter + threadIdx.x % high;
    int pixel_first = (int)begin + x_row, line = pixel_first / g.out[1];    /* conv_is_small */
    struct spot next = {line / g.out[0], line % g.out[0], pixel_first % g.out[1]};
    float sum = 0;
    for (int64_t first = begin; first < end; first += most) {
        int count = (int)min((int64_t)most, end - first);
        __syncthreads();
        for (int row = y_row; row < count && y_row < y_step; row += y_step)
            from_y[row * high + threadIdx.x % high] = to_float(gradient[(first + row) * g.k]);
        const struct column at = columns[mine];
        struct spot spot = next;
        for (int row = x_row; row < count && x_row < x_step; row += x_step) {
            int h = spot.p * g.stride[0] + at.h, w = spot.q * g.stride[1] + at.w;
            bool inside = h >= 0 && h < g.in[0] && w >= 0 && w < g.in[1];
            int64_t from = pixel(spot.n, h, w, g.in) * g.c + at.channel;
            from_x[row * wide + mine] = inside ? to_float(x[from]) : 0.0f;
            spot_move(spot, x_step, g.out);
        }
        spot_move(next, most, g.out);
        __syncthreads();
        if (team < teams)
            for (int i = team; i < count; i += teams)
                sum += from_x[i * wide + pair % wide] * from_y[i * high + pair / wide];
    }
    __syncthreads();
    from_x[threadIdx.x] = sum;
    __syncthreads();
    if (team != 0) return;
    for (int i = 1; i < teams; i++) sum += from_x[i * pairs + pair];
    int64_t filter = group * filters + first_filter + pair / wide;
    shares[blockIdx.y * tiles.weights + filter * tiles.columns + first_column + pair % wide] = sum;
}

/* A warp adds up the shares of one weight. */
__global__ void direct_sum_kernel(float *d_weight, const float *shares, int share_count, int64_t count)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= count) return;
    float sum = 0;
    for (int s = (int)threadIdx.x % 32; s < share_count; s += 32) sum += shares[s * count + i];
    sum = warp_reduce(sum, [](float a, float b) { return a + b; });
    if (threadIdx.x % 32 == 0) d_weight[i] = sum;
}

template <class T>
static enum status direct_run_params(const struct conv_call *p)
{
    const struct call *call = p->call;
    struct tiles t = tiles_of(p);
    float *shares = (float *)call->workspace;
    dim3 grid((unsigned)(p->groups * t.column_tiles * t.filter_tiles), (unsigned)t.shares);
    direct_backward_params_kernel<T><<<grid, THREADS, 0, stream_of(call)>>>(
        *p, t, shares, (const T *)conv_x(call), (const T *)conv_y(call));
    direct_sum_kernel<<<(unsigned)div_up(t.weights * 32, (int64_t)THREADS), THREADS, 0, stream_of(call)>>>(
        (float *)conv_weight(call), shares, t.shares, t.weights);
    return launched(call);
}

template <class T, class I, bool close>
static enum status direct_run_images(const struct conv_call *p, size_t shared)
{
    const struct call *call = p->call;
    T *x = (T *)conv_x(call), *y = (T *)conv_y(call);
    const T *weight = (const T *)conv_weight(call), *bias = (const T *)conv_bias(call);
    cudaStream_t stream = stream_of(call);
    bool forward = p->phase == PHASE_FORWARD;
    int64_t count = forward ? (int64_t)p->n * p->out[0] * p->out[1] * p->k
                            : (int64_t)p->n * p->in[0] * p->in[1] * p->c;
    unsigned blocks = grid_of(call, count, THREADS, 4);
    if (forward)
        direct_forward_kernel<T, I, close><<<blocks, THREADS, shared, stream>>>(
            *p, y, x, weight, bias, (I)count);
    else
        direct_backward_data_kernel<T, I, close><<<blocks, THREADS, shared, stream>>>(
            *p, x, y, weight, (I)count);
    return launched(call);
}

static int64_t operands_count(const struct conv_sizes *p)
{
    return (int64_t)p->n * ((int64_t)p->in[0] * p->in[1] * p->c + (int64_t)p->out[0] * p->out[1] * p->k);
}

template <class T> static enum status direct_run_phase(const struct conv_call *p)
{
    if (p->phase == PHASE_BACKWARD_PARAMS) return direct_run_params<T>(p);
    size_t row = (size_t)(p->c / p->groups) * p->kernel[0] * p->kernel[1];
    size_t shared = (row | 1) * p->k * sizeof(float);
    bool few = operands_count(p) <= INT_MAX;
    if (shared <= CLOSE_BYTES && few) return direct_run_images<T, unsigned, true>(p, shared);
    return direct_run_images<T, int64_t, false>(p, 0);
}

static enum status direct_run(const struct call *call, const struct kernel_plan *plan)
{
    (void)plan;
    const struct conv_call p = conv_call_of(call);
    return with_type(p.dtype, [&](auto type) { return direct_run_phase<decltype(type)>(&p); });
}

static int direct_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    const struct conv_call p = conv_call_of(call);
    if (most < 1 || !conv_is_small(&p)) return 0;
    snprintf(names[0], PLAN_NAME, "direct");
    return 1;
}

static bool direct_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    struct tiles t = tiles_of(&p);
    if (p.phase == PHASE_BACKWARD_PARAMS) plan->workspace = (size_t)t.shares * t.weights * sizeof(float);
    return true;
}

const struct algorithm conv_by_direct = {
    .name = "direct",
    .supports = conv_is_usual,
    .candidates = direct_candidates,
    .make = direct_make,
    .run = direct_run,
};
