/* scale.cu: a thread processes one chunk of channels at regularly spaced pixels; blocks leave the sums of
 * their pixels in the workspace. */
#include "kernels/support/rows.cuh"

#define THREADS 256
#define DEEPEST 256      /* blocks below one another in backward */
constexpr int UNROLL = 4;

struct scale_layout {
    int64_t pixels, channels;
    int across, down;          /* chunks and pixels of a block */
    unsigned tiles;            /* blocks side by side */
};

static struct scale_layout scale_layout(struct shape shape, int width)
{
    struct scale_layout l = {.pixels = shape.n * shape.h * shape.w, .channels = shape.c};
    l.across = power_up(shape.c / width, 32);
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

/* y may be x. */
template <class T, int width>
__global__ void __launch_bounds__(THREADS)
scale_kernel(T *y, const T *x, const float *weight, struct scale_layout l)
{
    int64_t column = ((int64_t)blockIdx.x % l.tiles * l.across + threadIdx.x) * width;
    int64_t pixel = (int64_t)(blockIdx.x / l.tiles) * l.down * UNROLL + threadIdx.y;
    float by[width];
    chunk<T, width> in[UNROLL];
    if (column >= l.channels) return;
    load_weights<T, width>(by, weight, column);
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (pixel + i * l.down < l.pixels)
            in[i] = *(const chunk<T, width> *)(x + (pixel + i * l.down) * l.channels + column);
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
        if (pixel + i * l.down >= l.pixels) return;
#pragma unroll
        for (int e = 0; e < width; e++) in[i].at[e] = from_float<T>(by[e] * to_float(in[i].at[e]));
        *(chunk<T, width> *)(y + (pixel + i * l.down) * l.channels + column) = in[i];
    }
}

/* d_x may be d_y, or NULL. */
template <class T> struct scale_gradients {
    const T *x, *d_y;
    const float *weight;
    T *d_x;
    float *parts;              /* [blocks below one another, channels] */
};

template <class T, int width>
__global__ void __launch_bounds__(THREADS)
scale_backward_kernel(struct scale_gradients<T> g, struct scale_layout l)
{
    __shared__ float partial[width * THREADS];
    int64_t column = ((int64_t)blockIdx.x * l.across + threadIdx.x) * width;
    int64_t step = (int64_t)gridDim.y * l.down;
    float by[width], sum[width] = {};
    if (column < l.channels) {
        load_weights<T, width>(by, g.weight, column);
#pragma unroll UNROLL
        for (int64_t pixel = (int64_t)blockIdx.y * l.down + threadIdx.y; pixel < l.pixels; pixel += step) {
            chunk<T, width> d = *(const chunk<T, width> *)(g.d_y + pixel * l.channels + column);
            chunk<T, width> x = *(const chunk<T, width> *)(g.x + pixel * l.channels + column);
#pragma unroll
            for (int e = 0; e < width; e++) {
                sum[e] = fmaf(to_float(d.at[e]), to_float(x.at[e]), sum[e]);
                d.at[e] = from_float<T>(by[e] * to_float(d.at[e]));
            }
            if (g.d_x) *(chunk<T, width> *)(g.d_x + pixel * l.channels + column) = d;
        }
    }
    sum_down<width>(sum, THREADS, l.across, partial);
    if (threadIdx.y > 0 || column >= l.channels) return;
#pragma unroll
    for (int e = 0; e < width; e++) g.parts[blockIdx.y * l.channels + column + e] = sum[e];
}

static enum status scale_forward(const struct call *call)
{
    if (shape_count(call->y.shape) == 0) return OK;
    return with_chunk(call->y.dtype, call->y.shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct scale_layout l = scale_layout(call->y.shape, width);
        unsigned blocks = (unsigned)div_up(l.pixels, (int64_t)l.down * UNROLL) * l.tiles;
        scale_kernel<T, width><<<blocks, dim3(l.across, l.down), 0, stream_of(call)>>>(
            (T *)call->y.data, (const T *)call->x[0].data, (const float *)call->params[0].data, l);
        return launched(call);
    });
}

/* So many that a device is full, and each has some pixels to add up. */
static unsigned scale_depth(const struct scale_layout *l)
{
    int64_t depth = div_up(l->pixels, (int64_t)l->down * UNROLL);
    return (unsigned)(depth < DEEPEST ? depth : DEEPEST);
}

static enum status scale_backward(const struct call *call)
{
    struct shape shape = call->d_y.shape;
    if (shape_count(shape) == 0) return OK;
    return with_chunk(call->d_y.dtype, shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct scale_layout l = scale_layout(shape, width);
        unsigned depth = scale_depth(&l);
        struct scale_gradients<T> g = {(const T *)call->x[0].data, (const T *)call->d_y.data,
                                       (const float *)call->params[0].data, (T *)call->d_x[0].data,
                                       (float *)call->workspace};
        scale_backward_kernel<T, width>
            <<<dim3(l.tiles, depth), dim3(l.across, l.down), 0, stream_of(call)>>>(g, l);
        TRY(launched(call));
        if (!call->d_params[0].data) return OK;
        return sum_rows<float, float, 1>(call, (float *)call->d_params[0].data, g.parts,
                                         {1, depth, shape.c, 1});
    });
}

static size_t scale_workspace(const struct call *call)
{
    return call->phase == PHASE_BACKWARD ? (size_t)(DEEPEST * call->d_y.shape.c) * sizeof(float) : 0;
}

const struct op_code scale_cuda = {
    .workspace = scale_workspace,
    .forward = scale_forward,
    .backward = scale_backward,
};
