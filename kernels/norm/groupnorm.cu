/* groupnorm.cu: two sweeps over each image, as batch norm's over all of them: the first adds up two sums by
 * channel, which small kernels finish in a fixed order, and the second uses them. The second sweep takes the
 * images in the opposite order, because what the first one read last is still in the cache. Blocks are `span`
 * chunks of channels wide and `lanes` pixels deep; how many share an image depends on the shapes only. */
#include "kernels/elementwise/activation.cuh"
#include "kernels/support/columns.cuh"

extern "C" {
#include "kernels/norm/groupnorm.h"
}

#define THREADS 256
#define SPAN 32              /* chunks of a row that a block takes, at most */
#define PIXELS_LEAST 8       /* of a thread, before more blocks share an image */
#define PARTS_MAX 256        /* blocks that share an image */
#define BLOCKS_WANTED 2048   /* in all, if images have so many pixels */
#define FINISH_CHANNELS 32   /* of a block of finishing kernels */
#define FINISH_LANES 32

struct groupnorm_layout {
    int64_t images, pixels;
    int channels, each, groups;         /* channels of a group */
    int columns, span, lanes, parts;    /* chunks of a pixel; blocks that share an image */
    float eps, slope;                   /* of the activation */
};

/* [images * groups], or [images, channels]. */
struct groupnorm_tables {
    float *mean, *invstd;               /* by group */
    float *first, *second;              /* by channel: forward: mean, sum of squared deviations from it;
                                         * backward: sums of d_y, and of d_y * xhat */
    float *sum, *product;               /* by group, backward: those with d_y * weight */
    float *parts;                       /* [images, parts, 2, channels] */
    const float *weight, *bias;         /* by channel; NULL: 1 and 0 */
};

static struct groupnorm_layout layout_of(const struct call *call)
{
    const struct groupnorm *s = (const struct groupnorm *)call->settings;
    const struct tensor *x = &call->x[0];
    int whole = 16 / (int)dtype_bytes(x->dtype), width = x->shape.c % whole ? 1 : whole;
    struct groupnorm_layout l = {.images = x->shape.n, .pixels = x->shape.h * x->shape.w};
    l.channels = (int)x->shape.c;
    l.groups = (int)groupnorm_groups(s, x->shape.c);
    l.each = l.channels / l.groups;
    l.columns = l.channels / width;
    l.span = power_up(l.columns, SPAN);
    l.lanes = THREADS / l.span;
    int64_t across = div_up(l.columns, l.span), share = BLOCKS_WANTED / (l.images * across);
    int64_t parts = l.pixels / ((int64_t)l.lanes * PIXELS_LEAST);
    parts = parts < share ? parts : share;
    l.parts = (int)(parts < 1 ? 1 : parts < PARTS_MAX ? parts : PARTS_MAX);
    l.eps = (float)s->eps;
    l.slope = (float)call_activation(call).slope;
    return l;
}

/* A block's image and part, and its thread's first pixel, step and channel. */
struct groupnorm_place {
    int64_t image, pixel, step;
    int part, column;
    bool here;
};

__device__ static inline groupnorm_place place_of(const groupnorm_layout &l, bool backwards)
{
    int64_t image = blockIdx.x / l.parts;
    int part = (int)(blockIdx.x - image * l.parts), column = (int)(blockIdx.y * l.span + threadIdx.x);
    if (backwards) image = l.images - 1 - image;
    return {image, (int64_t)part * l.lanes + threadIdx.y, (int64_t)l.parts * l.lanes, part, column,
            column < l.columns};
}

/* Chunks of each of so many tensors that a thread loads at once, and blocks of a multiprocessor for which
 * registers are left: together there are enough bytes in flight. */
template <int tensors> constexpr int in_flight = tensors == 1 ? 4 : 2;
template <int tensors> constexpr int blocks_at_once = tensors < 3 ? 4 : 3;

/* Pixels that a thread has at once: `count` of them, the others are zeros; chunks of the first lie at
 * `first`, of the next one `pitch` further on. */
struct groupnorm_pixels {
    int64_t first, pitch;
    int count;
    __device__ int64_t operator[](int j) const { return first + j * pitch; }
};

/* Calls work(chunks, pixels) for all pixels of a thread: chunks[in flight][tensors]. */
template <class T, int width, int tensors, class Work>
__device__ static inline void sweep(const groupnorm_layout &l, const groupnorm_place &p,
                                    const T *const (&from)[tensors], Work work)
{
    constexpr int most = in_flight<tensors>;
    groupnorm_pixels at = {0, p.step * l.channels, 0};
    for (int64_t pixel = p.pixel; pixel < l.pixels; pixel += p.step * most) {
        chunk<T, width> got[most][tensors] = {};
        at.first = (p.image * l.pixels + pixel) * l.channels + (int64_t)p.column * width;
        at.count = 0;
#pragma unroll
        for (int j = 0; j < most; j++) {
            if (pixel + j * p.step >= l.pixels) continue;
#pragma unroll
            for (int k = 0; k < tensors; k++) got[j][k] = *(const chunk<T, width> *)(from[k] + at[j]);
            at.count++;
        }
        work(got, at);
    }
}

/* Calls work likewise with chunks of x, d_y and, with `adds`, more. */
template <class T, int width, bool adds, class Work>
__device__ static inline void sweep_all(const groupnorm_layout &l, const groupnorm_place &p, const T *x,
                                        const T *d_y, const T *more, Work work)
{
    if constexpr (adds) sweep<T, width, 3>(l, p, {x, d_y, more}, work);
    else sweep<T, width, 2>(l, p, {x, d_y}, work);
}

/* Stores one of the tensors' chunks. */
template <class T, int width, int most, int tensors>
__device__ static inline void store(T *to, const chunk<T, width> (&in)[most][tensors], int tensor,
                                    const groupnorm_pixels &at)
{
#pragma unroll
    for (int j = 0; j < most; j++)
        if (j < at.count) *(chunk<T, width> *)(to + at[j]) = in[j][tensor];
}

/* A group's number, of a channel of an image. */
__device__ static inline int64_t group_at(const groupnorm_layout &l, int64_t image, int channel)
{
    return image * l.groups + (l.each == 1 ? channel : channel / l.each);
}

/* z = (x - mean) * scale + bias + more, by the same operations in forward, recompute and backward. */
struct __align__(16) groupnorm_channel {
    float mean, invstd, scale, bias;
    __device__ void set(const groupnorm_layout &l, const groupnorm_tables &t, int64_t image, int channel)
    {
        int64_t group = group_at(l, image, channel);
        mean = t.mean[group], invstd = t.invstd[group];
        scale = t.weight ? __fmul_rn(invstd, t.weight[channel]) : invstd;
        bias = t.bias ? t.bias[channel] : 0;
    }
    __device__ float z(float x) const { return fmaf(x - mean, scale, bias); }
};

/* Backward's d_x = invstd * (d_z * weight + (tilt * (x - mean) + shift)), exactly 0 where a group is one
 * number. */
struct __align__(16) groupnorm_line {
    float weight, tilt, shift;
    __device__ void set(const groupnorm_layout &l, const groupnorm_tables &t, int64_t image, int channel)
    {
        int64_t group = group_at(l, image, channel);
        float count = (float)l.pixels * (float)l.each;
        weight = t.weight ? t.weight[channel] : 1;
        shift = -t.sum[group] / count;
        tilt = -t.invstd[group] * t.product[group] / count;
    }
};

/* The channels of a block lie in shared memory, those of threads side by side, too, so that registers are for
 * chunks in flight. Calls set(e, threadIdx.x, channel) for each of them, by any thread. */
template <class Row, int width> using groupnorm_rows = Row[width][SPAN];

template <int width, class Set> __device__ static inline void each_channel(const groupnorm_layout &l, Set set)
{
    for (int i = threadIdx.y * l.span + threadIdx.x; i < l.span * width; i += THREADS) {
        int x = i / width, e = i % width, channel = (int)(blockIdx.y * l.span + x) * width + e;
        if (channel < l.channels) set(e, x, channel);
    }
    __syncthreads();
}

/* Calls body(e, j) for each element e of each tensor's chunk j: channels change most slowly. */
template <class T, int width, int most, int tensors, class Body>
__device__ static inline void each_number(const chunk<T, width> (&)[most][tensors], Body body)
{
#pragma unroll
    for (int e = 0; e < width; e++)
#pragma unroll
        for (int j = 0; j < most; j++) body(e, j);
}

/* The block's two sums for each of its channels. Forward: of deviations from the image's first pixel, so that
 * little precision is lost when squares are subtracted (Chan, Golub, LeVeque 1983), and of their squares. */
template <class T, int width, bool backward, enum activation activation, bool adds>
__global__ void __launch_bounds__(THREADS, (blocks_at_once<1 + backward + adds>))
groupnorm_sums_kernel(const T *x, const T *d_y, const T *more, const __grid_constant__ groupnorm_layout l,
                      const __grid_constant__ groupnorm_tables t)
{
    column_sums<2, width> sum = {};
    __shared__ merge_room<column_sums<2, width>> room;
    __shared__ groupnorm_rows<groupnorm_channel, width> rows;
    groupnorm_place p = place_of(l, false);
    const T *start = x + p.image * l.pixels * l.channels;
    each_channel<width>(l, [&](int e, int column, int channel) {
        if constexpr (backward) rows[e][column].set(l, t, p.image, channel);
        else rows[e][column].mean = to_float(start[channel]);
    });
    auto add = [&](auto &in, const groupnorm_pixels &at) {
        each_number(in, [&](int e, int j) {
            const groupnorm_channel &row = rows[e][threadIdx.x];
            float deviation = to_float(in[j][0].at[e]) - row.mean, first = deviation, second = deviation;
            if constexpr (backward) {
                float z = fmaf(deviation, row.scale, row.bias);
                if constexpr (adds) z += to_float(in[j][2].at[e]);
                first = pass_back<activation>(z, to_float(in[j][1].at[e]), l.slope);
                second = deviation * row.invstd;
            }
            if (j >= at.count) first = second = 0;
            sum.at[0][e] += first;
            sum.at[1][e] = fmaf(first, second, sum.at[1][e]);
        });
    };
    if constexpr (!backward) {
        if (p.here) sweep<T, width, 1>(l, p, {x}, add);
    } else {
        if (p.here) sweep_all<T, width, adds>(l, p, x, d_y, more, add);
    }
    merge_lanes<merge_sums>(sum, threadIdx.y, threadIdx.x, l.span, l.lanes, room);
    if (threadIdx.y > 0 || !p.here) return;
    float *to = t.parts + (p.image * l.parts + p.part) * 2 * l.channels + (int64_t)p.column * width;
#pragma unroll
    for (int e = 0; e < width; e++) to[e] = sum.at[0][e], to[l.channels + e] = sum.at[1][e];
}

/* Adds up the parts of each channel of an image. Where a channel is a group, that is concluded, too. */
template <class T, bool backward>
__global__ void __launch_bounds__(FINISH_CHANNELS *FINISH_LANES)
groupnorm_channels_kernel(const T *x, const __grid_constant__ groupnorm_layout l,
                          const __grid_constant__ groupnorm_tables t)
{
    __shared__ double room[2][FINISH_LANES][FINISH_CHANNELS];
    int across = (l.channels + FINISH_CHANNELS - 1) / FINISH_CHANNELS;
    int64_t image = blockIdx.x / across;
    int channel = (int)(blockIdx.x - image * across) * FINISH_CHANNELS + threadIdx.x;
    double first = 0, second = 0;
#pragma unroll 4
    for (int part = threadIdx.y; channel < l.channels && part < l.parts; part += FINISH_LANES) {
        const float *at = t.parts + (image * l.parts + part) * 2 * l.channels + channel;
        first += at[0], second += at[l.channels];
    }
    room[0][threadIdx.y][threadIdx.x] = first, room[1][threadIdx.y][threadIdx.x] = second;
    __syncthreads();
    if (threadIdx.y > 0 || channel >= l.channels) return;
    for (int lane = 1; lane < FINISH_LANES; lane++)
        first += room[0][lane][threadIdx.x], second += room[1][lane][threadIdx.x];
    int64_t at = image * l.channels + channel;
    if (!backward) {
        double count = (double)l.pixels, mean = first / count;
        second = fmax(second - first * mean, 0.0);
        first = to_float(x[image * l.pixels * l.channels + channel]) + mean;
        if (l.each == 1) {
            t.mean[at] = (float)first, t.invstd[at] = (float)(1 / sqrt(second / count + l.eps));
            return;
        }
    } else if (l.each == 1) {
        double weight = t.weight ? t.weight[channel] : 1;
        t.sum[at] = (float)(first * weight), t.product[at] = (float)(second * weight);
    }
    t.first[at] = (float)first, t.second[at] = (float)second;
}

/* A warp for each group of several channels. */
template <bool backward>
__global__ void __launch_bounds__(THREADS)
groupnorm_groups_kernel(const __grid_constant__ groupnorm_layout l,
                        const __grid_constant__ groupnorm_tables t)
{
    int64_t group = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32, image = group / l.groups;
    int lane = threadIdx.x % 32, begin = (int)(group - image * l.groups) * l.each;
    if (image >= l.images) return;
    const float *first = t.first + image * l.channels, *second = t.second + image * l.channels;
    auto over_lanes = [](double value) {
        for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
        return value;
    };
    double a = 0, b = 0;
    if constexpr (backward) {
        for (int c = begin + lane; c < begin + l.each; c += 32) {
            double weight = t.weight ? t.weight[c] : 1;
            a += first[c] * weight, b += second[c] * weight;
        }
        a = over_lanes(a), b = over_lanes(b);
        if (lane == 0) t.sum[group] = (float)a, t.product[group] = (float)b;
    } else {
        for (int c = begin + lane; c < begin + l.each; c += 32) a += first[c];
        double mean = over_lanes(a) / l.each;
        for (int c = begin + lane; c < begin + l.each; c += 32) {
            double deviation = first[c] - mean;
            b += second[c] + l.pixels * deviation * deviation;
        }
        b = over_lanes(b);
        if (lane > 0) return;
        t.mean[group] = (float)mean;
        t.invstd[group] = (float)(1 / sqrt(b / ((double)l.pixels * l.each) + l.eps));
    }
}

template <class T, int width, enum activation activation, bool adds>
__global__ void __launch_bounds__(THREADS, (blocks_at_once<1 + adds>))
groupnorm_normalise_kernel(T *y, const T *x, const T *more, const __grid_constant__ groupnorm_layout l,
                           const __grid_constant__ groupnorm_tables t)
{
    __shared__ groupnorm_rows<groupnorm_channel, width> rows;
    groupnorm_place p = place_of(l, true);
    each_channel<width>(l, [&](int e, int column, int channel) {
        rows[e][column].set(l, t, p.image, channel);
    });
    if (!p.here) return;
    auto normalise = [&](auto &in, const groupnorm_pixels &at) {
        each_number(in, [&](int e, int j) {
            float z = rows[e][threadIdx.x].z(to_float(in[j][0].at[e]));
            if constexpr (adds) z += to_float(in[j][1].at[e]);
            in[j][0].at[e] = from_float<T>(activate<activation>(z, l.slope));
        });
        store(y, in, 0, at);
    };
    if constexpr (adds) sweep<T, width, 2>(l, p, {x, more}, normalise);
    else sweep<T, width, 1>(l, p, {x}, normalise);
}

/* The tensors of backward. Results may be NULL: the gradients, and y, recomputed. */
template <class T> struct groupnorm_tensors {
    const T *x, *d_y, *more;
    T *d_x, *d_more, *again;
};

template <class T> static groupnorm_tensors<T> tensors_of(const struct call *call)
{
    groupnorm_tensors<T> g = {(const T *)call->x[0].data, (const T *)call->d_y.data};
    if (call->x_count > 1) g.more = (const T *)call->x[1].data;
    if (call->phase != PHASE_BACKWARD) return g;
    g.d_x = (T *)call->d_x[0].data;
    if (call->x_count > 1) g.d_more = (T *)call->d_x[1].data;
    g.again = (T *)call_data(call, OPERAND_Y_RECOMPUTED);
    return g;
}

/* Results take the places of what they follow from: d_x that of x, d_more or y again that of d_y. */
template <class T, int width, enum activation activation, bool adds>
__global__ void __launch_bounds__(THREADS, blocks_at_once<3>)
groupnorm_gradient_kernel(const __grid_constant__ groupnorm_tensors<T> g,
                          const __grid_constant__ groupnorm_layout l,
                          const __grid_constant__ groupnorm_tables t)
{
    __shared__ groupnorm_rows<groupnorm_channel, width> rows;
    __shared__ groupnorm_rows<groupnorm_line, width> lines;
    groupnorm_place p = place_of(l, true);
    each_channel<width>(l, [&](int e, int column, int channel) {
        rows[e][column].set(l, t, p.image, channel);
        lines[e][column].set(l, t, p.image, channel);
    });
    if (!p.here) return;
    constexpr bool reads = adds && activation;
    sweep_all<T, width, reads>(l, p, g.x, g.d_y, g.more, [&](auto &in, const groupnorm_pixels &at) {
        each_number(in, [&](int e, int j) {
            const groupnorm_channel &row = rows[e][threadIdx.x];
            const groupnorm_line &line = lines[e][threadIdx.x];
            float x = to_float(in[j][0].at[e]), d = to_float(in[j][1].at[e]), z = row.z(x);
            if constexpr (reads) z += to_float(in[j][2].at[e]);
            if constexpr (activation) d = pass_back<activation>(z, d, l.slope);
            in[j][0].at[e] = from_float<T>(
                row.invstd * (__fmul_rn(d, line.weight) + fmaf(line.tilt, x - row.mean, line.shift)));
            if constexpr (adds) in[j][1].at[e] = from_float<T>(d);
            else if (g.again) in[j][1].at[e] = from_float<T>(activate<activation>(z, l.slope));
        });
        if (g.d_x) store(g.d_x, in, 0, at);
        if (adds && g.d_more) store(g.d_more, in, 1, at);
        if (!adds && g.again) store(g.again, in, 1, at);
    });
}

/* Gradients of weight and bias: the sums of all images. */
__global__ void __launch_bounds__(THREADS)
groupnorm_params_kernel(float *d_weight, float *d_bias, const __grid_constant__ groupnorm_layout l,
                        const __grid_constant__ groupnorm_tables t)
{
    int channel = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (channel >= l.channels) return;
    double sum = 0, product = 0;
    for (int64_t image = 0; image < l.images; image++) {
        sum += t.first[image * l.channels + channel];
        product += t.second[image * l.channels + channel];
    }
    if (d_weight) d_weight[channel] = (float)product;
    if (d_bias) d_bias[channel] = (float)sum;
}

/* Divides the workspace; returns its bytes. Without a workspace pointers are meaningless. */
static size_t tables_of(const struct call *call, const struct groupnorm_layout *l, struct groupnorm_tables *t)
{
    size_t by_channel = (size_t)(l->images * l->channels), by_group = (size_t)(l->images * l->groups);
    size_t used = 0;
    auto take = [&](size_t count) {
        float *at = (float *)((char *)call->workspace + used);
        used += workspace_align(count * sizeof(float));
        return at;
    };
    *t = {};
    if (call->param_count > 0)
        t->weight = (const float *)call->params[0].data, t->bias = (const float *)call->params[1].data;
    if (call->saved_count > 0) {
        t->mean = (float *)call->saved[GROUPNORM_MEAN].data;
        t->invstd = (float *)call->saved[GROUPNORM_INVSTD].data;
    } else {
        t->mean = take(by_group), t->invstd = take(by_group);
    }
    if (call->phase == PHASE_RECOMPUTE) return used;
    t->parts = take((size_t)l->parts * 2 * by_channel);
    t->first = take(by_channel), t->second = take(by_channel);
    if (call->phase == PHASE_BACKWARD) t->sum = take(by_group), t->product = take(by_group);
    return used;
}

static size_t groupnorm_workspace(const struct call *call)
{
    struct groupnorm_layout l = layout_of(call);
    struct groupnorm_tables t;
    return tables_of(call, &l, &t);
}

static dim3 sweep_grid(const struct groupnorm_layout *l)
{
    return dim3((unsigned)(l->images * l->parts), (unsigned)div_up(l->columns, l->span));
}

/* Calls work(T(), width, activation, adds, layout, tables). */
template <class Work> static enum status with_groupnorm(const struct call *call, Work open)
{
    if (shape_count(call->x[0].shape) == 0) return OK;
    struct groupnorm_layout l = layout_of(call);
    struct groupnorm_tables t;
    tables_of(call, &l, &t);
    auto work = [&](auto type, auto wide, auto kind, auto adds) {
        return open(type, wide, kind, adds, l, t);
    };
    enum activation own = call_activation(call).kind;
    return with_chunk(call->x[0].dtype, call->x[0].shape.c, [&](auto type, auto wide) {
        if (call->x_count == 1)
            return with_activation(own, [&](auto kind) { return work(type, wide, kind, constant<false>()); });
        if (own == ACTIVATION_RELU) return work(type, wide, constant<ACTIVATION_RELU>(), constant<true>());
        if (own == ACTIVATION_NONE) return work(type, wide, constant<ACTIVATION_NONE>(), constant<true>());
        return work(type, wide, constant<ACTIVATION_LEAKY_RELU>(), constant<true>());
    });
}

template <class T, int width, bool backward, enum activation activation, bool adds>
static enum status groupnorm_measure(const struct call *call, const struct groupnorm_layout &l,
                                     const struct groupnorm_tables &t)
{
    cudaStream_t stream = stream_of(call);
    dim3 threads(l.span, l.lanes), finish(FINISH_CHANNELS, FINISH_LANES);
    groupnorm_tensors<T> g = tensors_of<T>(call);
    groupnorm_sums_kernel<T, width, backward, activation, adds>
        <<<sweep_grid(&l), threads, 0, stream>>>(g.x, g.d_y, g.more, l, t);
    unsigned blocks = (unsigned)(l.images * div_up(l.channels, FINISH_CHANNELS));
    groupnorm_channels_kernel<T, backward><<<blocks, finish, 0, stream>>>(g.x, l, t);
    if (l.each > 1)
        groupnorm_groups_kernel<backward>
            <<<(unsigned)div_up(l.images * l.groups, (int64_t)(THREADS / 32)), THREADS, 0, stream>>>(l, t);
    return launched(call);
}

static enum status groupnorm_normalise(const struct call *call)
{
    return with_groupnorm(call, [&](auto type, auto wide, auto kind, auto adds, auto &l, auto &t) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        constexpr enum activation activation = (enum activation)decltype(kind)::number;
        groupnorm_tensors<T> g = tensors_of<T>(call);
        if (call->phase == PHASE_FORWARD)
            TRY((groupnorm_measure<T, width, false, ACTIVATION_NONE, false>(call, l, t)));
        groupnorm_normalise_kernel<T, width, activation, decltype(adds)::number>
            <<<sweep_grid(&l), dim3(l.span, l.lanes), 0, stream_of(call)>>>((T *)call->y.data, g.x, g.more, l,
                                                                           t);
        return launched(call);
    });
}

static enum status groupnorm_backward(const struct call *call)
{
    return with_groupnorm(call, [&](auto type, auto wide, auto kind, auto adds, auto &l, auto &t) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        constexpr enum activation activation = (enum activation)decltype(kind)::number;
        constexpr bool joins = decltype(adds)::number;
        groupnorm_tensors<T> g = tensors_of<T>(call);
        TRY((groupnorm_measure<T, width, true, activation, joins && activation>(call, l, t)));
        if (g.d_x || g.d_more || g.again)
            groupnorm_gradient_kernel<T, width, activation, joins>
                <<<sweep_grid(&l), dim3(l.span, l.lanes), 0, stream_of(call)>>>(g, l, t);
        if (float *sums = (float *)call_data(call, OPERAND_D_X_SUMS))
            TRY(cuda_status(call->device, cudaMemsetAsync(sums, 0, (size_t)l.channels * sizeof *sums,
                                                          stream_of(call)), "filling memory"));
        if (call->param_count > 0)
            groupnorm_params_kernel<<<(unsigned)div_up(l.channels, THREADS), THREADS, 0, stream_of(call)>>>(
                (float *)call->d_params[0].data, (float *)call->d_params[1].data, l, t);
        return launched(call);
    });
}

const struct op_code groupnorm_cuda = {
    .supports = groupnorm_supports,
    .workspace = groupnorm_workspace,
    .forward = groupnorm_normalise,
    .backward = groupnorm_backward,
    .recompute = groupnorm_normalise,
};
