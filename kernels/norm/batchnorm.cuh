/* batchnorm.cuh: the arithmetic of batchnorm on CUDA: of one element, and of a block's sums over its rows.
 *
 * A row (columns.cuh) is a sequence of cells of `width` channels. A thread processes one column of cells, so
 * that per-channel values stay in registers. */
#pragma once

#include "kernels/elementwise/activation.cuh"
#include "kernels/support/columns.cuh"

extern "C" {
#include "kernels/norm/batchnorm.h"
}

namespace batchnorm_parts {

constexpr int threads = COLUMNS_THREADS;
constexpr int unroll = 4;             /* rows of a thread in flight */

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

__device__ inline uint32_t add_two(__half, uint32_t a, uint32_t b)
{
    __half2 two = __hadd2(*(__half2 *)&a, *(__half2 *)&b);
    return *(uint32_t *)&two;
}
__device__ inline uint32_t add_two(__nv_bfloat16, uint32_t a, uint32_t b)
{
    __nv_bfloat162 two = __hadd2(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
    return *(uint32_t *)&two;
}

/* The sum, as if it had been stored. Sums of two 16-bit numbers are what those in fp32 would round to. */
template <class T, int width>
__device__ inline cell<T, width> sum_of(const cell<T, width> &a, const cell<T, width> &b)
{
    if constexpr (width == 8) {
        return {make_uint4(add_two(T(), a.word(0), b.word(0)), add_two(T(), a.word(1), b.word(1)),
                           add_two(T(), a.word(2), b.word(2)), add_two(T(), a.word(3), b.word(3)))};
    } else {
        float sum[width];
#pragma unroll
        for (int i = 0; i < width; i++) sum[i] = a.get(i) + b.get(i);
        return cell_of<T>(sum);
    }
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
template <enum activation act, bool has_residual, class T, int width>
__device__ inline cell<T, width> normalise_cell(const factors<width> &f, float slope,
                                                const cell<T, width> &x, const cell<T, width> &residual)
{
    float out[width];
#pragma unroll
    for (int i = 0; i < width; i++) {
        float z = normalise(f, x.get(i), i);
        if (has_residual) z += residual.get(i);
        out[i] = activate<act>(z, slope);
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
    const cell<T, width> &x, &d_y;
    const side_cell<T, width, by> &sides;
};

/* The gradient of the activation's input, for element i of a cell; its products are rounded before they are
 * added to anything, so that both sweeps see the same. */
template <enum activation act, class T, int width, enum side by>
__device__ inline float d_z(const factors<width> &f, float slope,
                            const backward_cells<T, width, by> &in, int i)
{
    float d = in.d_y.get(i);
    if (act == ACTIVATION_NONE) return d;
    return pass_back<act>(by == SIDE_X ? normalise(f, in.x.get(i), i) : in.sides.get(i), d, slope);
}

/* Two numbers per channel over `count` rows: mean and sum of squared deviations from it. */
template <int width> struct tally {
    float at[2][width], count;
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
        t.at[0][i] += deviation;
        t.at[1][i] = fmaf(deviation, deviation, t.at[1][i]);
    }
    t.count++;
}

template <int width> __device__ inline void measure_end(tally<width> &t, const float (&shift)[width])
{
    if (t.count == 0) return;
#pragma unroll
    for (int i = 0; i < width; i++) {
        float mean = t.at[0][i] / t.count;
        t.at[1][i] = fmaxf(t.at[1][i] - t.at[0][i] * mean, 0);
        t.at[0][i] = shift[i] + mean;
    }
}

/* Backward: adds a cell to the sums of dz and of dz * (x - mean), and returns its dz. */
template <enum activation act, class T, int width, enum side by>
__device__ inline void add_products(float (&sum)[2][width], const factors<width> &f,
                                    float slope, const backward_cells<T, width, by> &in,
                                    float (&dz)[width])
{
#pragma unroll
    for (int i = 0; i < width; i++) {
        dz[i] = d_z<act>(f, slope, in, i);
        sum[0][i] += dz[i];
        sum[1][i] = fmaf(dz[i], in.x.get(i) - f.mean[i], sum[1][i]);
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
            float delta = b.at[0][i] - a.at[0][i];
            a.at[0][i] += delta * share;
            a.at[1][i] += b.at[1][i] + delta * delta * cross;
        }
        a.count = count;
    }
};

/* A channel's coefficients in backward's second sweep: d_x = scale * (dz + (tilt * (x - mean) + offset)). */
struct gradient_line {
    float tilt, offset;
};

template <enum activation act, class T, int width, enum side by>
__device__ inline void d_x_cell(const factors<width> &f, const struct gradient_line (&line)[width],
                                float slope, const backward_cells<T, width, by> &in,
                                float (&d_x)[width])
{
#pragma unroll
    for (int i = 0; i < width; i++) {
        float dz = d_z<act>(f, slope, in, i);
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

template <class T, int width, int most, class Rows>
__device__ static inline void load_rows(cell<T, width> (&to)[most], const T *from, const Rows &rows)
{
#pragma unroll
    for (int j = 0; j < most; j++)
        if (j < rows.count) to[j] = load<T, width>(from + rows[j]);
}

/* True if kernels for this can use a mask: its bytes are of eight channels, and suffice for relu. */
template <int width, enum activation act> constexpr bool can_mask = width == 8 && act == ACTIVATION_RELU;

}
