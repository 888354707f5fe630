#include "kernels/conv/conv_layout.cuh"

#include "kernels/support/chunk.cuh"

#define THREADS 256

template <class To, class From, int width>
__global__ void layout_resize_kernel(struct layout_resize view, To *to, const From *from, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    unsigned parts = (unsigned)view.width[1] / width;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        uint64_t line = (uint64_t)i / parts;
        int first = (int)((uint64_t)i - line * parts) * width;
        int64_t source = line;
        bool inside = true;
        if (view.rows[0] != view.rows[1]) {
            int64_t middle = line % view.middle, row = line / view.middle % view.rows[1];
            source = (line / view.middle / view.rows[1] * view.rows[0] + row) * view.middle + middle;
            inside = row < view.rows[0];
        }
        chunk<To, width> out;
#pragma unroll
        for (int k = 0; k < width; k++) {
            bool has = inside && first + k < view.width[0];
            out.at[k] = from_float<To>(has ? to_float(from[source * view.width[0] + first + k]) : 0.0f);
        }
        ((chunk<To, width> *)to)[i] = out;
    }
}

template <class To, class From, int width>
static enum status resize_by(const struct call *call, struct layout_resize view, To *to, const From *from)
{
    int64_t count = view.blocks * view.rows[1] * view.middle * (view.width[1] / width);
    layout_resize_kernel<To, From, width>
        <<<grid_of(call, count, THREADS, 8), THREADS, 0, stream_of(call)>>>(view, to, from, count);
    return launched(call);
}

enum status layout_resize(const struct call *call, struct layout_resize view, enum dtype to_type, void *to,
                          enum dtype from_type, const void *from)
{
    return with_type(to_type, [&](auto to_value) {
        return with_type(from_type, [&](auto from_value) {
            using To = decltype(to_value);
            using From = decltype(from_value);
            constexpr int wide = pack<To>::count;
            if (view.width[1] % wide == 0)
                return resize_by<To, From, wide>(call, view, (To *)to, (const From *)from);
            if (view.width[1] % 4 == 0)
                return resize_by<To, From, 4>(call, view, (To *)to, (const From *)from);
            return resize_by<To, From, 1>(call, view, (To *)to, (const From *)from);
        });
    });
}

/* `width` divides filters and wide, so that a chunk never crosses groups. */
template <class Y, class From, int width>
__global__ void layout_output_kernel(struct layout_output o, int64_t count)
{
    const From *from = (const From *)o.from;
    const Y *bias = (const Y *)o.bias;
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    unsigned parts = (unsigned)(o.groups * o.filters) / width;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        uint64_t row = (uint64_t)i / parts;
        int k = (int)((uint64_t)i - row * parts) * width;
        int64_t source = (int64_t)row * o.groups * o.wide + k;
        if (o.filters != o.wide) source += k / o.filters * (o.wide - o.filters);
        chunk<From, width> in = ((const chunk<From, width> *)from)[source / width];
        chunk<Y, width> out;
#pragma unroll
        for (int j = 0; j < width; j++) {
            float value = to_float(in.at[j]) + (bias ? to_float(bias[k + j]) : 0.0f);
            out.at[j] = from_float<Y>(o.relu && value <= 0 ? 0 : value);
        }
        ((chunk<Y, width> *)o.y)[i] = out;
    }
}

template <class Y, class From, int width>
static enum status output_by(const struct call *call, struct layout_output output)
{
    int64_t count = output.rows * (output.groups * output.filters / width);
    layout_output_kernel<Y, From, width>
        <<<grid_of(call, count, THREADS, 8), THREADS, 0, stream_of(call)>>>(output, count);
    return launched(call);
}

enum status layout_output(const struct call *call, struct layout_output output)
{
    return with_type(output.y_type, [&](auto y_value) {
        return with_type(output.from_type, [&](auto from_value) {
            using Y = decltype(y_value);
            using From = decltype(from_value);
            if (output.filters % 4 == 0 && output.wide % 4 == 0)
                return output_by<Y, From, 4>(call, output);
            return output_by<Y, From, 1>(call, output);
        });
    });
}

template <class T, int width>
__global__ void layout_fold_x_kernel(struct layout_fold f, T *to, const T *x, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    unsigned parts = (unsigned)f.channels / width;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        unsigned rest = (unsigned)((uint64_t)i / parts), first = (unsigned)((uint64_t)i % parts) * width;
        int column = (int)(rest % f.out[1]) * f.fold[1] - f.lead[1];
        rest /= f.out[1];
        int row = (int)(rest % f.out[0]) * f.fold[0] - f.lead[0];
        int64_t n = rest / f.out[0];
        int c = (int)first % f.c, place = (int)first / f.c;
        int right = place % f.fold[1], down = place / f.fold[1];
        chunk<T, width> out;
#pragma unroll
        for (int k = 0; k < width; k++) {
            int h = row + down, w = column + right;
            bool inside = down < f.fold[0] && h >= 0 && h < f.in[0] && w >= 0 && w < f.in[1];
            out.at[k] = inside ? x[((n * f.in[0] + h) * f.in[1] + w) * f.c + c] : from_float<T>(0.0f);
            if (++c < f.c) continue;
            c = 0;
            if (++right < f.fold[1]) continue;
            right = 0;
            down++;
        }
        ((chunk<T, width> *)to)[i] = out;
    }
}

enum status layout_fold_x(const struct call *call, const struct layout_fold *fold, enum dtype dtype, void *to,
                          const void *x)
{
    return with_type(dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int width = 4;
        int64_t count = (int64_t)fold->n * fold->out[0] * fold->out[1] * (fold->channels / width);
        layout_fold_x_kernel<T, width><<<grid_of(call, count, THREADS, 8), THREADS, 0, stream_of(call)>>>(
            *fold, (T *)to, (const T *)x, count);
        return launched(call);
    });
}

/* The weight's tap and channel that correspond to folded tap (a, b) and folded channel. */
struct weight_tap {
    int r, s, c;
    bool inside;               /* false: there is none */
};

__device__ static inline struct weight_tap unfold_tap(const struct layout_fold &f, int a, int b, int channel)
{
    int place = channel / f.c, down = place / f.fold[1];
    int r = a * f.fold[0] + down - f.shift[0], s = b * f.fold[1] + place % f.fold[1] - f.shift[1];
    return {r, s, channel % f.c,
            down < f.fold[0] && r >= 0 && r < f.kernel[0] && s >= 0 && s < f.kernel[1]};
}

template <class T>
__global__ void layout_fold_weight_kernel(struct layout_fold f, T *to, const T *weight, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        int channel = (int)(i % f.channels);
        int64_t rest = i / f.channels;
        int b = (int)(rest % f.taps[1]), a = (int)(rest / f.taps[1] % f.taps[0]);
        int64_t k = rest / f.taps[1] / f.taps[0];
        struct weight_tap t = unfold_tap(f, a, b, channel);
        int64_t at = ((k * f.kernel[0] + t.r) * f.kernel[1] + t.s) * f.c + t.c;
        to[i] = t.inside ? weight[at] : from_float<T>(0.0f);
    }
}

enum status layout_fold_weight(const struct call *call, const struct layout_fold *fold, enum dtype dtype,
                               void *to, const void *weight)
{
    return with_type(dtype, [&](auto type) {
        using T = decltype(type);
        int64_t count = (int64_t)fold->filters * fold->taps[0] * fold->taps[1] * fold->channels;
        layout_fold_weight_kernel<<<grid_of(call, count, THREADS), THREADS, 0, stream_of(call)>>>(
            *fold, (T *)to, (const T *)weight, count);
        return launched(call);
    });
}

template <class From>
__global__ void layout_unfold_weight_kernel(struct layout_fold f, float *d_weight, const From *from,
                                            int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        int c = (int)(i % f.c);
        int64_t rest = i / f.c;
        int s = (int)(rest % f.kernel[1]) + f.shift[1],
            r = (int)(rest / f.kernel[1] % f.kernel[0]) + f.shift[0];
        int64_t k = rest / f.kernel[1] / f.kernel[0];
        int place = r % f.fold[0] * f.fold[1] + s % f.fold[1];
        int64_t tap = (k * f.taps[0] + r / f.fold[0]) * f.taps[1] + s / f.fold[1];
        d_weight[i] = to_float(from[tap * f.channels + place * f.c + c]);
    }
}

enum status layout_unfold_weight(const struct call *call, const struct layout_fold *fold, float *d_weight,
                                 enum dtype from_type, const void *from)
{
    return with_type(from_type, [&](auto type) {
        using From = decltype(type);
        int64_t count = (int64_t)fold->filters * fold->kernel[0] * fold->kernel[1] * fold->c;
        layout_unfold_weight_kernel<<<grid_of(call, count, THREADS), THREADS, 0, stream_of(call)>>>(
            *fold, d_weight, (const From *)from, count);
        return launched(call);
    });
}

#define TILE 32
#define TILE_ROWS 8

/* A tile goes through shared memory, so that both reads and writes are of whole lines. */
__global__ static void layout_transpose_kernel(int rows, int columns, unsigned tiles_down,
                                               unsigned tiles_across, float *to, const float *from)
{
    __shared__ float tile[TILE][TILE + 1];
    unsigned across = blockIdx.x % tiles_across, rest = blockIdx.x / tiles_across;
    unsigned down = rest % tiles_down;
    int64_t image = (int64_t)(rest / tiles_down) * rows * columns;
    int column = (int)across * TILE + (int)threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += TILE_ROWS) {
        int row = (int)down * TILE + i;
        if (row < rows && column < columns)
            tile[i][threadIdx.x] = from[image + (int64_t)row * columns + column];
    }
    __syncthreads();
    int row = (int)down * TILE + (int)threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += TILE_ROWS) {
        int out = (int)across * TILE + i;
        if (out < columns && row < rows) to[image + (int64_t)out * rows + row] = tile[threadIdx.x][i];
    }
}

enum status layout_transpose(const struct call *call, int64_t count, int rows, int columns, float *to,
                             const float *from)
{
    unsigned down = (unsigned)div_up(rows, TILE), across = (unsigned)div_up(columns, TILE);
    layout_transpose_kernel<<<(unsigned)(count * down * across), dim3(TILE, TILE_ROWS), 0, stream_of(call)>>>(
        rows, columns, down, across, to, from);
    return launched(call);
}
