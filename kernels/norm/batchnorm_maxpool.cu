/* batchnorm_maxpool.cu: batchnorm_maxpool in one sweep over x each way. Forward finds the extreme x of every
 * window, normalises it and writes three tensors of outputs. Backward takes batch norm's sums over outputs
 * alone, then gathers d_x by cells of 2x2 inputs, where the windows over an input are known.
 *
 * In decreasing channels (negative scale) signs are flipped while maxima are searched. */
#include "kernels/pool/pool_maxima.cuh"
#include "kernels/norm/batchnorm.cuh"

#include <type_traits>

extern "C" {
#include "kernels/norm/batchnorm_maxpool.h"
}

using namespace batchnorm_parts;

#define STRIDE 2
#define NUMBER_NONE 255                  /* in the place of an input's number: no gradient passes */

/* Three numbers per channel of a block, each computed by one thread for all, since windows are short work. */
template <class T> struct channel_room {
    static constexpr int count = COLUMNS_SEGMENT / sizeof(T);
    alignas(16) float first[count], second[count], third[count];

    /* Calls make(place in this room for a channel, the channel) for the block's channels. */
    template <class Make> __device__ void fill(const struct columns &s, Make make)
    {
        int width = (int)(s.channels / s.packs), k = threadIdx.x;
        int64_t channel = (int64_t)blockIdx.y * s.span * width + k;
        if (k < s.span * width && channel < s.channels) make(k, (int)channel);
        __syncthreads();
    }
};

/* The place of a thread's channels in that room. */
template <int width> __device__ static inline int place_in_room(const struct columns &s)
{
    return threadIdx.x % s.span * width;
}

/* The sign bit of T for a decreasing channel, 0 for others. */
template <class T> using sign = typename std::conditional<sizeof(T) == 2, uint16_t, uint32_t>::type;
template <class T> __device__ static inline sign<T> sign_of(float scale)
{
    return scale < 0 ? (sign<T>)(1u << (8 * sizeof(T) - 1)) : 0;
}

/* Masks that flip the signs of decreasing channels in the words of 16 bytes. */
struct flips {
    uint32_t word[4];
    __device__ flips(const void *signs)
    {
        chunk<uint32_t, 4> words = *(const chunk<uint32_t, 4> *)signs;
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = words.at[i];
    }
    __device__ void apply(chunk<uint32_t, 4> &x) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) x.at[i] ^= word[i];
    }
    __device__ void apply(chunk<float, 4> &x) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) x.at[i] = __uint_as_float(__float_as_uint(x.at[i]) ^ word[i]);
    }
};

/* The extremes of neighbouring channels, and a byte for each: its number, or NUMBER_NONE without gradient. */
template <class T> struct extremes : paired_maxima<T> {
    __device__ cell<T, 8> turned(const flips &flip) const
    {
        chunk<uint32_t, 4> x = this->value;
        flip.apply(x);
        return {make_uint4(x.at[0], x.at[1], x.at[2], x.at[3])};
    }
    __device__ void store_numbers(uint8_t *to, const bool (&lost)[8]) const
    {
        chunk<uint32_t, 2> bytes;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            bytes.at[p] = __byte_perm(this->number.at[2 * p], this->number.at[2 * p + 1], 0x6420);
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (lost[4 * p + e]) bytes.at[p] |= 0xffu << 8 * e;
        }
        *(chunk<uint32_t, 2> *)to = bytes;
    }
};
template <> struct extremes<float> : maxima<float, uint8_t, 4> {
    __device__ cell<float, 4> turned(const flips &flip) const
    {
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = __uint_as_float(__float_as_uint(value[i]) ^ flip.word[i]);
        return cell_of<float>(x);
    }
    __device__ void store_numbers(uint8_t *to, const bool (&lost)[4]) const
    {
        chunk<uint8_t, 4> bytes;
#pragma unroll
        for (int i = 0; i < 4; i++) bytes.at[i] = lost[i] ? NUMBER_NONE : (uint8_t)number[i];
        *(chunk<uint8_t, 4> *)to = bytes;
    }
};

/* Forward's tensors; extreme and number are NULL in evaluation. */
template <class T> struct pooled {
    const T *x;
    T *y, *extreme;
    uint8_t *number;
};

/* y of a window's extreme, and what is saved of it. */
template <enum activation act, class T, int width>
__device__ static inline void store_window(const struct pooled<T> &to, int64_t at, const extremes<T> &best,
                                           const cell<T, width> &x, const factors<width> &f,
                                           float slope)
{
    bool lost[width];
    *(cell<T, width> *)(to.y + at) = normalise_cell<act, false>(f, slope, x, x);
    if (!to.number) return;
    *(cell<T, width> *)(to.extreme + at) = x;
#pragma unroll
    for (int e = 0; e < width; e++) {
        float z = normalise(f, x.get(e), e);
        lost[e] = pass_back<act>(z, 1, slope) == 0;
    }
    best.store_numbers(to.number + at, lost);
}

/* One window per thread, so that many loads are in flight. Outside of the image is minus infinity, whose
 * sign is flipped twice. */
template <class T, int width, int kernel, enum activation act>
__global__ void __launch_bounds__(threads, 4)
    batchnorm_maxpool_kernel(struct pooled<T> to, struct channel_values values, float slope,
                             const __grid_constant__ struct grid_of_windows g, struct columns s)
{
    using Best = extremes<T>;
    __shared__ channel_room<T> room;
    __shared__ alignas(16) sign<T> signs[channel_room<T>::count];
    columns_place p = columns_place_of<width>(s);
    int64_t i = (int64_t)blockIdx.x * s.lanes + p.lane, pitch = g.plane.w.in * s.channels;
    room.fill(s, [&](int k, int channel) {
        factors<1> f = factors_at<1>(values, channel);
        room.first[k] = f.mean[0], room.second[k] = f.scale[0], room.third[k] = f.bias[0];
        signs[k] = sign_of<T>(f.scale[0]);
    });
    if (!p.here || i >= s.rows) return;
    int mine = place_in_room<width>(s);
    struct window at = window_at(g, (int)i);
    int top = at.row * STRIDE - g.plane.h.pad, left = at.column * STRIDE - g.plane.w.pad;
    const T *corner = to.x + ((int64_t)at.n * g.plane.h.in + top) * pitch + left * s.channels + p.channel;
    struct flips flip(signs + mine);
    typename Best::input got[kernel * kernel];
#pragma unroll
    for (int k = 0; k < kernel * kernel; k++) {
        Best::outside(got[k]);
        flip.apply(got[k]);
        if (within(top + k / kernel, g.plane.h.in) && within(left + k % kernel, g.plane.w.in))
            got[k] = *(const typename Best::input *)(corner + k / kernel * pitch + k % kernel * s.channels);
    }
    Best best;
    best.start(max(-top, 0) * kernel + max(-left, 0));
#pragma unroll
    for (int k = 0; k < kernel * kernel; k++) {
        flip.apply(got[k]);
        best.take(got[k], k);
    }
    factors<width> f;
    load_channels(f.mean, room.first, mine);
    load_channels(f.scale, room.second, mine);
    load_channels(f.bias, room.third, mine);
    store_window<act>(to, i * s.channels + p.channel, best, best.turned(flip), f, slope);
}

template <class T> struct pooled_gradients {
    const T *x, *d_y, *d_y_more;
    const uint8_t *number;
    T *d_x;
};

/* A window's gradients for neighbouring channels, and the numbers of the inputs that get them. */
template <class T, int width> struct given {
    positions<uint8_t, width> place;
    cell<T, width> d_y;

    template <bool two> __device__ void load_at(const pooled_gradients<T> &g, int64_t at)
    {
        place.load(g.number + at);
        d_y = load<T, width>(g.d_y + at);
        if constexpr (two) d_y = sum_of(d_y, load<T, width>(g.d_y_more + at));
    }
};

/* One cell per thread. A window begins at the first of its inputs; the windows over the cell are that one
 * and, with 3x3, the preceding ones. */
template <class T, int width, int kernel, bool two>
__global__ void __launch_bounds__(threads, 3)
    batchnorm_maxpool_backward_kernel(struct pooled_gradients<T> g, struct channel_values values,
                                      const __grid_constant__ struct grid_of_windows cells, struct columns s,
                                      const float *sums, float count)
{
    constexpr int back = (kernel + STRIDE - 1) / STRIDE;
    __shared__ channel_room<T> room;
    columns_place p = columns_place_of<width>(s);
    const struct plane &plane = cells.plane;
    int64_t i = (int64_t)blockIdx.x * s.lanes + p.lane;
    int64_t out_pitch = plane.w.out * s.channels, in_pitch = plane.w.in * s.channels;
    room.fill(s, [&](int k, int channel) {
        backward_line line(values, sums, s.channels, channel, count);
        room.first[k] = line.scale, room.second[k] = line.slope, room.third[k] = line.rest;
    });
    if (!p.here || i >= s.rows) return;
    struct window at = window_at(cells, (int)i);
    given<T, width> from[back][back];
    int64_t own = ((int64_t)at.n * plane.h.out + at.row) * out_pitch + at.column * s.channels + p.channel;
#pragma unroll
    for (int u = 0; u < back; u++)
#pragma unroll
        for (int v = 0; v < back; v++) {
            from[u][v].place.none();
            if (within(at.row - u, plane.h.out) && within(at.column - v, plane.w.out))
                from[u][v].template load_at<two>(g, own - u * out_pitch - v * s.channels);
        }
    int top = at.row * STRIDE - plane.h.pad, left = at.column * STRIDE - plane.w.pad;
    int64_t corner = ((int64_t)at.n * plane.h.in + top) * in_pitch + left * s.channels + p.channel;
    cell<T, width> x[STRIDE][STRIDE];
#pragma unroll
    for (int a = 0; a < STRIDE; a++)
#pragma unroll
        for (int b = 0; b < STRIDE; b++)
            if (within(top + a, plane.h.in) && within(left + b, plane.w.in))
                x[a][b] = load<T, width>(g.x + corner + a * in_pitch + b * s.channels);
    float scale[width], slope[width], rest[width];
    int mine = place_in_room<width>(s);
    load_channels(scale, room.first, mine);
    load_channels(slope, room.second, mine);
    load_channels(rest, room.third, mine);
#pragma unroll
    for (int a = 0; a < STRIDE; a++)
#pragma unroll
        for (int b = 0; b < STRIDE; b++) {
            if (!within(top + a, plane.h.in) || !within(left + b, plane.w.in)) continue;
            float d_x[width] = {};
#pragma unroll
            for (int u = back - 1; u >= 0; u--)
#pragma unroll
                for (int v = back - 1; v >= 0; v--) {
                    if (a + u * STRIDE >= kernel || b + v * STRIDE >= kernel) continue;
#pragma unroll
                    for (int e = 0; e < width; e++)
                        if (from[u][v].place.is(e, (a + u * STRIDE) * kernel + b + v * STRIDE))
                            d_x[e] += from[u][v].d_y.get(e);
                }
#pragma unroll
            for (int e = 0; e < width; e++)
                d_x[e] = fmaf(scale[e], d_x[e], fmaf(slope[e], x[a][b].get(e), rest[e]));
            store<T, width>(g.d_x + corner + a * in_pitch + b * s.channels, d_x);
        }
}

static const struct batchnorm_maxpool *settings_of(const struct call *call)
{
    return (const struct batchnorm_maxpool *)call->settings;
}

/* Batch norm's call on the extremes alone, by the saved statistics; `none` stands for d_x. */
static struct call outputs_call(const struct call *call, struct tensor *none)
{
    struct call outputs = *call;
    outputs.x = &call->saved[SAVED_EXTREME];
    outputs.d_x = none;
    call_drop(&outputs, OPERAND_X_MOMENTS);
    return outputs;
}

static bool is_empty(const struct call *call)
{
    return shape_count(call->x[0].shape) == 0;
}

/* Calls work(T(), width, kernel, act) with what the call's kernels are made for. */
template <class Work> static enum status with_kind(const struct call *call, Work work)
{
    return with_type(call->x[0].dtype, [&](auto type) {
        return with_activation((enum activation)settings_of(call)->norm.activation, [&](auto act) {
            constexpr int width = pack<decltype(type)>::count;
            if (settings_of(call)->pool.kernel == 2) return work(type, constant<width>(), constant<2>(), act);
            return work(type, constant<width>(), constant<3>(), act);
        });
    });
}

/* Blocks for one thread per window, or cell, and pack of channels. */
static dim3 windows_grid(const struct columns *s)
{
    return dim3((unsigned)div_up(s->rows, (int64_t)s->lanes), (unsigned)div_up(s->packs, s->span));
}

/* A sweep over an image's windows or cells. */
static enum status sweep_windows(const struct call *call, int64_t rows, int64_t columns, struct columns *s,
                                 struct grid_of_windows *windows)
{
    struct pool_plane plane = batchnorm_maxpool_plane(call);
    struct tensor all = call->x[0];
    TRY(plane_check(&plane));
    all.shape.h = rows;
    all.shape.w = columns;
    *s = columns_open(all.dtype, all.shape, (int)(16 / dtype_bytes(all.dtype)), unroll);
    *windows = windows_of(&plane, rows, columns);
    if (s->rows > NUMBER_MAX) return fail(FAILED, "%lld windows are too many", (long long)s->rows);
    return OK;
}

static enum status batchnorm_maxpool_forward(const struct call *call)
{
    struct columns s;
    struct grid_of_windows windows;
    if (is_empty(call)) return OK;
    if (call->training) TRY(batchnorm_statistics_cuda(call));
    TRY(sweep_windows(call, call->y.shape.h, call->y.shape.w, &s, &windows));
    return with_kind(call, [&](auto type, auto width, auto kernel, auto act) {
        using T = decltype(type);
        struct pooled<T> to = {.x = (const T *)call->x[0].data, .y = (T *)call->y.data};
        if (call->training) {
            to.extreme = (T *)call->saved[SAVED_EXTREME].data;
            to.number = (uint8_t *)call->saved[SAVED_NUMBER].data;
        }
        batchnorm_maxpool_kernel<T, width.number, kernel.number, (enum activation)decltype(act)::number>
            <<<windows_grid(&s), threads, 0, stream_of(call)>>>(
                to, values_of(call), (float)settings_of(call)->norm.slope, windows, s);
        return launched(call);
    });
}

static enum status batchnorm_maxpool_recompute(const struct call *call)
{
    struct tensor none = {};
    struct call outputs = outputs_call(call, &none);
    return batchnorm_cuda.recompute(&outputs);
}

/* The workspace: the sums, then batch norm's own. */
static size_t sums_bytes(const struct call *call)
{
    return workspace_align(2 * (size_t)call->x[0].shape.c * sizeof(float));
}

static size_t batchnorm_maxpool_workspace(const struct call *call)
{
    struct tensor none = {};
    struct call outputs = outputs_call(call, &none);
    if (call->phase == PHASE_FORWARD) return call->training ? batchnorm_cuda.workspace(call) : 0;
    return call->phase == PHASE_BACKWARD ? sums_bytes(call) + batchnorm_cuda.workspace(&outputs) : 0;
}

static enum status pass_to_x(const struct call *call, const float *sums)
{
    struct pool_plane plane = batchnorm_maxpool_plane(call);
    float count = (float)(shape_count(call->x[0].shape) / call->x[0].shape.c);
    struct columns s;
    struct grid_of_windows cells;
    TRY(sweep_windows(call, div_up(plane.h.in + plane.h.pad, (int64_t)STRIDE),
                      div_up(plane.w.in + plane.w.pad, (int64_t)STRIDE), &s, &cells));
    return with_kind(call, [&](auto type, auto width, auto kernel, auto) {
        using T = decltype(type);
        struct pooled_gradients<T> g = {(const T *)call->x[0].data, (const T *)call->d_y.data,
                                        (const T *)call_data(call, OPERAND_D_Y_ADDEND),
                                        (const uint8_t *)call->saved[SAVED_NUMBER].data,
                                        (T *)call->d_x[0].data};
        auto pass = g.d_y_more ? batchnorm_maxpool_backward_kernel<T, width.number, kernel.number, true>
                               : batchnorm_maxpool_backward_kernel<T, width.number, kernel.number, false>;
        pass<<<windows_grid(&s), threads, 0, stream_of(call)>>>(g, values_of(call), cells, s, sums, count);
        return launched(call);
    });
}

static enum status batchnorm_maxpool_backward(const struct call *call)
{
    struct tensor none = {};
    struct call outputs = outputs_call(call, &none);
    if (is_empty(call)) return OK;
    call_put(&outputs, OPERAND_RANK_SUMS)->data = call->workspace;
    outputs.workspace = (char *)call->workspace + sums_bytes(call);
    TRY(batchnorm_cuda.backward(&outputs));
    return call->d_x[0].data ? pass_to_x(call, (const float *)call->workspace) : OK;
}

const struct op_code batchnorm_maxpool_cuda = {
    .supports = batchnorm_maxpool_cuda_supports,
    .workspace = batchnorm_maxpool_workspace,
    .forward = batchnorm_maxpool_forward,
    .backward = batchnorm_maxpool_backward,
    .update = batchnorm_update_cuda,
    .recompute = batchnorm_maxpool_recompute,
};
