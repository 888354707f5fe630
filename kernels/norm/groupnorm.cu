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
#define IN_FLIGHT 4          /* chunks of each tensor that a thread loads at once */
#define PARTS_MAX 256        /* blocks that share an image */
#define BLOCKS_WANTED 2048   /* in all, if images have so many pixels */
#define FINISH_CHANNELS 32   /* of a block of finishing kernels */
#define FINISH_LANES 8

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
    int64_t parts = l.pixels / ((int64_t)l.lanes * IN_FLIGHT * 2);
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

/* Calls work(chunks) for all pixels of a thread, with a chunk of each of `count` tensors at the offset. */
template <class T, int width, int count, class Work>
__device__ static inline void sweep(const groupnorm_layout &l, const groupnorm_place &p,
                                    const T *const (&from)[count], Work work)
{
    int64_t base = p.image * l.pixels * l.channels + (int64_t)p.column * width;
    for (int64_t pixel = p.pixel; pixel < l.pixels; pixel += p.step * IN_FLIGHT) {
        chunk<T, width> got[IN_FLIGHT][count];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++)
            if (pixel + j * p.step < l.pixels)
#pragma unroll
                for (int k = 0; k < count; k++)
                    got[j][k] =
                        *(const chunk<T, width> *)(from[k] + base + (pixel + j * p.step) * l.channels);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++)
            if (pixel + j * p.step < l.pixels) work(got[j], base + (pixel + j * p.step) * l.channels);
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

/* A group's number, of a channel of an image. */
__device__ static inline int64_t group_at(const groupnorm_layout &l, int64_t image, int channel)
{
    return image * l.groups + (l.each == 1 ? channel : channel / l.each);
}

/* z = (x - mean) * scale + bias + more, by the same operations in forward, recompute and backward. */
template <int width> struct groupnorm_factors {
    float mean[width], scale[width], bias[width];
    __device__ groupnorm_factors(const groupnorm_layout &l, const groupnorm_tables &t,
                                 const groupnorm_place &p)
    {
#pragma unroll
        for (int e = 0; e < width; e++) {
            int channel = p.column * width + e;
            int64_t group = group_at(l, p.image, channel);
            mean[e] = t.mean[group];
            scale[e] = t.weight ? __fmul_rn(t.invstd[group], t.weight[channel]) : t.invstd[group];
            bias[e] = t.bias ? t.bias[channel] : 0;
        }
    }
    /* Computes z from x and, if there are two chunks, more. */
    template <class T, int count> __device__ float z(const chunk<T, width> (&in)[count], int e) const
    {
        float own = fmaf(to_float(in[0].at[e]) - mean[e], scale[e], bias[e]);
        return count == 1 ? own : own + to_float(in[count - 1].at[e]);
    }
    template <enum activation activation, class T, int count>
    __device__ chunk<T, width> output(const chunk<T, width> (&in)[count], float slope) const
    {
        chunk<T, width> y;
#pragma unroll
        for (int e = 0; e < width; e++) y.at[e] = from_float<T>(activate<activation>(z(in, e), slope));
        return y;
    }
};

/* The chunks from which z follows, of those of x, d_y and maybe more that backward has read. */
template <class T, int width, int count> struct groupnorm_inputs {
    chunk<T, width> at[count - 1];
    __device__ groupnorm_inputs(const chunk<T, width> (&in)[count])
    {
        at[0] = in[0];
        if constexpr (count == 3) at[1] = in[2];
    }
};

/* The block's two sums for each of its channels. Forward: of deviations from the image's first pixel, so that
 * little precision is lost when squares are subtracted (Chan, Golub, LeVeque 1983), and of their squares. */
template <class T, int width, bool backward, enum activation activation, bool adds>
__global__ void __launch_bounds__(THREADS)
groupnorm_sums_kernel(const T *x, const T *d_y, const T *more, const __grid_constant__ groupnorm_layout l,
                      const __grid_constant__ groupnorm_tables t)
{
    column_sums<2, width> sum = {};
    __shared__ merge_room<column_sums<2, width>> room;
    groupnorm_place p = place_of(l, false);
    float base[width], invstd[width];
    if (p.here) {
        int64_t start = p.image * l.pixels * l.channels + (int64_t)p.column * width;
#pragma unroll
        for (int e = 0; e < width; e++) {
            int64_t group = group_at(l, p.image, p.column * width + e);
            base[e] = backward ? t.mean[group] : to_float(x[start + e]);
            invstd[e] = backward ? t.invstd[group] : 0;
        }
        if constexpr (backward && activation) {
            groupnorm_factors<width> f(l, t, p);
            sweep_all<T, width, adds>(l, p, x, d_y, more, [&](auto &in, int64_t) {
                groupnorm_inputs<T, width, 2 + adds> z(in);
#pragma unroll
                for (int e = 0; e < width; e++) {
                    float d = pass_back<activation>(f.z(z.at, e), to_float(in[1].at[e]), l.slope);
                    sum.at[0][e] += d;
                    sum.at[1][e] = fmaf(d, (to_float(in[0].at[e]) - base[e]) * invstd[e], sum.at[1][e]);
                }
            });
        } else if constexpr (backward) {
            sweep<T, width, 2>(l, p, {x, d_y}, [&](chunk<T, width> (&in)[2], int64_t) {
#pragma unroll
                for (int e = 0; e < width; e++) {
                    float d = to_float(in[1].at[e]);
                    sum.at[0][e] += d;
                    sum.at[1][e] = fmaf(d, (to_float(in[0].at[e]) - base[e]) * invstd[e], sum.at[1][e]);
                }
            });
        } else {
            sweep<T, width, 1>(l, p, {x}, [&](chunk<T, width> (&in)[1], int64_t) {
#pragma unroll
                for (int e = 0; e < width; e++) {
                    float deviation = to_float(in[0].at[e]) - base[e];
                    sum.at[0][e] += deviation;
                    sum.at[1][e] = fmaf(deviation, deviation, sum.at[1][e]);
                }
            });
        }
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
__global__ void __launch_bounds__(THREADS)
groupnorm_normalise_kernel(T *y, const T *x, const T *more, const __grid_constant__ groupnorm_layout l,
                           const __grid_constant__ groupnorm_tables t)
{
    groupnorm_place p = place_of(l, true);
    if (!p.here) return;
    groupnorm_factors<width> f(l, t, p);
    auto store = [&](auto &in, int64_t at) {
        *(chunk<T, width> *)(y + at) = f.template output<activation>(in, l.slope);
    };
    if constexpr (adds) sweep<T, width, 2>(l, p, {x, more}, store);
    else sweep<T, width, 1>(l, p, {x}, store);
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

/* d_x = invstd * (d_z * weight + (tilt * (x - mean) + shift)), exactly 0 where a group is one number. */
template <class T, int width, enum activation activation, bool adds>
__global__ void __launch_bounds__(THREADS)
groupnorm_gradient_kernel(const __grid_constant__ groupnorm_tensors<T> g,
                          const __grid_constant__ groupnorm_layout l,
                          const __grid_constant__ groupnorm_tables t)
{
    groupnorm_place p = place_of(l, true);
    if (!p.here) return;
    groupnorm_factors<width> f(l, t, p);
    float invstd[width], weight[width], tilt[width], shift[width], count = (float)l.pixels * (float)l.each;
#pragma unroll
    for (int e = 0; e < width; e++) {
        int64_t group = group_at(l, p.image, p.column * width + e);
        invstd[e] = t.invstd[group];
        weight[e] = t.weight ? t.weight[p.column * width + e] : 1;
        shift[e] = -t.sum[group] / count;
        tilt[e] = -invstd[e] * t.product[group] / count;
    }
    constexpr bool reads = adds && activation;
    sweep_all<T, width, reads>(l, p, g.x, g.d_y, g.more, [&](auto &in, int64_t at) {
        groupnorm_inputs<T, width, 2 + reads> z(in);
        if (g.again) *(chunk<T, width> *)(g.again + at) = f.template output<activation>(z.at, l.slope);
        chunk<T, width> out, d_more;
#pragma unroll
        for (int e = 0; e < width; e++) {
            float d = to_float(in[1].at[e]);
            if constexpr (activation) d = pass_back<activation>(f.z(z.at, e), d, l.slope);
            out.at[e] = from_float<T>(
                invstd[e] * (__fmul_rn(d, weight[e]) +
                             fmaf(tilt[e], to_float(in[0].at[e]) - f.mean[e], shift[e])));
            d_more.at[e] = from_float<T>(d);
        }
        if (adds && g.d_more) *(chunk<T, width> *)(g.d_more + at) = d_more;
        if (g.d_x) *(chunk<T, width> *)(g.d_x + at) = out;
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
