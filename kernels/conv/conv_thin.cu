/* conv_thin.cu: "thin": 1x1 convolutions to few filters, in which networks end that label pixels, in 16
 * bits: y = x w', d_x = d_y w and d_w = d_y' x, the gradients also by one kernel, which reads d_y once and
 * leaves what a batch norm in front wants to know of x and d_x. The rows of y are of any length, such as 21
 * numbers, which libraries copy to a wider tensor, or read badly.
 *
 * A block takes tiles of 64 pixels in turn, and loads the next one while it multiplies; each of its warps
 * multiplies 16 of the pixels on tensor cores. What all blocks have of d_w is added up in a fixed order.
 *
 * Kernels that normalise read the input of a batch norm with relu (thin_norm), whose result they multiply.
 * Both gradients then leave sums, by which the norm's d_x is computed in the place of the convolution's. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/linear/matrices.cuh"

#define WARPS 4
#define THREADS (32 * WARPS)
#define PIXELS (16 * WARPS)              /* of a tile */
#define FILTERS 32                       /* at most */

using namespace matrices;

/* Tiles of x and d_y, two of each. The sums of all warps take their place. */
template <class T, int columns> struct thin_memory {
    union {
        struct {
            uint4 x[2][PIXELS * pitch<columns>()];
            uint4 y[2][PIXELS * FILTERS / 8];
        };
        float sums[FILTERS][columns];
    };
};

template <class T> struct thin_operands {
    const T *x, *d_y;                    /* [pixels, c], [pixels, k] */
    float *shares;                       /* [blocks, k, c] */
    int64_t pixels;
    int c, k;
};

template <class T, int columns>
__device__ static inline void load_tile(thin_memory<T, columns> &memory, int stage,
                                        const thin_operands<T> &p, int64_t first)
{
    constexpr int units = columns / 8;
    for (int i = threadIdx.x; i < PIXELS * units; i += THREADS) {
        bool here = first + i / units < p.pixels;
        const T *from = p.x + (here ? (first + i / units) * p.c + blockIdx.y * columns + i % units * 8 : 0);
        copy_unit(&memory.x[stage][unit_of<columns>(i / units, i % units)], from, here);
    }
    for (int i = threadIdx.x; i < PIXELS * p.k / 8; i += THREADS) {
        int64_t at = first * p.k + i * 8;
        bool here = at < p.pixels * p.k;
        copy_unit(&memory.y[stage][i], p.d_y + (here ? at : 0), here);
    }
}

/* The numbers of a filter for two pixels, which lie k apart. Those of filters beyond k are any. */
template <class T> __device__ static inline uint32_t two_pixels(const T *at, int k)
{
    uint16_t low, high;
    memcpy(&low, at, 2);
    memcpy(&high, at + k, 2);
    return low | (uint32_t)high << 16;
}

template <class T> __device__ static inline uint32_t two_rounded(float low, float high)
{
    T both[2] = {from_float<T>(low), from_float<T>(high)};
    uint32_t bits;
    memcpy(&bits, both, sizeof bits);
    return bits;
}

template <class T> __device__ static inline float number_of(uint32_t two, int i)
{
    T both[2];
    memcpy(both, &two, sizeof two);
    return to_float(both[i]);
}

/* After the norm and its relu, which keeps NaN. */
__device__ static inline float normalised(float x, const float4 &channel)
{
    float z = fmaf(x - channel.x, channel.y, channel.z);
    return z <= 0 ? 0 : z;
}

/* Numbers of two channels, or of one. */
template <class T>
__device__ static inline uint32_t normalise_two(uint32_t two, const float4 &low, const float4 &high)
{
    return two_rounded<T>(normalised(number_of<T>(two, 0), low), normalised(number_of<T>(two, 1), high));
}

template <class T, int columns>
__device__ static inline void multiply_tile(const thin_memory<T, columns> &memory, int stage, int k,
                                            float (&d)[FILTERS / 16][columns / 8][4],
                                            const float4 *channels = NULL)
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    const T *y = (const T *)memory.y[stage] + (row + lane % 4 * 2) * k + lane / 4;
    uint32_t a[FILTERS / 16][4];
#pragma unroll
    for (int half = 0; half < FILTERS / 16; half++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[half][i] = two_pixels(y + i / 2 * 8 * k + half * 16 + i % 2 * 8, k);
#pragma unroll
    for (int pair = 0; pair < columns / 16; pair++) {
        uint32_t b[4];
        load_turned(b, address_of(&memory.x[stage][unit_of<columns>(row + lane % 16, pair * 2 + lane / 16)]));
#pragma unroll
        for (int i = 0; channels && i < 4; i++) {
            float4 channel = channels[pair * 16 + i / 2 * 8 + lane / 4];
            b[i] = normalise_two<T>(b[i], channel, channel);
        }
#pragma unroll
        for (int half = 0; half < FILTERS / 16; half++) {
            multiply(d[half][2 * pair], a[half], b[0], b[1], T());
            multiply(d[half][2 * pair + 1], a[half], b[2], b[3], T());
        }
    }
}

/* Adds up what the warps have, one after another, and leaves it as the block's share. */
template <class T, int columns>
__device__ static inline void leave_share(thin_memory<T, columns> &memory, const thin_operands<T> &p,
                                          const float (&d)[FILTERS / 16][columns / 8][4])
{
    int lane = threadIdx.x % 32;
    for (int warp = 0; warp < WARPS; warp++) {
        __syncthreads();
        if (threadIdx.x / 32 != warp) continue;
#pragma unroll
        for (int i = 0; i < FILTERS / 16 * columns / 8 * 4; i++) {
            int half = i / (columns / 2), group = i / 4 % (columns / 8), part = i % 4;
            int row = half * 16 + part / 2 * 8 + lane / 4, column = group * 8 + lane % 4 * 2 + part % 2;
            memory.sums[row][column] = d[half][group][part] + (warp > 0 ? memory.sums[row][column] : 0);
        }
    }
    __syncthreads();
    float *share = p.shares + (int64_t)blockIdx.x * p.k * p.c + blockIdx.y * columns;
    for (int i = threadIdx.x; i < p.k * columns; i += THREADS)
        share[(int64_t)(i / columns) * p.c + i % columns] = memory.sums[i / columns][i % columns];
}

template <class T, int columns>
__global__ void __launch_bounds__(THREADS) conv_thin_kernel(const thin_operands<T> p)
{
    __shared__ thin_memory<T, columns> memory;
    float d[FILTERS / 16][columns / 8][4] = {};
    int64_t first = (int64_t)blockIdx.x * PIXELS, step = (int64_t)gridDim.x * PIXELS;
    int stage = 0;
    load_tile(memory, stage, p, first);
    for (; first < p.pixels; first += step, stage ^= 1) {
        copies_wait();
        __syncthreads();
        if (first + step < p.pixels) load_tile(memory, stage ^ 1, p, first + step);
        multiply_tile(memory, stage, p.k, d);
    }
    leave_share(memory, p, d);
}

/* y, or with `data` d_x, of pixels: a warp has its fragments of the weights in registers. */
template <class T, int columns> struct thin_pixels {
    uint4 x[2][PIXELS * pitch<columns>()];       /* that of d_x: x[0], a tile */
    uint4 y[2][PIXELS * FILTERS / 8];            /* that of y: y[0] */
};

struct thin_tensors {
    const void *from, *weights, *bias;           /* x or d_y; [k, c]; of y, or NULL */
    void *to;
    int64_t pixels;
    int k;
    struct thin_norm norm;
};

/* Columns of x as in load_tile, or rows of d_y. */
template <class T, int columns, bool data>
__device__ static inline void load_pixels(thin_pixels<T, columns> &memory, int stage, const thin_tensors &p,
                                          int64_t first, const void *tensor)
{
    int row = data ? p.k : columns, units = PIXELS * row / 8;
    const T *from = (const T *)tensor + first * row;
    for (int i = threadIdx.x; i < units; i += THREADS) {
        bool here = (first * row + i * 8) < p.pixels * row;
        int place = data ? i : unit_of<columns>(i / (columns / 8), i % (columns / 8));
        uint4 *to = data ? &memory.y[stage][place] : &memory.x[stage][place];
        copy_unit(to, here ? from + i * 8 : from, here);
    }
}

/* Weight [filter, channel]; 0 beyond the filters. */
template <class T>
__device__ static inline uint16_t weight_at(const thin_tensors &p, int c, int filter, int at)
{
    uint16_t bits = 0;
    if (filter < p.k) memcpy(&bits, (const T *)p.weights + filter * c + at, sizeof bits);
    return bits;
}

/* The two numbers of B's column lane / 4 at rows `row` and the next one: channels of a filter, or filters of
 * a channel. */
template <class T, int columns, bool data>
__device__ static inline uint32_t two_weights(const thin_tensors &p, int row, int column)
{
    uint16_t low = weight_at<T>(p, columns, data ? row : column, data ? column : row);
    uint16_t high = weight_at<T>(p, columns, data ? row + 1 : column, data ? column : row + 1);
    return low | (uint32_t)high << 16;
}

/* A's fragment of 16 pixels and the filters from `first` on; 0 beyond the filters. */
template <class T>
__device__ static inline void load_filters(uint32_t (&a)[4], const T *pixels, int first, int k)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int part = 0; part < 4; part++) {
        int filter = first + part / 2 * 8 + lane % 4 * 2;
        const T *at = pixels + (lane / 4 + part % 2 * 8) * k + filter;
        uint16_t low = 0, high = 0;
        if (filter < k) memcpy(&low, at, 2);
        if (filter + 1 < k) memcpy(&high, at + 1, 2);
        a[part] = low | (uint32_t)high << 16;
    }
}

/* y of a warp's 16 pixels, which lie together in memory. */
template <class T, int columns, int groups>
__device__ static inline void store_y(thin_pixels<T, columns> &memory, const thin_tensors &p, int64_t first,
                                      const float (&d)[groups][4])
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    T *rows = (T *)memory.y[0] + row * p.k;
    const T *bias = (const T *)p.bias;
#pragma unroll
    for (int i = 0; i < groups * 4; i++) {
        int filter = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (filter >= p.k) continue;
        float sum = d[i / 4][i % 4] + (bias ? to_float(bias[filter]) : 0);
        rows[(lane / 4 + i % 4 / 2 * 8) * p.k + filter] = from_float<T>(sum);
    }
    __syncwarp();
    int64_t begin = (first + row) * p.k, end = p.pixels * p.k;
    for (int i = lane; i < 2 * p.k; i += 32)
        if (begin + i * 8 < end) *(uint4 *)((T *)p.to + begin + i * 8) = ((const uint4 *)rows)[i];
    __syncwarp();
}

/* d_x of the norm, of two channels. */
template <class T>
__device__ static inline uint32_t pass_back_two(const struct thin_norm &norm, int channel, uint32_t x,
                                                uint32_t d)
{
    float both[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float4 of = norm.channels[channel + i];
        float2 line = norm.lines[channel + i];
        float number = number_of<T>(x, i), kept = normalised(number, of) != 0 ? number_of<T>(d, i) : 0;
        both[i] = fmaf(of.y, kept, fmaf(line.x, number - of.x, line.y));
    }
    return two_rounded<T>(both[0], both[1]);
}

template <bool normalises, class T, int columns, int groups>
__device__ static inline void store_d_x(uint4 *x, const thin_tensors &p, int64_t first,
                                        const float (&d)[groups][4])
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
#pragma unroll
    for (int i = 0; i < groups * 2; i++) {
        uint32_t *at = (uint32_t *)&x[unit_of<columns>(row + lane / 4 + i % 2 * 8, i / 2)] + lane % 4;
        uint32_t two = two_rounded<T>(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
        *at = normalises ? pass_back_two<T>(p.norm, i / 2 * 8 + lane % 4 * 2, *at, two) : two;
    }
    __syncwarp();
    for (int i = lane; i < 16 * columns / 8; i += 32) {
        int64_t pixel = first + row + i / (columns / 8);
        uint4 *to = (uint4 *)((T *)p.to + pixel * columns) + i % (columns / 8);
        if (pixel < p.pixels) *to = x[unit_of<columns>(row + i / (columns / 8), i % (columns / 8))];
    }
    __syncwarp();
}

template <class T, int columns, bool data, bool normalises>
__global__ void __launch_bounds__(THREADS) conv_thin_pixels_kernel(const thin_tensors p)
{
    __shared__ thin_pixels<T, columns> memory;
    constexpr int inner = data ? FILTERS / 16 : columns / 16, groups = data ? columns / 8 : FILTERS / 8;
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16, stage = 0;
    uint32_t b[inner][groups][2];
#pragma unroll
    for (int i = 0; i < inner * groups * 2; i++)
        b[i / 2 / groups][i / 2 % groups][i % 2] = two_weights<T, columns, data>(
            p, i / 2 / groups * 16 + i % 2 * 8 + lane % 4 * 2, i / 2 % groups * 8 + lane / 4);
    int64_t first = (int64_t)blockIdx.x * PIXELS, step = (int64_t)gridDim.x * PIXELS;
    auto load = [&](int stage, int64_t first) {
        load_pixels<T, columns, data>(memory, stage, p, first, p.from);
        if constexpr (data && normalises) load_pixels<T, columns, false>(memory, stage, p, first, p.norm.x);
    };
    load(stage, first);
    for (; first < p.pixels; first += step, stage ^= 1) {
        copies_wait();
        __syncthreads();
        if (first + step < p.pixels) load(stage ^ 1, first + step);
        float d[groups][4] = {};
#pragma unroll
        for (int i = 0; i < inner; i++) {
            uint32_t a[4];
            if constexpr (data) load_filters(a, (const T *)memory.y[stage] + row * p.k, i * 16, p.k);
            else load_matrices(a, address_of(&memory.x[stage][unit_of<columns>(row + lane % 16,
                                                                               i * 2 + lane / 16)]));
#pragma unroll
            for (int j = 0; normalises && !data && j < 4; j++) {
                const float4 *channels = &p.norm.channels[(i * 2 + j / 2) * 8 + lane % 4 * 2];
                a[j] = normalise_two<T>(a[j], channels[0], channels[1]);
            }
#pragma unroll
            for (int group = 0; group < groups; group++)
                multiply(d[group], a, b[i][group][0], b[i][group][1], T());
        }
        if constexpr (data) store_d_x<normalises, T, columns>(memory.x[normalises ? stage : 0], p, first, d);
        else store_y<T, columns>(memory, p, first, d);
    }
}

/* Both gradients. The sums of blocks: of d_x where x is not 0, then of d_x x (of normalised x, of the numbers
 * before relu, without weight and bias); and of d_y. */
template <class T> struct thin_gradients : thin_operands<T> {
    const T *weights;                    /* [k, c] */
    T *d_x;
    float *products, *d_bias;            /* [blocks, 2, c], [blocks, k] */
    struct thin_norm norm;
};

/* Each thread's sums of columns group * 8 + lane % 4 * 2 + i, over the rows that it has. */
template <int columns> struct thin_sums {
    float d_x[columns / 8][2], products[columns / 8][2], d_y[FILTERS / 8][2];
};

/* Puts d_x of a warp's 16 pixels in the place of x, of which there are only sums with `channels`. */
template <class T, int columns>
__device__ static inline void replace_x(uint4 *x, const uint32_t (&a)[FILTERS / 16][4], const uint4 *weights,
                                        thin_sums<columns> &sums, const float4 *channels)
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int pair = 0; pair < columns / 16; pair++) {
        float d[2][4] = {};
#pragma unroll
        for (int half = 0; half < FILTERS / 16; half++) {
            uint32_t b[4];
            int unit = unit_of<columns>(half * 16 + lane % 16, pair * 2 + lane / 16);
            load_turned(b, address_of(&weights[unit]));
            multiply(d[0], a[half], b[0], b[1], T());
            multiply(d[1], a[half], b[2], b[3], T());
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int group = pair * 2 + i / 2;
            uint32_t *at = (uint32_t *)&x[unit_of<columns>(row + i % 2 * 8, group)] + lane % 4;
            uint32_t was = *at, now = two_rounded<T>(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1]);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float value = number_of<T>(was, k), gradient = number_of<T>(now, k);
                bool kept = value != 0;
                if (channels) {
                    float4 channel = channels[group * 8 + lane % 4 * 2 + k];
                    kept = normalised(value, channel) != 0;
                    value = (value - channel.x) * channel.w;
                }
                if (!kept) gradient = 0;
                sums.d_x[group][k] += gradient;
                sums.products[group][k] = fmaf(gradient, value, sums.products[group][k]);
            }
            if (!channels) *at = now;
        }
    }
}

/* Adds up a sum over the block's rows, warp by warp, in `room`, [WARPS][columns]. */
template <int groups>
__device__ static inline void add_rows(float *room, float (&sums)[groups][2], int count, float *to)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < groups * 2; i++) {
        float sum = sums[i / 2][i % 2];
        for (int distance = 4; distance < 32; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
        if (lane < 4) room[warp * groups * 8 + i / 2 * 8 + lane * 2 + i % 2] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += THREADS) {
        float sum = 0;
        for (int k = 0; k < WARPS; k++) sum += room[k * groups * 8 + i];
        to[i] = sum;
    }
}

template <class T, int columns, bool normalises>
__global__ void __launch_bounds__(THREADS, 3) conv_thin_gradients_kernel(const thin_gradients<T> p)
{
    const float4 *channels = normalises ? p.norm.channels : NULL;
    __shared__ thin_memory<T, columns> memory;
    __shared__ uint4 weights[FILTERS * pitch<columns>()];
    constexpr int units = columns / 8;
    int row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32, stage = 0;
    float d[FILTERS / 16][columns / 8][4] = {};
    thin_sums<columns> sums = {};
    int64_t first = (int64_t)blockIdx.x * PIXELS, step = (int64_t)gridDim.x * PIXELS;
    for (int i = threadIdx.x; i < FILTERS * units; i += THREADS)
        copy_unit(&weights[unit_of<columns>(i / units, i % units)],
                  p.weights + (i < p.k * units ? i * 8 : 0), i < p.k * units);
    load_tile(memory, stage, p, first);
    for (; first < p.pixels; first += step, stage ^= 1) {
        copies_wait();
        __syncthreads();
        if (first + step < p.pixels) load_tile(memory, stage ^ 1, p, first + step);
        multiply_tile(memory, stage, p.k, d, channels);
        uint32_t a[FILTERS / 16][4];
#pragma unroll
        for (int half = 0; half < FILTERS / 16; half++) {
            load_filters(a[half], (const T *)memory.y[stage] + row * p.k, half * 16, p.k);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sums.d_y[half * 2 + i / 4][i % 2] += number_of<T>(a[half][i / 2], i % 2);
        }
        __syncwarp();
        replace_x<T, columns>(memory.x[stage], a, weights, sums, channels);
        __syncwarp();
        for (int i = lane; !normalises && i < 16 * units; i += 32) {
            int64_t pixel = first + row + i / units;
            uint4 *to = (uint4 *)(p.d_x + pixel * columns) + i % units;
            if (pixel < p.pixels) *to = memory.x[stage][unit_of<columns>(row + i / units, i % units)];
        }
    }
    leave_share(memory, p, d);
    float *room = memory.sums[0];
    add_rows(room, sums.d_x, columns, p.products + (int64_t)blockIdx.x * 2 * columns);
    add_rows(room, sums.products, columns, p.products + ((int64_t)blockIdx.x * 2 + 1) * columns);
    add_rows(room, sums.d_y, p.k, p.d_bias + (int64_t)blockIdx.x * p.k);
}

static int64_t pixels_of(const struct conv_call *p)
{
    return (int64_t)p->n * p->in[0] * p->in[1];
}

static int blocks_of(const struct conv_call *p)
{
    int64_t tiles = div_up(pixels_of(p), (int64_t)PIXELS);
    int64_t most = (p->phase == PHASE_BACKWARD ? 3 : 4) * multiprocessors_of(p->call->device);
    return (int)(tiles < most ? tiles : most);
}

template <class T, int columns> static enum status thin_run_columns(const struct conv_call *p)
{
    const struct call *call = p->call;
    const thin_operands<T> operands = {(const T *)conv_x(call), (const T *)conv_y(call),
                                         (float *)call->workspace, pixels_of(p), p->c, p->k};
    dim3 grid((unsigned)blocks_of(p), (unsigned)(p->c / columns));
    conv_thin_kernel<T, columns><<<grid, THREADS, 0, stream_of(call)>>>(operands);
    TRY(launched(call));
    return columns_finish(call, {operands.shares, blocks_of(p), 1, p->k * p->c}, (float *)conv_weight(call));
}

template <class T, int columns>
static enum status thin_run_pixels(const struct conv_call *p, const struct thin_norm &norm)
{
    const struct call *call = p->call;
    bool data = p->phase == PHASE_BACKWARD_DATA;
    const thin_tensors tensors = {data ? conv_y(call) : conv_x(call), conv_weight(call), conv_bias(call),
                                  data ? conv_x(call) : conv_y(call), pixels_of(p), p->k, norm};
    auto kernel = norm.channels ? data ? conv_thin_pixels_kernel<T, columns, true, true>
                                       : conv_thin_pixels_kernel<T, columns, false, true>
                  : data ? conv_thin_pixels_kernel<T, columns, true, false>
                         : conv_thin_pixels_kernel<T, columns, false, false>;
    kernel<<<blocks_of(p), THREADS, 0, stream_of(call)>>>(tensors);
    return launched(call);
}

/* Numbers that a block leaves: of d_w and, of both gradients, of the other sums. */
static int share_numbers(const struct conv_call *p)
{
    return p->k * p->c + (p->phase == PHASE_BACKWARD ? 2 * p->c + p->k : 0);
}

template <class T, int columns>
static enum status thin_run_gradients(const struct conv_call *p, const struct thin_norm &norm)
{
    const struct call *call = p->call;
    int blocks = blocks_of(p);
    thin_gradients<T> g;
    g.x = (const T *)call->x[0].data, g.d_y = (const T *)call->d_y.data;
    g.weights = (const T *)call->params[0].data, g.d_x = (T *)call->d_x[0].data;
    g.pixels = pixels_of(p), g.c = p->c, g.k = p->k;
    g.shares = (float *)call->workspace;
    g.products = g.shares + (int64_t)blocks * p->k * p->c;
    g.d_bias = g.products + (int64_t)blocks * 2 * p->c;
    g.norm = norm;
    auto kernel = norm.channels ? conv_thin_gradients_kernel<T, columns, true>
                                : conv_thin_gradients_kernel<T, columns, false>;
    kernel<<<blocks, THREADS, 0, stream_of(call)>>>(g);
    TRY(launched(call));
    TRY(columns_finish(call, {g.shares, blocks, 1, p->k * p->c}, (float *)call->d_params[0].data));
    float *products = (float *)call_data(call, OPERAND_X_PRODUCTS);
    if (products) TRY(columns_finish(call, {g.products, blocks, 1, 2 * p->c}, products));
    if (call->param_count < 2) return OK;
    return columns_finish(call, {g.d_bias, blocks, 1, p->k}, (float *)call->d_params[1].data);
}

template <class T>
static enum status thin_run_type(const struct conv_call *p, const struct thin_norm &norm)
{
    if (p->phase == PHASE_BACKWARD)
        return p->c == 64 ? thin_run_gradients<T, 64>(p, norm) : thin_run_gradients<T, 32>(p, norm);
    if (p->phase != PHASE_BACKWARD_PARAMS)
        return p->c == 64 ? thin_run_pixels<T, 64>(p, norm) : thin_run_pixels<T, 32>(p, norm);
    return p->c % 64 == 0 ? thin_run_columns<T, 64>(p) : thin_run_columns<T, 32>(p);
}

enum status conv_thin_run(const struct call *call, const struct thin_norm &norm)
{
    const struct conv_call p = conv_call_of(call);
    return p.dtype == F16 ? thin_run_type<__half>(&p, norm) : thin_run_type<__nv_bfloat16>(&p, norm);
}

static enum status thin_run(const struct call *call, const struct kernel_plan *plan)
{
    (void)plan;
    return conv_thin_run(call, {});
}

static bool thin_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    const struct conv_geometry g = conv_geometry((const struct conv_settings *)call->settings, p.c);
    bool thin = p.k <= FILTERS && p.c % 32 == 0 && pixels_of(&p) % 8 == 0;
    bool weights = call->phase == PHASE_BACKWARD_PARAMS;
    bool both = call->phase == PHASE_BACKWARD;
    return (weights || (p.c <= 64 && (both || call_is_plain(call)))) && conv_keeps_size(&g, 1) && thin &&
           (p.dtype == F16 || p.dtype == BF16) &&
           cuda_facts(call->device)->capability >= CONV_THIN_CAPABILITY;
}

static bool thin_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    bool sums = call->phase == PHASE_BACKWARD_PARAMS || call->phase == PHASE_BACKWARD;
    plan->workspace = sums ? (size_t)blocks_of(&p) * share_numbers(&p) * sizeof(float) : 0;
    plan->epilogues = AS_BIT(EPILOGUE_PRODUCTS);
    return true;
}

const struct algorithm conv_by_thin = {
    .name = "thin", .supports = thin_supports, .make = thin_make, .run = thin_run,
};
