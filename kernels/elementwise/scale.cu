/* scale.cu: a thread processes one chunk of channels at regularly spaced pixels; blocks leave the sums of
 * their pixels in the workspace. */
#include "kernels/support/rows.cuh"

#define THREADS 256
#define DEEPEST 256      /* blocks below one another in backward */
constexpr int UNROLL = 4, IN_FLIGHT = 2;      /* pixels of a thread: forward, backward */

struct scale_layout {
    int64_t pixels, channels;
    int across, down;          /* chunks and pixels of a block */
    unsigned tiles;            /* blocks side by side */
};

static struct scale_layout scale_layout(struct shape shape, int width)
{
    struct scale_layout l = {.pixels = shape.n * shape.h * shape.w, .channels = shape.c};
    int64_t chunks = shape.c / width;
    l.across = power_up(chunks, 32);
    if (l.across == 32 && chunks % 32 != 0 && chunks % 16 == 0) l.across = 16;
    l.down = THREADS / l.across;
    l.tiles = (unsigned)div_up(shape.c / width, (int64_t)l.across);
    return l;
}

template <class T, int width>
__device__ static inline void load_weights(float (&to)[width], const float *weight, int64_t column)
{
#pragma unroll
    for (int e = 0; e < width; e++) to[e] = weight[column + e];
}

/* y may be x; `more` is added. */
template <class T, int width, bool adds>
__global__ void __launch_bounds__(THREADS)
scale_kernel(T *y, const T *x, const T *more, const float *weight, struct scale_layout l)
{
    int64_t column = ((int64_t)blockIdx.x % l.tiles * l.across + threadIdx.x) * width;
    int64_t pixel = (int64_t)(blockIdx.x / l.tiles) * l.down * UNROLL + threadIdx.y;
    float by[width];
    chunk<T, width> in[UNROLL], beside[UNROLL];
    if (column >= l.channels) return;
    load_weights<T, width>(by, weight, column);
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (pixel + i * l.down < l.pixels) {
            int64_t at = (pixel + i * l.down) * l.channels + column;
            in[i] = *(const chunk<T, width> *)(x + at);
            if constexpr (adds) beside[i] = *(const chunk<T, width> *)(more + at);
        }
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        if (pixel + i * l.down >= l.pixels) return;
#pragma unroll
        for (int e = 0; e < width; e++) {
            float product = by[e] * to_float(in[i].at[e]);
            if constexpr (adds) product += to_float(beside[i].at[e]);
            in[i].at[e] = from_float<T>(product);
        }
        *(chunk<T, width> *)(y + (pixel + i * l.down) * l.channels + column) = in[i];
    }
}

/* d_x may be d_y, or NULL. */
template <class T> struct scale_gradients {
    const T *x, *d_y;
    const float *weight;
    T *d_x;
    float *parts, *sums;       /* [blocks below one another, channels]: of d_y * x, and of d_x, if asked */
};

template <int width>
__device__ static inline void leave_sums(float *to, float (&sum)[width], int across, bool here)
{
    __shared__ float partial[width * THREADS];
    __syncthreads();
    sum_down<width>(sum, THREADS, across, partial);
    if (threadIdx.y > 0 || !here) return;
#pragma unroll
    for (int e = 0; e < width; e++) to[e] = sum[e];
}

template <class T, int width, bool sums>
__global__ void __launch_bounds__(THREADS, 3)
scale_backward_kernel(struct scale_gradients<T> g, struct scale_layout l)
{
    int64_t column = ((int64_t)blockIdx.x * l.across + threadIdx.x) * width;
    int64_t step = (int64_t)gridDim.y * l.down, end = column < l.channels ? l.pixels : 0;
    float by[width], products[width] = {}, sum[width] = {};
    if (end > 0) load_weights<T, width>(by, g.weight, column);
    for (int64_t pixel = (int64_t)blockIdx.y * l.down + threadIdx.y; pixel < end; pixel += IN_FLIGHT * step) {
        chunk<T, width> d[IN_FLIGHT], x[IN_FLIGHT];
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            int64_t at = (pixel + i * step) * l.channels + column;
            if (pixel + i * step >= end) continue;
            d[i] = *(const chunk<T, width> *)(g.d_y + at);
            x[i] = *(const chunk<T, width> *)(g.x + at);
        }
#pragma unroll
        for (int i = 0; i < IN_FLIGHT; i++) {
            if (pixel + i * step >= end) continue;
#pragma unroll
            for (int e = 0; e < width; e++) {
                products[e] = fmaf(to_float(d[i].at[e]), to_float(x[i].at[e]), products[e]);
                d[i].at[e] = from_float<T>(by[e] * to_float(d[i].at[e]));
                if (sums) sum[e] += to_float(d[i].at[e]);
            }
            if (g.d_x) *(chunk<T, width> *)(g.d_x + (pixel + i * step) * l.channels + column) = d[i];
        }
    }
    int64_t place = (int64_t)blockIdx.y * l.channels + column;
    leave_sums<width>(g.parts + place, products, l.across, column < l.channels);
    if (sums) leave_sums<width>(g.sums + place, sum, l.across, column < l.channels);
}

static enum status scale_forward(const struct call *call)
{
    if (shape_count(call->y.shape) == 0) return OK;
    return with_chunk(call->y.dtype, call->y.shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct scale_layout l = scale_layout(call->y.shape, width);
        unsigned blocks = (unsigned)div_up(l.pixels, (int64_t)l.down * UNROLL) * l.tiles;
        const T *more = (const T *)call_data(call, OPERAND_Y_ADDEND);
        auto kernel = more ? scale_kernel<T, width, true> : scale_kernel<T, width, false>;
        kernel<<<blocks, dim3(l.across, l.down), 0, stream_of(call)>>>(
            (T *)call->y.data, (const T *)call->x[0].data, more, (const float *)call->params[0].data, l);
        return launched(call);
    });
}

/* So many that a device is full, and each has some pixels to add up. */
static unsigned scale_depth(const struct call *call, const struct scale_layout *l)
{
    int64_t depth = div_up(l->pixels, (int64_t)l->down * UNROLL);
    int64_t full = div_up((int64_t)cuda_facts(call->device)->multiprocessors * 3, (int64_t)l->tiles);
    int64_t most = full < DEEPEST ? full : DEEPEST;
    return (unsigned)(depth < most ? depth : most);
}

static enum status scale_backward(const struct call *call)
{
    struct shape shape = call->d_y.shape;
    if (shape_count(shape) == 0) return OK;
    return with_chunk(call->d_y.dtype, shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct scale_layout l = scale_layout(shape, width);
        unsigned depth = scale_depth(call, &l);
        float *sums = (float *)call_data(call, OPERAND_D_X_SUMS), *parts = (float *)call->workspace;
        struct scale_gradients<T> g = {(const T *)call->x[0].data, (const T *)call->d_y.data,
                                       (const float *)call->params[0].data, (T *)call->d_x[0].data, parts,
                                       parts + DEEPEST * shape.c};
        auto kernel = sums ? scale_backward_kernel<T, width, true> : scale_backward_kernel<T, width, false>;
        kernel<<<dim3(l.tiles, depth), dim3(l.across, l.down), 0, stream_of(call)>>>(g, l);
        TRY(launched(call));
        if (sums) TRY((sum_rows<float, float, 1>(call, sums, g.sums, {1, depth, shape.c, 1})));
        if (!call->d_params[0].data) return OK;
        return sum_rows<float, float, 1>(call, (float *)call->d_params[0].data, g.parts,
                                         {1, depth, shape.c, 1});
    });
}

static size_t scale_workspace(const struct call *call)
{
    return call->phase == PHASE_BACKWARD ? (size_t)(2 * DEEPEST * call->d_y.shape.c) * sizeof(float) : 0;
}

const struct op_code scale_cuda = {
    .supports = scale_cuda_supports,
    .workspace = scale_workspace,
    .forward = scale_forward,
    .backward = scale_backward,
};
