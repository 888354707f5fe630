/* scale.cu: a thread processes one chunk of channels at regularly spaced pixels. */
#include "kernels/support/columns.cuh"

#define THREADS 256
constexpr int UNROLL = 4;      /* pixels of a thread in forward */

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

/* Adds up d_y * x, and with `summed` d_x, which may be d_y, or NULL. */
template <class T, int w, bool summed> struct scale_gradients {
    static constexpr int width = w, sums = summed ? 2 : 1, in_flight = 2, blocks = 3;
    struct cells {
        chunk<T, width> d_y, x;
    };
    const T *x, *d_y;
    const float *weight;
    T *d_x;
    float by[width];

    __device__ void begin(const scale_gradients &, int channel)
    {
        load_weights<T, width>(by, weight, channel);
    }
    __device__ void load(cells &to, int64_t, int64_t at) const
    {
        to = {*(const chunk<T, width> *)(d_y + at), *(const chunk<T, width> *)(x + at)};
    }
    __device__ void add(const cells &in, int64_t, int64_t at, float (&sum)[sums][width]) const
    {
        chunk<T, width> out;
#pragma unroll
        for (int e = 0; e < width; e++) {
            sum[0][e] = fmaf(to_float(in.d_y.at[e]), to_float(in.x.at[e]), sum[0][e]);
            out.at[e] = from_float<T>(by[e] * to_float(in.d_y.at[e]));
            if constexpr (summed) sum[1][e] += to_float(out.at[e]);
        }
        if (d_x) *(chunk<T, width> *)(d_x + at) = out;
    }
};

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

static enum status scale_backward(const struct call *call)
{
    struct shape shape = call->d_y.shape;
    if (shape_count(shape) == 0) return OK;
    return with_chunk(call->d_y.dtype, shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        float *d_weight = (float *)call->d_params[0].data;
        float *sums = (float *)call_data(call, OPERAND_D_X_SUMS), *parts = (float *)call->workspace;
        scale_gradients<T, width, true> of = {(const T *)call->x[0].data, (const T *)call->d_y.data,
                                              (const float *)call->params[0].data, (T *)call->d_x[0].data};
        if (sums) return columns_run(call, of, call->d_y.dtype, shape, parts, d_weight, sums);
        scale_gradients<T, width, false> alone = {of.x, of.d_y, of.weight, of.d_x};
        return columns_run(call, alone, call->d_y.dtype, shape, parts, d_weight);
    });
}

static size_t scale_workspace(const struct call *call)
{
    return call->phase == PHASE_BACKWARD ? columns_workspace(&call->d_y, true) : 0;
}

const struct op_code scale_cuda = {
    .supports = scale_cuda_supports,
    .workspace = scale_workspace,
    .forward = scale_forward,
    .backward = scale_backward,
};
