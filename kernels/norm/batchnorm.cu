/* batchnorm.cu: batchnorm in two sweeps over memory in each direction: the first computes sums, the second
 * uses them. Blocks leave their sums in the workspace, and a small kernel combines them in a fixed order. The
 * second sweep goes through memory in the opposite direction, because what the first one read last is still
 * in the cache.
 *
 * If the statistics are known (evaluation, recomputation), only the second sweep is needed. */
#include "kernels/norm/gram.cuh"
#include "kernels/pool/pool_maxima.cuh"
#include "kernels/support/dependent_launch.cuh"

using namespace batchnorm_parts;

static struct columns batchnorm_columns(const struct call *call, int width)
{
    return columns_open(call->x[0].dtype, call->x[0].shape, width, unroll);
}

/* The partial sums of a first sweep, one per block, and how many rows each block summed. */
struct partial_sums {
    const float *sums;
    int count, longer;         /* blocks; the first `longer` of them summed one tile more than the others */
    int last;                  /* the block that summed the last tile, which may be incomplete */
    int64_t tile, tiles;       /* rows of a tile; tiles of each of the other blocks */
    int64_t missing;           /* rows that the last tile lacks */
    __device__ double rows(int i) const
    {
        return (double)((tiles + (i < longer)) * tile - (i == last ? missing : 0));
    }
};

static struct partial_sums partial_sums_of(const struct columns *s, const float *sums, unsigned blocks)
{
    int64_t tile = (int64_t)s->lanes * unroll;
    return {sums, (int)blocks, (int)(s->tiles % blocks), (int)((s->tiles - 1) % blocks), tile,
            s->tiles / blocks, s->tiles * tile - s->rows};
}

template <class T, int width>
__global__ void __launch_bounds__(threads, 4)
    batchnorm_moments_kernel(const T *x, struct columns s, float *parts)
{
    __shared__ merge_room<tally<width>> room;
    columns_place p = columns_place_of<width>(s);
    tally<width> t = {};
    float shift[width];
    let_next_begin();
    for (int64_t tile = blockIdx.x; p.here && tile < s.tiles; tile += gridDim.x) {
        tile_rows rows = rows_of(s, p, tile);
        cell<T, width> in[unroll];
        load_rows(in, x, rows);
#pragma unroll
        for (int j = 0; j < unroll; j++)
            if (j < rows.count) measure_cell(t, shift, in[j]);
    }
    measure_end(t, shift);
    merge_lanes<merge_moments>(t, p.lane, p.column, s.span, s.lanes, room);
    leave_sums(s, p, blockIdx.x, t.at, parts);
}

/* Merging kernels process `merged` channels per block. First, half-warps share the partial sums: each adds
 * up every `mergers`-th, loading `unroll` at a time. Then one warp per channel combines their results; its
 * lane 0 has the sums. */
constexpr int merged = 16;
constexpr int mergers = 64;

struct pair {
    double first, second;
};

__device__ static inline pair add_up(pair value)
{
    __shared__ pair room[mergers / 2][merged + 1];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    value.first += __shfl_xor_sync(~0u, value.first, 16);
    value.second += __shfl_xor_sync(~0u, value.second, 16);
    if (lane < merged) room[warp][lane] = value;
    __syncthreads();
    if (warp >= merged) return {};
    value = room[lane][warp];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value.first += __shfl_xor_sync(~0u, value.first, distance);
        value.second += __shfl_xor_sync(~0u, value.second, distance);
    }
    return value;
}

/* Calls add(block, first, second) for those partial sums of its channel that this thread adds up. */
template <class Add>
__device__ static inline void for_partial_sums(const struct partial_sums &parts, int64_t channels, Add add)
{
    int64_t channel = (int64_t)blockIdx.x * merged + threadIdx.x % merged;
    if (channel >= channels) return;
    for (int i = threadIdx.x / merged; i < parts.count; i += mergers * unroll) {
        float first[unroll], second[unroll];
#pragma unroll
        for (int j = 0; j < unroll; j++) {
            const float *at = parts.sums + (i + j * mergers) * 2 * channels + channel;
            if (i + j * mergers < parts.count) first[j] = at[0], second[j] = at[channels];
        }
#pragma unroll
        for (int j = 0; j < unroll; j++)
            if (i + j * mergers < parts.count) add(i + j * mergers, first[j], second[j]);
    }
}

/* The channel whose result this thread writes, or -1. */
__device__ static inline int64_t finished_channel(int64_t channels)
{
    int64_t channel = (int64_t)blockIdx.x * merged + threadIdx.x / 32;
    return threadIdx.x % 32 == 0 && threadIdx.x / 32 < merged && channel < channels ? channel : -1;
}

/* Deviations are from the first block's mean, so that little precision is lost when squares are
 * subtracted. */
__global__ void __launch_bounds__(merged * mergers)
    batchnorm_merge_moments_kernel(struct partial_sums parts, int64_t channels, int64_t count, double eps,
                                   struct statistics out)
{
    int64_t channel = (int64_t)blockIdx.x * merged + threadIdx.x % merged;
    pair sums = {};
    let_next_begin();
    wait_for_last();
    float shift = channel < channels ? parts.sums[channel] : 0;
    for_partial_sums(parts, channels, [&](int part, float mean, float square) {
        double rows = parts.rows(part), deviation = (double)mean - shift;
        sums.first += rows * deviation;
        sums.second += square + rows * deviation * deviation;
    });
    sums = add_up(sums);
    channel = finished_channel(channels);
    if (channel < 0) return;
    double mean = sums.first / (double)count, square = fmax(sums.second - sums.first * mean, 0.0);
    out.mean[channel] = (float)(parts.sums[channel] + mean);
    if (out.invstd) out.invstd[channel] = (float)(1 / sqrt(square / (double)count + eps));
    out.variance[channel] = count > 1 ? (float)(square / (double)(count - 1)) : 0;
}

/* The largest square of mean / deviation for which a channel's variance is computed from sums: at 16
 * deviations, fp32 sums of 3e6 numbers leave the variance 4 digits; at 100, 2; at 1,000, none. */
constexpr double cancels_from = 16 * 16;

/* Statistics from the sums that a convolution computed, of its results before they were rounded to the
 * storage type. False if the subtraction leaves too few digits. */
__device__ static inline bool finish_sums(const float *sums, int64_t channels, int64_t k, int64_t count,
                                          double eps, struct statistics out)
{
    double mean = sums[k] / (double)count,
           variance = fmax(sums[channels + k] / (double)count - mean * mean, 0.0);
    out.mean[k] = (float)mean;
    if (out.invstd) out.invstd[k] = (float)(1 / sqrt(variance + eps));
    out.variance[k] = count > 1 ? (float)(variance * (double)count / (double)(count - 1)) : 0;
    return !isfinite(mean) || mean * mean <= cancels_from * (variance + eps);
}

/* Statistics of `width` channels from `first` on, by a block that reads all rows. */
template <class T, int width>
__device__ static inline void measure_channels(const T *x, int64_t channels, int64_t first, int64_t count,
                                               double eps, struct statistics out)
{
    __shared__ merge_room<tally<width>> room;
    tally<width> t = {};
    float shift[width];
#pragma unroll 8
    for (int64_t row = threadIdx.x; row < count; row += threads)
        measure_cell(t, shift, load<T, width>(x + row * channels + first));
    measure_end(t, shift);
    /* Merging would round means far from 0 each time. */
    cell<T, width> base = load<T, width>(x + first);
#pragma unroll
    for (int i = 0; i < width; i++) t.at[0][i] -= base.get(i);
    merge_lanes<merge_moments>(t, threadIdx.x, 0, 1, threads, room);
    if (threadIdx.x > 0) return;
#pragma unroll
    for (int i = 0; i < width; i++) {
        out.mean[first + i] = base.get(i) + t.at[0][i];
        if (out.invstd) out.invstd[first + i] = (float)(1 / sqrt(t.at[1][i] / (double)count + eps));
        out.variance[first + i] = count > 1 ? (float)(t.at[1][i] / (double)(count - 1)) : 0;
    }
}

/* A block per cell of channels. Where the sums of one of them are not precise enough, the block reads x
 * itself: that is slow, but no network that learns has many such channels. The next kernel reads x as soon as
 * it begins, so it may only begin when the kernel that wrote x has ended. */
template <class T, int width>
__global__ void __launch_bounds__(threads)
    batchnorm_use_sums_kernel(const float *sums, const T *x, int64_t channels, int64_t count, double eps,
                              struct statistics out)
{
    int64_t first = (int64_t)blockIdx.x * width;
    wait_for_last();
    let_next_begin();
    bool good = threadIdx.x >= width ||
                finish_sums(sums, channels, first + threadIdx.x, count, eps, out);
    if (__syncthreads_and(good)) return;
    measure_channels<T, width>(x, channels, first, count, eps, out);
}

/* The tensors of the sweep that computes y; residual and mask may be NULL. */
template <class T> struct normalised {
    const T *x, *residual;
    T *y;
    uint8_t *mask;
};

/* y of one cell, which it returns, and its byte of the mask, if there is one. */
template <enum activation act, bool has_residual, class T, int width>
__device__ static inline cell<T, width> apply_cell(const factors<width> &f, float slope,
                                                   const cell<T, width> &x, const cell<T, width> &residual,
                                                   const normalised<T> &to, int64_t at)
{
    cell<T, width> out = normalise_cell<act, has_residual>(f, slope, x, residual);
    *(cell<T, width> *)(to.y + at) = out;
    if constexpr (has_residual && can_mask<width, act>)
        if (to.mask) to.mask[at / 8] = mask_of(out);
    return out;
}

/* Inputs that it has, and whether each block leaves the sums of its part of y. */
enum normalises { PLAIN, WITH_RESIDUAL, WITH_SUMS };

template <class T, int width, enum activation act, enum normalises how>
__global__ void __launch_bounds__(threads, how == WITH_RESIDUAL ? 2 : 3)
    batchnorm_normalise_kernel(struct normalised<T> n, struct channel_values values, float slope,
                               struct columns s, float *parts)
{
    constexpr bool has_residual = how == WITH_RESIDUAL;
    columns_place p = columns_place_of<width>(s);
    int64_t tile = s.tiles - 1 - blockIdx.x;
    if (!p.here) return;
    tile_rows rows = rows_of(s, p, tile);
    cell<T, width> in[unroll], added[unroll];
    column_sums<1, width> sum = {};
    if (how == WITH_SUMS) let_next_begin();
    load_rows(in, n.x, rows);
    if (has_residual) load_rows(added, n.residual, rows);
    wait_for_last();
    factors<width> f = factors_at<width>(values, p.channel);
    for (;;) {
        with_rows<unroll>(rows, [&](const auto &rows) {
#pragma unroll
            for (int j = 0; j < unroll; j++)
                if (j < rows.count) {
                    cell<T, width> y = apply_cell<act, has_residual>(f, slope, in[j], added[j], n, rows[j]);
#pragma unroll
                    for (int i = 0; how == WITH_SUMS && i < width; i++) sum.at[0][i] += y.get(i);
                }
        });
        tile -= gridDim.x;
        if (tile < 0) break;
        rows = rows_of(s, p, tile);
        with_rows<unroll>(rows, [&](const auto &rows) {
            load_rows(in, n.x, rows);
            if (has_residual) load_rows(added, n.residual, rows);
        });
    }
    if constexpr (how == WITH_SUMS) {
        __shared__ merge_room<column_sums<1, width>> room;
        merge_lanes<merge_sums>(sum, p.lane, p.column, s.span, s.lanes, room);
        leave_sums(s, p, blockIdx.x, sum.at, parts);
    }
}

/* y of a cell of 2x2 pixels, which are the window of one output, if the image has all of them or windows may
 * lack some. */
template <class T> struct pooled_cell {
    int64_t pitch, step, at;       /* from row to row and pixel to pixel; where the first is */
    int64_t to;                    /* its output; -1: it has none */
    bool right, below;

    __device__ pooled_cell(const struct grid_of_windows &g, const columns &s, const columns_place &p,
                           int index)
        : pitch(g.plane.w.in * s.channels), step(s.channels)
    {
        struct window w = window_at(g, index);
        at = ((int64_t)w.n * g.plane.h.in + 2 * w.row) * pitch + 2 * w.column * step + p.channel;
        right = 2 * w.column + 1 < g.plane.w.in, below = 2 * w.row + 1 < g.plane.h.in;
        int64_t output = ((int64_t)w.n * g.plane.h.out + w.row) * g.plane.w.out + w.column;
        to = w.row < g.plane.h.out && w.column < g.plane.w.out ? output * step + p.channel : -1;
    }
    __device__ bool has(int k) const { return (k % 2 == 0 || right) && (k / 2 == 0 || below); }
    __device__ int64_t operator[](int k) const { return at + k / 2 * pitch + k % 2 * step; }
    __device__ void load(cell<T, 8> (&x)[4], const T *from) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (has(k)) x[k] = batchnorm_parts::load<T, 8>(from + (*this)[k]);
    }
    template <class Best> __device__ Best best(const cell<T, 8> (&y)[4]) const
    {
        Best best;
        best.start(0);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (has(k)) best.take(*(const typename Best::input *)&y[k], k);
        return best;
    }
    /* A NaN's number has slow code. */
    __device__ void pool(const cell<T, 8> (&y)[4], T *pooled, uint8_t *number) const
    {
        if (to < 0) return;
        auto quick = best<paired_maxima<T>>(y);
        if (quick.sure()) quick.store(pooled + to, number + to);
        else best<maxima<T, uint8_t, 8>>(y).store(pooled + to, number + to);
    }
};

/* y and its pooling. A tile has a cell of each lane. */
template <class T, enum activation act>
__global__ void __launch_bounds__(threads, 3)
    batchnorm_pool_kernel(const T *x, T *y, T *pooled, uint8_t *number, struct channel_values values,
                          float slope, struct columns s, const __grid_constant__ struct grid_of_windows g)
{
    columns_place p = columns_place_of<8>(s);
    if (!p.here) return;
    wait_for_last();
    factors<8> f = factors_at<8>(values, p.channel);
    for (int64_t tile = s.tiles - 1 - blockIdx.x; tile >= 0; tile -= gridDim.x) {
        int64_t index = tile * s.lanes + p.lane;
        if (index >= s.rows) continue;
        pooled_cell<T> at(g, s, p, (int)index);
        cell<T, 8> to[4];
        at.load(to, x);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (!at.has(k)) continue;
            to[k] = normalise_cell<act, false>(f, slope, to[k], to[k]);
            *(cell<T, 8> *)(y + at[k]) = to[k];
        }
        at.pool(to, pooled, number);
    }
}

/* Windows of 2x2 of an image, which is walked through by cells of so many pixels in height and width. */
static struct grid_of_windows halves_of(const struct call *call, const struct tensor *pooled, int64_t cell)
{
    struct shape x = call->x[0].shape;
    struct pool_plane plane = pool_halves(x, pooled->shape);
    return windows_of(&plane, div_up(x.h, cell), div_up(x.w, cell));
}

/* The tensors that backward's kernels read and write. Of y and mask only the one that enum side selects is
 * read; d_y_more, d_x_more, d_residual, d_x, y_recomputed and the parameters' gradients may be NULL. Rows of
 * d_x_more have more_pitch numbers. per_pixel: 2^64 divided by an image's pixels, rounded up, where d_y_more
 * has one row for each image; else 0. number: where d_y_more is the gradient of y's pooling, each window's;
 * `pixels` then are those of y. */
template <class T> struct gradients {
    const T *x, *y, *d_y, *d_y_more, *d_x_more;
    uint64_t per_pixel;
    int64_t more_pitch;
    const uint8_t *number;
    struct grid_of_windows pixels;
    const uint8_t *mask;
    T *d_residual, *d_x, *y_recomputed;
    float *d_weight, *d_bias;
};

template <class T> static inline struct gradients<T> gradients_of(const struct call *call)
{
    const struct batchnorm *s = (const struct batchnorm *)call->settings;
    const struct tensor *joining = call_operand(call, OPERAND_D_X_ADDEND);
    const struct tensor *more = call_operand(call, OPERAND_D_Y_ADDEND);
    uint64_t pixels = (uint64_t)(call->d_y.shape.h * call->d_y.shape.w);
    return {
        .x = (const T *)call->x[0].data,
        .y = (const T *)call->y.data,
        .d_y = (const T *)call->d_y.data,
        .d_y_more = more ? (const T *)more->data : NULL,
        .d_x_more = joining ? (const T *)joining->data : NULL,
        .per_pixel = batchnorm_adds_flat(call) ? UINT64_MAX / pixels + 1 : 0,
        .more_pitch = joining ? joining->shape.c : 0,
        .number = (const uint8_t *)call_data(call, OPERAND_NUMBER),
        .pixels = halves_of(call, more ? more : &call->d_y, 1),
        .mask = (const uint8_t *)call_data(call, OPERAND_MASK),
        .d_residual = s->residual ? (T *)call->d_x[1].data : NULL,
        .d_x = (T *)call->d_x[0].data,
        .y_recomputed = (T *)call_data(call, OPERAND_Y_RECOMPUTED),
        .d_weight = s->affine ? (float *)call->d_params[0].data : NULL,
        .d_bias = s->affine ? (float *)call->d_params[1].data : NULL,
    };
}

/* A byte of the mask for eight channels. */
template <class T, int width, enum side by, int most, class Rows>
__device__ static inline void load_sides(side_cell<T, width, by> (&to)[most], const gradients<T> &g,
                                         const Rows &rows)
{
    if constexpr (by == SIDE_MASK) {
#pragma unroll
        for (int j = 0; j < most; j++)
            if (j < rows.count) to[j].mask = g.mask[rows[j] / 8];
    } else if constexpr (by == SIDE_Y) {
#pragma unroll
        for (int j = 0; j < most; j++)
            if (j < rows.count) to[j].y = load<T, width>(g.y + rows[j]);
    }
}

/* A summand of d_y: as large, or a pixel of each image; or the gradient of y's pooling. */
enum addend { NO_ADDEND, ADDEND, POOLED_ADDEND };

/* Ones where halves of words are the same. As fp16 numbers they are compared at once; none is a NaN. */
__device__ static inline uint32_t equal_halves(uint32_t a, uint32_t b)
{
    return __heq2_mask(*(__half2 *)&a, *(__half2 *)&b);
}

/* Cells of d_y_more, of which a pixel has what its window's maxima took from it. */
template <class T, int most, class Rows>
__device__ static inline void load_pooled(cell<T, 8> (&to)[most], const gradients<T> &g, const columns &s,
                                          const columns_place &p, const Rows &rows)
{
    const struct plane &plane = g.pixels.plane;
    uint32_t mine[most];
    uint2 number[most];
#pragma unroll
    for (int j = 0; j < most; j++) {
        if (j >= rows.count) continue;
        struct window at = window_at(g.pixels, (int)rows.first + j * rows.lanes);
        int row = at.row >> 1, column = at.column >> 1;
        int window = (at.n * plane.h.out + row) * plane.w.out + column;
        mine[j] = (uint32_t)((at.row & 1) * 2 + (at.column & 1)) * 0x00010001u;
        number[j] = make_uint2(~0u, ~0u);
        to[j] = {};
        if (row >= plane.h.out || column >= plane.w.out) continue;
        int64_t from = (int64_t)window * (int)s.channels + p.channel;
        number[j] = *(const uint2 *)(g.number + from);
        to[j] = load<T, 8>(g.d_y_more + from);
    }
#pragma unroll
    for (int j = 0; j < most; j++) {
        if (j >= rows.count) continue;
        to[j].packed.x &= equal_halves(__byte_perm(number[j].x, 0, 0x4140), mine[j]);
        to[j].packed.y &= equal_halves(__byte_perm(number[j].x, 0, 0x4342), mine[j]);
        to[j].packed.z &= equal_halves(__byte_perm(number[j].y, 0, 0x4140), mine[j]);
        to[j].packed.w &= equal_halves(__byte_perm(number[j].y, 0, 0x4342), mine[j]);
    }
}

/* Cells of d_y_more. */
template <enum addend addend, class T, int width, int most, class Rows>
__device__ static inline void load_addend(cell<T, width> (&to)[most], const gradients<T> &g,
                                          const columns &s, const columns_place &p, const Rows &rows)
{
    if constexpr (addend == POOLED_ADDEND) {
        load_pooled(to, g, s, p, rows);
    } else if constexpr (addend == ADDEND) {
        if (!g.per_pixel) return load_rows(to, g.d_y_more, rows);
#pragma unroll
        for (int j = 0; j < most; j++) {
            int64_t image = (int64_t)__umul64hi((uint64_t)(rows.first + j * rows.lanes), g.per_pixel);
            if (j < rows.count) to[j] = load<T, width>(g.d_y_more + image * s.channels + p.channel);
        }
    }
}

/* The sums of dz and of dz y, if they are given: else NULL. */
struct known_products {
    const float *sums;
    __device__ bool have(const struct channel_values &v, int64_t channels, int64_t k) const
    {
        if (!sums || k >= channels) return false;
        float weight = v.weight ? v.weight[k] : 1, bias = v.bias ? v.bias[k] : 0;
        return weight != 0 && fabsf(bias) <= BATCHNORM_BIAS_MAX * fabsf(weight) && !isnan(sums[channels + k]);
    }
    /* The sums of dz and of dz (x - mean). */
    __device__ pair of(const struct channel_values &v, int64_t channels, int64_t k) const
    {
        double weight = v.weight ? v.weight[k] : 1, bias = v.bias ? v.bias[k] : 0;
        return {sums[k], (sums[channels + k] - bias * sums[k]) / (weight * v.spread[k])};
    }
};

template <class T, int width, enum activation act, enum side by, enum addend addend>
__global__ void __launch_bounds__(threads, 2)
    batchnorm_backward_sums_kernel(struct gradients<T> g, struct channel_values values, float slope,
                                   struct columns s, struct known_products known, float *parts)
{
    constexpr bool asks = act != ACTIVATION_NONE, two = addend != NO_ADDEND;
    __shared__ merge_room<column_sums<2, width>> room;
    columns_place p = columns_place_of<width>(s);
    column_sums<2, width> sum = {};
    factors<width> f;
    let_next_begin();
    if (known.sums) {
        bool all = true;
        for (int i = 0; p.here && i < width; i++) all = known.have(values, s.channels, p.channel + i) && all;
        p.here = p.here && !all;
        if (!__syncthreads_or(p.here)) return;
    }
    if (p.here) f = factors_at<width>(values, p.channel);
    for (int64_t tile = blockIdx.x; p.here && tile < s.tiles; tile += gridDim.x)
        with_rows<unroll>(rows_of(s, p, tile), [&](const auto &rows) {
            cell<T, width> x[unroll], d_y[unroll], more[unroll];
            side_cell<T, width, by> sides[unroll];
            load_rows(x, g.x, rows);
            load_rows(d_y, g.d_y, rows);
            load_addend<addend>(more, g, s, p, rows);
            if (asks) load_sides(sides, g, rows);
#pragma unroll
            for (int j = 0; j < unroll; j++)
                if (j < rows.count) {
                    float dz[width];
                    if (two) d_y[j] = sum_of(d_y[j], more[j]);
                    backward_cells<T, width, by> in = {x[j], d_y[j], sides[j]};
                    add_products<act>(sum.at, f, slope, in, dz);
                    if (addend != POOLED_ADDEND && g.d_residual) store<T, width>(g.d_residual + rows[j], dz);
                }
        });
    merge_lanes<merge_sums>(sum, p.lane, p.column, s.span, s.lanes, room);
    leave_sums(s, p, blockIdx.x, sum.at, parts);
}

/* Results of backward's first sweep, by channel; all but the lines may be NULL. */
struct gradient_sums {
    float *d_weight, *d_bias, *sums;
    struct gradient_line *lines;
};

__global__ void __launch_bounds__(merged * mergers)
    batchnorm_merge_gradients_kernel(struct partial_sums parts, struct known_products known,
                                     int64_t channels, int64_t count, struct channel_values values,
                                     struct gradient_sums out)
{
    pair sums = {};
    let_next_begin();
    int64_t channel = finished_channel(channels);
    int64_t summed = blockIdx.x * (int64_t)merged + threadIdx.x % merged;
    double factor = channel < 0 ? 0 : values.spread[channel];
    wait_for_last();
    if (!known.have(values, channels, summed))
        for_partial_sums(parts, channels,
                         [&](int, float sum, float product) { sums.first += sum, sums.second += product; });
    sums = add_up(sums);
    if (channel < 0) return;
    if (known.have(values, channels, channel)) sums = known.of(values, channels, channel);
    if (out.d_weight) out.d_weight[channel] = (float)(sums.second * factor);
    if (out.d_bias) out.d_bias[channel] = (float)sums.first;
    if (out.sums) out.sums[channel] = (float)sums.first;
    if (out.sums) out.sums[channels + channel] = (float)(sums.second * factor);
    out.lines[channel] = {(float)(-factor * factor * sums.second / (double)count),
                          (float)(-sums.first / (double)count)};
}

/* The lines from the sums of all ranks, which have the same number of rows each; `count` is of all. */
__global__ void __launch_bounds__(threads)
    batchnorm_lines_kernel(const float *sums, int64_t channels, double count, const float *invstd,
                           struct gradient_line *lines)
{
    int64_t k = (int64_t)blockIdx.x * threads + threadIdx.x;
    let_next_begin();
    if (k < channels)
        lines[k] = {(float)(-invstd[k] * (double)sums[channels + k] / count), (float)(-sums[k] / count)};
}

/* Cells of d_x_more, if `adds` says that it is present. */
template <bool adds, class T, int width, class Rows>
__device__ static inline void load_more(cell<T, width> (&to)[unroll], const gradients<T> &g,
                                        const columns_place &p, const Rows &rows)
{
#pragma unroll
    for (int j = 0; j < unroll; j++)
        if (adds && j < rows.count)
            to[j] = load<T, width>(g.d_x_more + (rows.first + j * rows.lanes) * g.more_pitch + p.channel);
}

/* d_x is rounded to storage before d_x_more is added, as if it had been stored in between. */
template <class T, int width>
__device__ static inline void add_more(float (&d_x)[width], const cell<T, width> &more)
{
#pragma unroll
    for (int i = 0; i < width; i++) d_x[i] = to_float(from_float<T>(d_x[i])) + more.get(i);
}

template <class T, int width, enum activation act, enum side by, enum addend addend, bool adds>
__global__ void __launch_bounds__(threads, 2)
    batchnorm_backward_kernel(struct gradients<T> g, struct channel_values values, float slope,
                              struct columns s, const struct gradient_line *lines)
{
    constexpr bool asks = act != ACTIVATION_NONE, two = addend != NO_ADDEND;
    columns_place p = columns_place_of<width>(s);
    int64_t tile = s.tiles - 1 - blockIdx.x;
    if (!p.here) return;
    tile_rows rows = rows_of(s, p, tile);
    cell<T, width> x[unroll], d_y[unroll], more[unroll], added[unroll];
    side_cell<T, width, by> sides[unroll];
    auto load_gradients = [&](const auto &rows) {
        load_rows(d_y, g.d_y, rows);
        load_addend<addend>(more, g, s, p, rows);
        if (asks) load_sides(sides, g, rows);
        load_more<adds>(added, g, p, rows);
    };
    load_rows(x, g.x, rows);
    factors<width> f = factors_at<width>(values, p.channel);
    wait_for_last();
    load_gradients(rows);
    struct gradient_line line[width];
#pragma unroll
    for (int i = 0; i < width; i++) line[i] = lines[p.channel + i];
    for (;;) {
        with_rows<unroll>(rows, [&](const auto &rows) {
#pragma unroll
            for (int j = 0; j < unroll; j++)
                if (j < rows.count) {
                    float d_x[width];
                    if (two) d_y[j] = sum_of(d_y[j], more[j]);
                    backward_cells<T, width, by> in = {x[j], d_y[j], sides[j]};
                    d_x_cell<act>(f, line, slope, in, d_x);
                    if (adds) add_more(d_x, added[j]);
                    store<T, width>(g.d_x + rows[j], d_x);
                    if (by == SIDE_X && g.y_recomputed)
                        apply_cell<act, false>(f, slope, x[j], x[j], normalised<T>{.y = g.y_recomputed},
                                               rows[j]);
                }
        });
        tile -= gridDim.x;
        if (tile < 0) break;
        rows = rows_of(s, p, tile);
        with_rows<unroll>(rows, [&](const auto &rows) {
            load_rows(x, g.x, rows);
            load_gradients(rows);
        });
    }
}

/* Calls work(T(), width, act) with the template arguments of the call's kernels. */
template <class Work> static enum status with_kind(const struct call *call, Work work)
{
    const struct batchnorm *s = (const struct batchnorm *)call->settings;
    return with_chunk(call->x[0].dtype, call->x[0].shape.c, [&](auto type, auto width) {
        return with_activation((enum activation)s->activation,
                               [&](auto act) { return work(type, width, act); });
    });
}

/* True if it writes Y_SUMS with products, by a kernel of its own. */
static bool batchnorm_makes_gram(const struct call *call)
{
    const struct tensor *sums = call_operand(call, OPERAND_Y_SUMS);
    return sums && sums->shape.dim[0] > 1 && gram_fits(&call->x[0], call->device);
}

static enum status batchnorm_pool(const struct call *call, bool behind)
{
    const struct batchnorm *set = (const struct batchnorm *)call->settings;
    struct grid_of_windows windows = halves_of(call, call_operand(call, OPERAND_POOLED), 2);
    struct tensor cells = call->x[0];
    cells.shape.h = windows.rows;
    cells.shape.w = windows.columns;
    return with_kind(call, [&](auto type, auto width, auto act) {
        using T = decltype(type);
        if constexpr (width.number == 8) {
            struct columns s = columns_open(cells.dtype, cells.shape, width.number, 1);
            struct launch how = {columns_grid(call, s, 3), threads, 0, behind};
            return launch_as(call, batchnorm_pool_kernel<T, (enum activation)decltype(act)::number>, how,
                             (const T *)call->x[0].data, (T *)call->y.data,
                             (T *)call_data(call, OPERAND_POOLED), (uint8_t *)call_data(call, OPERAND_NUMBER),
                             values_of(call), (float)set->slope, s, windows);
        }
        return fail(FAILED, "this is not pooled as it is normalised");
    });
}

/* y from known statistics. `behind`: directly after batchnorm_merge_moments_kernel. */
static enum status batchnorm_normalise(const struct call *call, bool behind)
{
    const struct batchnorm *set = (const struct batchnorm *)call->settings;
    float *sums = (float *)call_data(call, OPERAND_Y_SUMS);
    if (sums && batchnorm_makes_gram(call)) return gram_run(call, behind);
    if (call_operand(call, OPERAND_POOLED)) return batchnorm_pool(call, behind);
    return with_kind(call, [&](auto type, auto width, auto act) {
        using T = decltype(type);
        constexpr enum activation kind = (enum activation)decltype(act)::number;
        struct columns s = batchnorm_columns(call, width.number);
        struct normalised<T> n = {
            .x = (const T *)call->x[0].data,
            .residual = set->residual ? (const T *)call->x[1].data : NULL,
            .y = (T *)call->y.data,
            .mask = (uint8_t *)call_data(call, OPERAND_MASK),
        };
        constexpr enum normalises added = activation_reads_x(kind) ? PLAIN : WITH_RESIDUAL;
        auto kernel = n.residual ? batchnorm_normalise_kernel<T, width.number, kind, added>
                                 : batchnorm_normalise_kernel<T, width.number, kind, PLAIN>;
        float *parts = (float *)call->workspace;
        if constexpr (can_mask<width.number, kind>)
            if (sums) kernel = batchnorm_normalise_kernel<T, width.number, kind, WITH_SUMS>;
        dim3 grid = columns_grid(call, s, n.residual ? 2 : 3);
        struct launch how = {grid, threads, 0, behind};
        TRY(launch_as(call, kernel, how, n, values_of(call), (float)set->slope, s, parts));
        return sums ? columns_finish(call, {parts, (int)grid.x, 1, (int)s.channels}, sums) : OK;
    });
}

static unsigned merging_blocks(const struct columns *s)
{
    return (unsigned)div_up(s->channels, (int64_t)merged);
}

static enum status batchnorm_measure(const struct call *call)
{
    const struct batchnorm *set = (const struct batchnorm *)call->settings;
    float *parts = (float *)call->workspace;
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int width = pack<T>::count;
        bool packs = call->x[0].shape.c % width == 0;
        struct columns s = batchnorm_columns(call, packs ? width : 1);
        dim3 grid = columns_grid(call, s, 4);
        auto kernel = packs ? batchnorm_moments_kernel<T, width> : batchnorm_moments_kernel<T, 1>;
        kernel<<<grid, threads, 0, stream_of(call)>>>((const T *)call->x[0].data, s, parts);
        TRY(launched(call));
        return launch_behind(call, batchnorm_merge_moments_kernel, merging_blocks(&s), merged * mergers,
                             partial_sums_of(&s, parts, grid.x), s.channels, s.rows, set->eps,
                             statistics_of(call));
    });
}

static enum status batchnorm_take_sums(const struct call *call)
{
    const struct batchnorm *set = (const struct batchnorm *)call->settings;
    int64_t channels = call->x[0].shape.c, count = shape_count(call->x[0].shape) / channels;
    const float *sums = (const float *)call_data(call, OPERAND_X_MOMENTS);
    return with_type(call->x[0].dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int width = pack<T>::count;
        bool packs = channels % width == 0;
        auto kernel = packs ? batchnorm_use_sums_kernel<T, width> : batchnorm_use_sums_kernel<T, 1>;
        return launch_behind(call, kernel, (unsigned)(packs ? channels / width : channels), threads, sums,
                             (const T *)call->x[0].data, channels, count, set->eps, statistics_of(call));
    });
}

static bool is_empty(const struct call *call) { return shape_count(call->x[0].shape) == 0; }

enum status batchnorm_statistics_cuda(const struct call *call)
{
    return call_operand(call, OPERAND_X_MOMENTS) ? batchnorm_take_sums(call) : batchnorm_measure(call);
}

static enum status batchnorm_forward(const struct call *call)
{
    if (is_empty(call)) return OK;
    if (!call->training || call->ranks > 0) return batchnorm_normalise(call, false);
    TRY(batchnorm_statistics_cuda(call));
    return batchnorm_normalise(call, true);
}

static enum status batchnorm_recompute(const struct call *call)
{
    if (is_empty(call)) return OK;
    return batchnorm_normalise(call, false);
}

/* The workspace: lines of all channels, then parts. */
template <class T, int width, enum activation act, enum side by, enum addend addend>
static enum status batchnorm_backward_in_two(const struct call *call, bool second_has_dz)
{
    const struct batchnorm *set = (const struct batchnorm *)call->settings;
    struct gradient_line *lines = (struct gradient_line *)call->workspace;
    float *parts = (float *)(lines + call->x[0].shape.c);
    struct columns s = batchnorm_columns(call, width);
    struct gradients<T> g = gradients_of<T>(call);
    struct channel_values values = values_of(call);
    struct known_products known = {(const float *)call_data(call, OPERAND_Y_PRODUCTS)};
    float *sums = (float *)call_data(call, OPERAND_RANK_SUMS);
    dim3 grid = columns_grid(call, s, 2);
    if (call->ranks > 0) {
        batchnorm_lines_kernel<<<(unsigned)div_up(s.channels, (int64_t)threads), threads, 0,
                                 stream_of(call)>>>(sums, s.channels, (double)call->ranks * (double)s.rows,
                                                    values.spread, lines);
        TRY(launched(call));
    } else {
        batchnorm_backward_sums_kernel<T, width, act, by, addend>
            <<<grid, threads, 0, stream_of(call)>>>(g, values, (float)set->slope, s, known, parts);
        TRY(launched(call));
        struct gradient_sums out = {g.d_weight, g.d_bias, sums, lines};
        TRY(launch_behind(call, batchnorm_merge_gradients_kernel, merging_blocks(&s), merged * mergers,
                          partial_sums_of(&s, parts, grid.x), known, s.channels, s.rows, values, out));
    }
    if (!g.d_x) return OK;
    auto second = batchnorm_backward_kernel<T, width, act, by, addend, false>;
    if constexpr (by == SIDE_X && addend == NO_ADDEND)
        if (g.d_x_more) second = batchnorm_backward_kernel<T, width, act, by, addend, true>;
    if (second_has_dz) {
        second = batchnorm_backward_kernel<T, width, ACTIVATION_NONE, by, NO_ADDEND, false>;
        g.d_y = g.d_residual;
    }
    return launch_behind(call, second, grid, threads, g, values, (float)set->slope, s, lines);
}

static enum status batchnorm_pass_gradients(const struct call *call)
{
    const struct batchnorm *set = (const struct batchnorm *)call->settings;
    /* Where the first sweep has written dz, the second need not read y again; but leaky_relu's dz was rounded
     * when it was written. */
    bool adds = call_operand(call, OPERAND_D_Y_ADDEND) != NULL;
    bool masked = call_operand(call, OPERAND_MASK) != NULL;
    bool has_dz = set->residual && call->d_x[1].data && set->activation != ACTIVATION_LEAKY_RELU;
    return with_kind(call, [&](auto type, auto width, auto act) {
        using T = decltype(type);
        constexpr enum activation kind = (enum activation)decltype(act)::number;
        constexpr enum side by = activation_reads_x(kind) ? SIDE_X : SIDE_Y;
        if constexpr (can_mask<width.number, kind>)
            if (masked)
                return adds
                           ? batchnorm_backward_in_two<T, width.number, kind, SIDE_MASK, ADDEND>(call, has_dz)
                           : batchnorm_backward_in_two<T, width.number, kind, SIDE_MASK, NO_ADDEND>(call,
                                                                                                   has_dz);
        if constexpr (width.number == 8)
            if (call_operand(call, OPERAND_NUMBER))
                return batchnorm_backward_in_two<T, 8, kind, SIDE_X, POOLED_ADDEND>(call, false);
        if (adds)
            return set->residual ? batchnorm_backward_in_two<T, width.number, kind, by, ADDEND>(call, has_dz)
                                 : batchnorm_backward_in_two<T, width.number, kind, SIDE_X, ADDEND>(call,
                                                                                                     false);
        return set->residual ? batchnorm_backward_in_two<T, width.number, kind, by, NO_ADDEND>(call, has_dz)
                             : batchnorm_backward_in_two<T, width.number, kind, SIDE_X, NO_ADDEND>(call,
                                                                                                   false);
    });
}

/* y is recomputed by the second sweep, so that it is in the cache for its next reader; without a second
 * sweep, by a sweep of its own. */
static enum status batchnorm_backward(const struct call *call)
{
    if (is_empty(call)) return OK;
    TRY(batchnorm_pass_gradients(call));
    if (!call_operand(call, OPERAND_Y_RECOMPUTED) || call->d_x[0].data) return OK;
    struct call recompute = call_that_recomputes(call);
    return batchnorm_normalise(&recompute, false);
}

/* A layer's running statistics, and the batch's, by which they are updated. */
struct running_layer {
    const float *batch_mean, *batch_variance;
    float *mean, *variance;
    int64_t *batches;
    double momentum;
    int channels;
};

/* Layers of a launch: as many as fit into a kernel's parameters, which are limited to 4 KiB. */
struct running_layers {
    struct running_layer at[64];
};

/* blockIdx.x is the layer. If the step was skipped, nothing changes. */
__global__ void __launch_bounds__(threads)
    batchnorm_running_kernel(const __grid_constant__ struct running_layers layers, const int32_t *skipped)
{
    const struct running_layer &layer = layers.at[blockIdx.x];
    int k = blockIdx.y * threads + threadIdx.x;
    if (skipped && *skipped) return;
    if (k == 0) ++*layer.batches;
    if (k >= layer.channels) return;
    double keep = 1 - layer.momentum, take = layer.momentum;
    layer.mean[k] = (float)(keep * layer.mean[k] + take * layer.batch_mean[k]);
    layer.variance[k] = (float)(keep * layer.variance[k] + take * layer.batch_variance[k]);
}

static struct running_layer running_layer_of(const struct call *call)
{
    const struct batchnorm *s = (const struct batchnorm *)call->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    return {(const float *)call->saved[SAVED_MEAN].data,
            (const float *)call->saved[SAVED_VARIANCE].data,
            (float *)call->params[at.mean].data,
            (float *)call->params[at.variance].data,
            (int64_t *)call->params[at.batches].data,
            s->momentum,
            (int)shape_count(call->params[at.mean].shape)};
}

enum status batchnorm_update_cuda(const struct call *call)
{
    constexpr int most = sizeof(struct running_layers) / sizeof(struct running_layer);
    for (const struct call *next = call; next;) {
        struct running_layers layers;
        int count = 0, channels = 1;
        for (; next && count < most; next = next->also) {
            layers.at[count] = running_layer_of(next);
            if (layers.at[count].channels > channels) channels = layers.at[count].channels;
            count++;
        }
        dim3 grid(count, div_up(channels, threads));
        batchnorm_running_kernel<<<grid, threads, 0, stream_of(call)>>>(layers, call->skipped);
        TRY(launched(call));
    }
    return OK;
}

static size_t batchnorm_workspace(const struct call *call)
{
    if (is_empty(call) || (call->phase == PHASE_FORWARD && !call->training)) return 0;
    if (call->phase != PHASE_FORWARD && call->phase != PHASE_BACKWARD) return 0;
    int64_t channels = call->x[0].shape.c;
    int width = (int)(16 / dtype_bytes(call->x[0].dtype));
    struct columns s = batchnorm_columns(call, channels % width ? 1 : width);
    size_t bytes = (size_t)channels * sizeof(struct gradient_line) + columns_bytes(s, 2);
    size_t gram = batchnorm_makes_gram(call) ? gram_workspace(&call->x[0], call->device) : 0;
    return gram > bytes ? gram : bytes;
}

static size_t batch_moments_workspace(const struct call *call)
{
    struct call measured = *call;
    measured.training = true;
    return batchnorm_workspace(&measured);
}

static enum status batch_moments_forward(const struct call *call)
{
    struct batchnorm settings = {};
    struct tensor saved[SAVED_COUNT];
    struct call measured = batchnorm_moments_call(call, &settings, saved);
    if (is_empty(call)) return OK;
    return batchnorm_statistics_cuda(&measured);
}

const struct op_code batch_moments_cuda = {
    .supports = batch_moments_cuda_supports,
    .workspace = batch_moments_workspace,
    .forward = batch_moments_forward,
};

const struct op_code batchnorm_cuda = {
    .supports = batchnorm_cuda_supports,
    .workspace = batchnorm_workspace,
    .forward = batchnorm_forward,
    .backward = batchnorm_backward,
    .update = batchnorm_update_cuda,
    .recompute = batchnorm_recompute,
};
