/* batchnorm.cuh: the arithmetic of batchnorm on CUDA: of one element, and of a block's sums over its rows.
 *
 * Memory consists of rows (n, h, w) of channels; a row is a sequence of cells of `width` channels. A thread
 * processes one column of cells, so that per-channel values stay in registers, and every `lanes`-th row of
 * the block: `lanes` threads of a block share a column. */
#pragma once

#include "kernels/elementwise/activation.cuh"

extern "C" {
#include "kernels/norm/batchnorm.h"
}

namespace batchnorm_parts {

constexpr int threads = 256;

/* One thread's memory access: 16 bytes, or a single number if rows are not multiples of 16 bytes. Numbers
 * stay packed in registers until they are used. */
template <class T, int width> struct cell {
    static_assert(sizeof(T) * width == 16, "other widths have cells of their own");
    uint4 packed;
    __device__ uint32_t word(int i) const
    {
        return i == 0 ? packed.x : i == 1 ? packed.y : i == 2 ? packed.z : packed.w;
    }
    __device__ float get(int i) const { return unpack(T(), i); }

private:
    __device__ float unpack(float, int i) const { return __uint_as_float(word(i)); }
    __device__ float unpack(__half, int i) const
    {
        return __half2float(
            __ushort_as_half((unsigned short)(i % 2 ? word(i / 2) >> 16 : word(i / 2) & 0xffff)));
    }
    __device__ float unpack(__nv_bfloat16, int i) const
    {
        return __uint_as_float(i % 2 ? word(i / 2) & 0xffff0000u : word(i / 2) << 16);
    }
};

template <class T> struct cell<T, 1> {
    T packed;
    __device__ float get(int) const { return to_float(packed); }
};

template <class T, int width> __device__ inline cell<T, width> load(const void *from)
{
    return *(const cell<T, width> *)from;
}

__device__ inline uint32_t pack_two(float, float low, float) { return __float_as_uint(low); }
__device__ inline uint32_t pack_two(__half, float low, float high)
{
    __half2 two = __floats2half2_rn(low, high);
    return *(uint32_t *)&two;
}
__device__ inline uint32_t pack_two(__nv_bfloat16, float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&two;
}

template <class T, int width> __device__ inline cell<T, width> cell_of(const float (&value)[width])
{
    if constexpr (width == 1) {
        return {from_float<T>(value[0])};
    } else {
        constexpr int each = width / 4;   /* numbers in a word */
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = pack_two(T(), value[i * each], value[i * each + each - 1]);
        return {make_uint4(word[0], word[1], word[2], word[3])};
    }
}

template <class T, int width> __device__ inline void store(void *to, const float (&value)[width])
{
    *(cell<T, width> *)to = cell_of<T>(value);
}

/* A bit for each of a cell's eight numbers: 1 if it is not 0. */
template <class T> __device__ inline uint8_t mask_of(const cell<T, 8> &y)
{
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        bits |= (unsigned)((i % 2 ? y.word(i / 2) >> 16 : y.word(i / 2) & 0xffff) != 0) << i;
    return (uint8_t)bits;
}

/* An activation that is not smooth: below 0 a line or zero, constant from `top` on. */
struct slopes {
    float negative, top;
};

static inline struct slopes slopes_of(const struct batchnorm *s)
{
    switch ((enum activation)s->activation) {
    case ACTIVATION_NONE: return {1, INFINITY};
    case ACTIVATION_RELU: return {0, INFINITY};
    case ACTIVATION_RELU6: return {0, 6};
    case ACTIVATION_LEAKY_RELU: return {(float)s->slope, INFINITY};
    case ACTIVATION_SILU:
    case ACTIVATION_HARDSWISH: break;
    }
    return {1, INFINITY};
}

/* The activations for which kernels are specialised; clip is relu6. */
enum act { ACT_NONE, ACT_RELU, ACT_CLIP, ACT_SILU, ACT_HARDSWISH, ACT_OTHER };

constexpr bool act_is_smooth(enum act act) { return act == ACT_SILU || act == ACT_HARDSWISH; }

template <enum act act> __device__ inline float activate(const struct slopes &b, float z)
{
    if (act == ACT_NONE) return z;
    if (act == ACT_RELU) return z <= 0 ? 0 : z;
    if (act == ACT_CLIP) return z <= 0 ? 0 : z >= b.top ? b.top : z;
    if (act == ACT_SILU) return ::activate<ACTIVATION_SILU>(z, 0);
    if (act == ACT_HARDSWISH) return ::activate<ACTIVATION_HARDSWISH>(z, 0);
    return z <= 0 ? (b.negative == 0 ? 0 : b.negative * z) : z >= b.top ? b.top : z;
}

/* Products are rounded before they are added to anything, so that both sweeps see the same gradient. */
template <enum act act> __device__ inline float pass_back(const struct slopes &b, float side, float d_y)
{
    if (act == ACT_NONE) return d_y;
    if (act == ACT_RELU) return side <= 0 ? 0 : d_y;
    if (act == ACT_CLIP) return side <= 0 || side >= b.top ? 0 : d_y;
    if (act == ACT_HARDSWISH) return ::pass_back<ACTIVATION_HARDSWISH>(side, d_y, 0);
    if (act == ACT_SILU) return ::pass_back<ACTIVATION_SILU>(side, d_y, 0);
    return side <= 0 ? (b.negative == 0 ? 0 : b.negative * d_y) : side >= b.top ? 0 : d_y;
}

/* The tensor from which backward knows on which side of the activation's corner an element was. Only relu has
 * a mask. */
enum side { SIDE_X, SIDE_Y, SIDE_MASK };

/* The arrays of channels' values; weight and bias may be NULL. With `running`, spread is a variance,
 * otherwise invstd. */
struct channel_values {
    const float *mean, *spread, *weight, *bias;
    float eps;
    bool running;
};

static inline struct channel_values values_of(const struct call *call)
{
    const struct batchnorm *s = (const struct batchnorm *)call->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    bool running = call->phase == PHASE_FORWARD && !call->training;
    return {
        .mean = (const float *)(running ? call->params[at.mean] : call->saved[SAVED_MEAN]).data,
        .spread = (const float *)(running ? call->params[at.variance] : call->saved[SAVED_INVSTD]).data,
        .weight = s->affine ? (const float *)call->params[0].data : NULL,
        .bias = s->affine ? (const float *)call->params[1].data : NULL,
        .eps = (float)s->eps,
        .running = running,
    };
}

/* z = (x - mean) * scale + bias, always by the same operations, so that forward, recompute and backward's
 * masks agree to the bit. */
template <int width> struct factors {
    float mean[width], scale[width], bias[width];
};

/* The values of a cell's channels. */
template <int width> __device__ inline void load_channels(float (&to)[width], const float *from, int channel)
{
    if constexpr (width == 1) {
        to[0] = from[channel];
    } else {
#pragma unroll
        for (int i = 0; i < width; i += 4) {
            float4 four = *(const float4 *)(from + channel + i);
            to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
        }
    }
}

template <int width> __device__ inline factors<width> factors_at(const struct channel_values &v, int channel)
{
    factors<width> f;
    float weight[width];
    load_channels(f.mean, v.mean, channel);
    load_channels(f.scale, v.spread, channel);
    if (v.weight) load_channels(weight, v.weight, channel);
    if (v.bias) load_channels(f.bias, v.bias, channel);
#pragma unroll
    for (int i = 0; i < width; i++) {
        if (v.running) f.scale[i] = 1 / sqrtf(f.scale[i] + v.eps);
        if (v.weight) f.scale[i] *= weight[i];
        if (!v.bias) f.bias[i] = 0;
    }
    return f;
}

template <int width> __device__ inline float normalise(const factors<width> &f, float x, int i)
{
    return fmaf(x - f.mean[i], f.scale[i], f.bias[i]);
}

/* d_x = scale * dz + slope * x + rest: of a channel, from batch norm's sums. */
struct backward_line {
    float scale, slope, rest;
    __device__ backward_line(const struct channel_values &values, const float *sums, int64_t channels,
                             int channel, float count)
    {
        factors<1> f = factors_at<1>(values, channel);
        scale = f.scale[0];
        slope = sums[channels + channel] * (-scale * values.spread[channel] / count);
        rest = -scale * sums[channel] / count - slope * f.mean[0];
    }
};

/* y of one cell; `residual` is used only with has_residual. */
template <enum act act, bool has_residual, class T, int width>
__device__ inline cell<T, width> normalise_cell(const factors<width> &f, const struct slopes &b,
                                                const cell<T, width> &x, const cell<T, width> &residual)
{
    float out[width];
#pragma unroll
    for (int i = 0; i < width; i++) {
        float z = normalise(f, x.get(i), i);
        if (has_residual) z += residual.get(i);
        out[i] = activate<act>(b, z);
    }
    return cell_of<T>(out);
}

/* A cell of the tensor that `by` names: y, or a byte of the mask. */
template <class T, int width, enum side by> struct side_cell {
    cell<T, width> y;
    __device__ float get(int i) const { return y.get(i); }
};
template <class T, int width> struct side_cell<T, width, SIDE_MASK> {
    uint8_t mask;
    __device__ float get(int i) const { return mask >> i & 1; }
};

/* One cell of each tensor that backward reads. */
template <class T, int width, enum side by> struct backward_cells {
    const cell<T, width> &x, &d_y, &more;      /* `more` is used only with `two` */
    const side_cell<T, width, by> &sides;
};

/* The gradient of the activation's input, for element i of a cell. d_y may be given as two tensors, whose
 * sum is rounded as if it had been stored. */
template <enum act act, bool two, class T, int width, enum side by>
__device__ inline float d_z(const factors<width> &f, const struct slopes &b,
                            const backward_cells<T, width, by> &in, int i)
{
    float d = two ? to_float(from_float<T>(in.d_y.get(i) + in.more.get(i))) : in.d_y.get(i);
    if (act == ACT_NONE) return d;
    return pass_back<act>(b, by == SIDE_X ? normalise(f, in.x.get(i), i) : in.sides.get(i), d);
}

/* Two numbers per channel over `count` rows: mean and sum of squared deviations from it (forward), or the
 * sums of dz and of dz * (x - mean) (backward). */
template <int width> struct tally {
    float count;
    float first[width], second[width];
};

/* Forward, in one pass: sums are of deviations from the thread's first value, so that little precision is
 * lost when squares are subtracted (Chan, Golub, LeVeque 1983). */
template <class T, int width> __device__ inline void measure_cell(tally<width> &t, float (&shift)[width],
                                                                  const cell<T, width> &x)
{
#pragma unroll
    for (int i = 0; i < width; i++) {
        if (t.count == 0) shift[i] = x.get(i);
        float deviation = x.get(i) - shift[i];
        t.first[i] += deviation;
        t.second[i] = fmaf(deviation, deviation, t.second[i]);
    }
    t.count++;
}

template <int width> __device__ inline void measure_end(tally<width> &t, const float (&shift)[width])
{
    if (t.count == 0) return;
#pragma unroll
    for (int i = 0; i < width; i++) {
        float mean = t.first[i] / t.count;
        t.second[i] = fmaxf(t.second[i] - t.first[i] * mean, 0);
        t.first[i] = shift[i] + mean;
    }
}

/* Backward: adds a cell to the sums and returns its dz. */
template <enum act act, bool two, class T, int width, enum side by>
__device__ inline void add_products(tally<width> &t, const factors<width> &f, const struct slopes &b,
                                    const backward_cells<T, width, by> &in, float (&dz)[width])
{
#pragma unroll
    for (int i = 0; i < width; i++) {
        dz[i] = d_z<act, two>(f, b, in, i);
        t.first[i] += dz[i];
        t.second[i] = fmaf(dz[i], in.x.get(i) - f.mean[i], t.second[i]);
    }
}

struct merge_moments {
    template <int width> static __device__ void merge(tally<width> &a, const tally<width> &b)
    {
        float count = a.count + b.count;
        if (b.count == 0) return;
        float share = b.count / count, cross = a.count * share;
#pragma unroll
        for (int i = 0; i < width; i++) {
            float delta = b.first[i] - a.first[i];
            a.first[i] += delta * share;
            a.second[i] += b.second[i] + delta * delta * cross;
        }
        a.count = count;
    }
};

struct merge_sums {
    template <int width> static __device__ void merge(tally<width> &a, const tally<width> &b)
    {
#pragma unroll
        for (int i = 0; i < width; i++) {
            a.first[i] += b.first[i];
            a.second[i] += b.second[i];
        }
        a.count += b.count;
    }
};

/* Shared memory for half of a block's tallies; odd row lengths avoid bank conflicts. */
template <int width> using tally_room = float[threads / 2][2 * width + 1];

/* Merges the lanes' tallies in a fixed order into lane 0's. `span` is the number of threads that are side by
 * side on a row. */
template <class Merge, int width>
__device__ inline void merge_lanes(tally<width> &mine, int span, int lanes, tally_room<width> &room)
{
    int lane = threadIdx.x / span, column = threadIdx.x % span;
    for (int top = lanes; top > 1;) {
        int half = (top + 1) / 2;
        if (lane >= half && lane < top) {
            float *slot = room[(lane - half) * span + column];
#pragma unroll
            for (int i = 0; i < width; i++) slot[i] = mine.first[i], slot[width + i] = mine.second[i];
            slot[2 * width] = mine.count;
        }
        __syncthreads();
        if (lane < top - half) {
            const float *slot = room[lane * span + column];
            tally<width> other;
#pragma unroll
            for (int i = 0; i < width; i++) other.first[i] = slot[i], other.second[i] = slot[width + i];
            other.count = slot[2 * width];
            Merge::merge(mine, other);
        }
        __syncthreads();
        top = half;
    }
}

/* A channel's coefficients in backward's second sweep: d_x = scale * (dz + (tilt * (x - mean) + offset)). */
struct gradient_line {
    float tilt, offset;
};

template <enum act act, bool two, class T, int width, enum side by>
__device__ inline void d_x_cell(const factors<width> &f, const struct gradient_line (&line)[width],
                                const struct slopes &b, const backward_cells<T, width, by> &in,
                                float (&d_x)[width])
{
#pragma unroll
    for (int i = 0; i < width; i++) {
        float dz = d_z<act, two>(f, b, in, i);
        d_x[i] = f.scale[i] * (dz + fmaf(line[i].tilt, in.x.get(i) - f.mean[i], line[i].offset));
    }
}

/* Forward's results for each channel. */
struct statistics {
    float *mean, *invstd, *variance;
};

static inline struct statistics statistics_of(const struct call *call)
{
    if (!call->training) return {NULL, NULL, NULL};
    return {(float *)call->saved[SAVED_MEAN].data, (float *)call->saved[SAVED_INVSTD].data,
            (float *)call->saved[SAVED_VARIANCE].data};
}

/* Computes x's statistics as forward does in training, in forward's workspace; x must not be empty. */
}
enum status batchnorm_statistics_cuda(const struct call *call);
/* op_code.update of batch norm and of the ops that contain one. */
enum status batchnorm_update_cuda(const struct call *call);
namespace batchnorm_parts {

/* The tensors that backward's kernels read and write. Of y and mask only the one that enum side selects is
 * read; d_y_more, d_x_more, d_residual, d_x, y_recomputed and the parameters' gradients may be NULL. Rows of
 * d_x_more have more_pitch numbers. per_pixel: 2^64 divided by an image's pixels, rounded up, where d_y_more
 * has one row for each image; else 0. */
template <class T> struct gradients {
    const T *x, *y, *d_y, *d_y_more, *d_x_more;
    uint64_t per_pixel;
    int64_t more_pitch;
    const uint8_t *mask;
    T *d_residual, *d_x, *y_recomputed;
    float *d_weight, *d_bias;
};

template <class T> static inline struct gradients<T> gradients_of(const struct call *call)
{
    const struct batchnorm *s = (const struct batchnorm *)call->settings;
    const struct tensor *joining = call_operand(call, OPERAND_D_X_ADDEND);
    uint64_t pixels = (uint64_t)(call->d_y.shape.h * call->d_y.shape.w);
    return {
        .x = (const T *)call->x[0].data,
        .y = (const T *)call->y.data,
        .d_y = (const T *)call->d_y.data,
        .d_y_more = (const T *)call_data(call, OPERAND_D_Y_ADDEND),
        .d_x_more = joining ? (const T *)joining->data : NULL,
        .per_pixel = batchnorm_adds_flat(call) ? UINT64_MAX / pixels + 1 : 0,
        .more_pitch = joining ? joining->shape.c : 0,
        .mask = (const uint8_t *)call_data(call, OPERAND_MASK),
        .d_residual = s->residual ? (T *)call->d_x[1].data : NULL,
        .d_x = (T *)call->d_x[0].data,
        .y_recomputed = (T *)call_data(call, OPERAND_Y_RECOMPUTED),
        .d_weight = s->affine ? (float *)call->d_params[0].data : NULL,
        .d_bias = s->affine ? (float *)call->d_params[1].data : NULL,
    };
}

/* Calls work(act) with the activation's kind as a constant; `relu`: there are kernels specialised for it. */
template <int n> struct number {
    static constexpr int value = n;
};
template <bool relu, class Work> static enum status with_act(const struct batchnorm *s, Work work)
{
    if (s->activation == ACTIVATION_NONE) return work(number<ACT_NONE>());
    if (s->activation == ACTIVATION_SILU) return work(number<ACT_SILU>());
    if (s->activation == ACTIVATION_HARDSWISH) return work(number<ACT_HARDSWISH>());
    if (relu && s->activation == ACTIVATION_RELU) return work(number<ACT_RELU>());
    if (relu && s->activation == ACTIVATION_RELU6) return work(number<ACT_CLIP>());
    return work(number<ACT_OTHER>());
}

}
