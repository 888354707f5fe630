/* conv_depthwise.cu: convolution of each channel by itself (groups = c = k): 3x3 with padding 1, stride 1
 * or 2.
 *
 * A thread has four neighbouring channels and four neighbouring columns, and walks down some rows: so every
 * row is read once, and what a row adds to the outputs above and below it waits in registers. */
#include "kernels/chunk.cuh"
#include "kernels/conv_cuda.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define CHANNELS 4                   /* of a thread */
#define COLUMNS 4                    /* of a thread: a strip */
#define TAPS 9
#define SHORTEST 7                   /* rows that are worth a walk */

/* How the work is laid out. Blocks are `across` threads wide in channels; a walk goes over `rows` rows of a
 * strip. Walks are counted [n][segment][strip]. */
struct layout {
    int c, in[2], out[2];
    int across;
    int strips, segments, rows, walks;
};

/* One walk: rows [first, last) and columns from `column` on, of the image that is walked. */
struct walk {
    int n, first, last, column;
};

__device__ static inline struct walk walk_at(const struct layout &l, int index, int height)
{
    int rest = index / l.strips, n = rest / l.segments;
    int first = (rest - n * l.segments) * l.rows, last = first + l.rows;
    return {n, first, last < height ? last : height, (index - rest * l.strips) * COLUMNS};
}

/* Four channels of one pixel, as they are stored and as numbers. */
__device__ static inline void unpack(float to[CHANNELS], uint2 bits, __half)
{
    float2 low = __half22float2(*(__half2 *)&bits.x), high = __half22float2(*(__half2 *)&bits.y);
    to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
}
__device__ static inline void unpack(float to[CHANNELS], uint2 bits, __nv_bfloat16)
{
    to[0] = __uint_as_float(bits.x << 16), to[1] = __uint_as_float(bits.x & 0xffff0000u);
    to[2] = __uint_as_float(bits.y << 16), to[3] = __uint_as_float(bits.y & 0xffff0000u);
}
__device__ static inline void unpack(float to[CHANNELS], uint4 bits, float)
{
    to[0] = __uint_as_float(bits.x), to[1] = __uint_as_float(bits.y);
    to[2] = __uint_as_float(bits.z), to[3] = __uint_as_float(bits.w);
}

template <class T> struct word_of {
    using word = uint2;
};
template <> struct word_of<float> {
    using word = uint4;
};

/* `count` pixels of one row as they are stored; what lies outside the image is zero. */
template <class T, int count> struct line {
    typename word_of<T>::word bits[count];
};

template <class T, int count>
__device__ static inline line<T, count> read_line(const T *image, const int size[2], int c, int row,
                                                  int column)
{
    line<T, count> got;
    bool inside = (unsigned)row < (unsigned)size[0];
    const T *from = image + ((int64_t)row * size[1] + column) * c;
#pragma unroll
    for (int i = 0; i < count; i++) {
        got.bits[i] = {};
        if (inside && (unsigned)(column + i) < (unsigned)size[1])
            got.bits[i] = __ldg((const typename word_of<T>::word *)from);
        from += c;
    }
    return got;
}

template <class T, int count>
__device__ static inline void unpack_line(float to[count][CHANNELS], const line<T, count> &from)
{
#pragma unroll
    for (int i = 0; i < count; i++) unpack(to[i], from.bits[i], T());
}

/* Where a strip of one row lies in memory: pixels from `column` on, of a row of `width`. */
template <class T> struct strip {
    T *to;
    int column, width, c;
};

template <class T>
__device__ static inline strip<T> strip_at(T *image, const int size[2], int c, int row, int column)
{
    return {image + ((int64_t)row * size[1] + column) * c, column, size[1], c};
}

/* Writes a strip; adds the stored numbers to the thread's sums if `total` is not NULL. */
template <class T>
__device__ static inline void store_strip(const strip<T> &at, const float value[COLUMNS][CHANNELS],
                                          float total[2][CHANNELS])
{
    T *to = at.to;
#pragma unroll
    for (int i = 0; i < COLUMNS; i++, to += at.c) {
        if (at.column + i >= at.width) continue;
        chunk<T, CHANNELS> out;
#pragma unroll
        for (int v = 0; v < CHANNELS; v++) out.at[v] = from_float<T>(value[i][v]);
        *(chunk<T, CHANNELS> *)to = out;
        for (int v = 0; total && v < CHANNELS; v++) {
            float stored = to_float(out.at[v]);
            total[0][v] += stored;
            total[1][v] += stored * stored;
        }
    }
}

/* The weights of a thread's channels; turned by half a circle for the data gradient. */
template <class T>
__device__ static inline void load_weights(float to[TAPS][CHANNELS], const T *weight, int channel,
                                           bool turned)
{
#pragma unroll
    for (int v = 0; v < CHANNELS; v++)
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++)
            to[tap][v] = to_float(__ldg(&weight[(channel + v) * TAPS + (turned ? TAPS - 1 - tap : tap)]));
}

/* sum[i] += the three taps of kernel row r on the pixels from `stride` * i on. */
template <int stride>
__device__ static inline void add_row(float sum[COLUMNS][CHANNELS], const float pixel[][CHANNELS],
                                      const float w[TAPS][CHANNELS], int r)
{
#pragma unroll
    for (int s = 0; s < 3; s++)
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
#pragma unroll
            for (int v = 0; v < CHANNELS; v++) sum[i][v] += pixel[i * stride + s][v] * w[r * 3 + s][v];
}

__device__ static inline void move_strip(float to[COLUMNS][CHANNELS], const float from[COLUMNS][CHANNELS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
#pragma unroll
        for (int v = 0; v < CHANNELS; v++) to[i][v] = from[i][v];
}

__device__ static inline void clear_strip(float to[COLUMNS][CHANNELS])
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
#pragma unroll
        for (int v = 0; v < CHANNELS; v++) to[i][v] = 0;
}

/* The block's sum of what its threads have, `count` numbers a channel, into shares[blockIdx.y]:
 * [channel][number], or [number][channel]. `sums` is shared memory for a share of every warp. */
template <int count>
__device__ static inline void write_share(const struct layout &l, float value[count][CHANNELS], float *sums,
                                          float *shares, bool number_last)
{
    int lane = threadIdx.x % l.across, wide = l.across * CHANNELS, share = wide * count;
    float *mine = sums + threadIdx.x / 32 * share + lane * CHANNELS;
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int v = 0; v < CHANNELS; v++) {
            float total = value[i][v];
            for (int step = 16; step >= l.across; step /= 2)
                total += __shfl_xor_sync(0xffffffff, total, step);
            if (threadIdx.x % 32 < l.across) mine[i * wide + v] = total;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < share; i += THREADS) {
        float total = 0;
        for (int warp = 0; warp < WARPS; warp++) total += sums[warp * share + i];
        int channel = blockIdx.x * wide + i % wide, number = i / wide;
        int at = number_last ? channel * count + number : number * l.c + channel;
        shares[(int64_t)blockIdx.y * l.c * count + at] = total;
    }
}

__device__ static inline int first_channel(const struct layout &l)
{
    return (blockIdx.x * l.across + threadIdx.x % l.across) * CHANNELS;
}

__device__ static inline int first_walk(const struct layout &l)
{
    return blockIdx.y * (THREADS / l.across) + threadIdx.x / l.across;
}

/* y from x, or with turned weights d_x from d_y, stride 1. Where `summed`, shares get the sums of y and its
 * squares. Row h adds to the outputs above it (sum[0], then complete), at it and below it. */
template <class T, bool summed>
__global__ void __launch_bounds__(THREADS, 2)
    depthwise_forward_kernel(struct layout l, T *y, const T *x, const T *weight, bool turned, float *shares)
{
    extern __shared__ float warp_sums[];
    int channel = first_channel(l), index = first_walk(l);
    float w[TAPS][CHANNELS], total[2][CHANNELS] = {};
    load_weights(w, weight, channel, turned);
    if (index < l.walks) {
        struct walk at = walk_at(l, index, l.out[0]);
        int64_t image = (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        float sum[3][COLUMNS][CHANNELS] = {};
        auto next = read_line<T, COLUMNS + 2>(x + image, l.in, l.c, at.first - 1, at.column - 1);
#pragma unroll 3
        for (int h = at.first - 1; h <= at.last; h++) {
            float pixel[COLUMNS + 2][CHANNELS];
            unpack_line(pixel, next);
            next = read_line<T, COLUMNS + 2>(x + image, l.in, l.c, h + 1, at.column - 1);
            add_row<1>(sum[0], pixel, w, 2);
            add_row<1>(sum[1], pixel, w, 1);
            add_row<1>(sum[2], pixel, w, 0);
            if (h > at.first)
                store_strip(strip_at(y + image, l.out, l.c, h - 1, at.column), sum[0], summed ? total : NULL);
            move_strip(sum[0], sum[1]);
            move_strip(sum[1], sum[2]);
            clear_strip(sum[2]);
        }
    }
    if (summed) write_share<2>(l, total, warp_sums, shares, false);
}

/* y from x, stride 2: output p reads rows 2p - 1, 2p and 2p + 1, of which the last is also the first of p
 * + 1. */
template <class T, bool summed>
__global__ void __launch_bounds__(THREADS, 2)
    depthwise_forward_strided_kernel(struct layout l, T *y, const T *x, const T *weight, float *shares)
{
    constexpr int wide = 2 * COLUMNS + 1;
    extern __shared__ float warp_sums[];
    int channel = first_channel(l), index = first_walk(l);
    float w[TAPS][CHANNELS], total[2][CHANNELS] = {};
    load_weights(w, weight, channel, false);
    if (index < l.walks) {
        struct walk at = walk_at(l, index, l.out[0]);
        const T *image = x + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        T *to = y + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
        int left = 2 * at.column - 1;
        float sum[2][COLUMNS][CHANNELS] = {}, pixel[wide][CHANNELS];
        unpack_line(pixel, read_line<T, wide>(image, l.in, l.c, 2 * at.first - 1, left));
        add_row<2>(sum[0], pixel, w, 0);
#pragma unroll 2
        for (int p = at.first; p < at.last; p++) {
            auto middle = read_line<T, wide>(image, l.in, l.c, 2 * p, left);
            auto last = read_line<T, wide>(image, l.in, l.c, 2 * p + 1, left);
            unpack_line(pixel, middle);
            add_row<2>(sum[0], pixel, w, 1);
            unpack_line(pixel, last);
            add_row<2>(sum[0], pixel, w, 2);
            add_row<2>(sum[1], pixel, w, 0);
            store_strip(strip_at(to, l.out, l.c, p, at.column), sum[0], summed ? total : NULL);
            move_strip(sum[0], sum[1]);
            clear_strip(sum[1]);
        }
    }
    if (summed) write_share<2>(l, total, warp_sums, shares, false);
}

/* Row r of the kernel adds from a row of d_y (columns column / 2 on) to a strip of d_x, stride 2: even
 * columns meet the middle tap, odd ones the outer two. */
__device__ static inline void spread_row(float sum[COLUMNS][CHANNELS],
                                         const float d[COLUMNS / 2 + 1][CHANNELS],
                                         const float w[TAPS][CHANNELS], int r)
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
#pragma unroll
        for (int v = 0; v < CHANNELS; v++) {
            if (i % 2 == 0) sum[i][v] += d[i / 2][v] * w[r * 3 + 1][v];
            else sum[i][v] += d[i / 2][v] * w[r * 3 + 2][v] + d[i / 2 + 1][v] * w[r * 3][v];
        }
}

/* d_x from d_y, stride 2: row p of d_y adds to rows 2p - 1, 2p and 2p + 1 of d_x. Walks count rows of d_y,
 * and own rows 2p and 2p + 1. */
template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    depthwise_backward_strided_kernel(struct layout l, T *d_x, const T *d_y, const T *weight)
{
    constexpr int wide = COLUMNS / 2 + 1;
    int channel = first_channel(l), index = first_walk(l);
    if (index >= l.walks) return;
    float w[TAPS][CHANNELS];
    load_weights(w, weight, channel, false);
    struct walk at = walk_at(l, index, (l.in[0] + 1) / 2);
    const T *image = d_y + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
    T *to = d_x + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
    float d[wide][CHANNELS];
    unpack_line(d, read_line<T, wide>(image, l.out, l.c, at.first, at.column / 2));
#pragma unroll 2
    for (int p = at.first; p < at.last; p++) {
        auto next = read_line<T, wide>(image, l.out, l.c, p + 1, at.column / 2);
        float even[COLUMNS][CHANNELS] = {}, odd[COLUMNS][CHANNELS] = {};
        spread_row(even, d, w, 1);
        spread_row(odd, d, w, 2);
        unpack_line(d, next);
        spread_row(odd, d, w, 0);
        store_strip(strip_at(to, l.in, l.c, 2 * p, at.column), even, NULL);
        if (2 * p + 1 < l.in[0]) store_strip(strip_at(to, l.in, l.c, 2 * p + 1, at.column), odd, NULL);
    }
}

/* The products of a row of x with a row of d_y, into the gradients of kernel row r. */
template <int stride>
__device__ static inline void add_products(float sum[TAPS][CHANNELS], const float pixel[][CHANNELS],
                                           const float d[COLUMNS][CHANNELS], int r)
{
#pragma unroll
    for (int s = 0; s < 3; s++)
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
#pragma unroll
            for (int v = 0; v < CHANNELS; v++) sum[r * 3 + s][v] += pixel[i * stride + s][v] * d[i][v];
}

/* Each block's share of the weights' gradient: shares[blockIdx.y][channel][tap]. Row h of x meets the rows of
 * d_y above it (d[0]), at it and below it. */
template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    depthwise_weight_shares_kernel(struct layout l, float *shares, const T *x, const T *d_y)
{
    extern __shared__ float warp_sums[];
    int channel = first_channel(l);
    float sum[TAPS][CHANNELS] = {};
    for (int index = first_walk(l); index < l.walks; index += gridDim.y * (THREADS / l.across)) {
        struct walk at = walk_at(l, index, l.out[0]);
        int64_t image = (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        int own[2] = {at.last, l.out[1]};              /* rows of d_y beyond the walk are another's */
        float d[3][COLUMNS][CHANNELS] = {};
        if (at.first < at.last)
            unpack_line(d[2], read_line<T, COLUMNS>(d_y + image, own, l.c, at.first, at.column));
#pragma unroll 3
        for (int h = at.first - 1; h <= at.last; h++) {
            auto row = read_line<T, COLUMNS + 2>(x + image, l.in, l.c, h, at.column - 1);
            auto next = read_line<T, COLUMNS>(d_y + image, own, l.c, h + 2, at.column);
            float pixel[COLUMNS + 2][CHANNELS];
            unpack_line(pixel, row);
            add_products<1>(sum, pixel, d[0], 2);
            add_products<1>(sum, pixel, d[1], 1);
            add_products<1>(sum, pixel, d[2], 0);
            move_strip(d[0], d[1]);
            move_strip(d[1], d[2]);
            unpack_line(d[2], next);
        }
    }
    write_share<TAPS>(l, sum, warp_sums, shares, true);
}

/* The same for stride 2: row 2p of x meets row p of d_y, row 2p + 1 also row p + 1. */
template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    depthwise_weight_shares_strided_kernel(struct layout l, float *shares, const T *x, const T *d_y)
{
    constexpr int wide = 2 * COLUMNS + 1;
    extern __shared__ float warp_sums[];
    int channel = first_channel(l);
    float sum[TAPS][CHANNELS] = {};
    for (int index = first_walk(l); index < l.walks; index += gridDim.y * (THREADS / l.across)) {
        struct walk at = walk_at(l, index, l.out[0]);
        const T *image = x + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        const T *gradient = d_y + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
        int left = 2 * at.column - 1, own[2] = {at.last, l.out[1]};
        float d[2][COLUMNS][CHANNELS], pixel[wide][CHANNELS];
        unpack_line(d[0], read_line<T, COLUMNS>(gradient, own, l.c, at.first, at.column));
        unpack_line(pixel, read_line<T, wide>(image, l.in, l.c, 2 * at.first - 1, left));
        add_products<2>(sum, pixel, d[0], 0);
#pragma unroll 2
        for (int p = at.first; p < at.last; p++) {
            auto middle = read_line<T, wide>(image, l.in, l.c, 2 * p, left);
            auto next = read_line<T, COLUMNS>(gradient, own, l.c, p + 1, at.column);
            auto last = read_line<T, wide>(image, l.in, l.c, 2 * p + 1, left);
            unpack_line(pixel, middle);
            add_products<2>(sum, pixel, d[0], 1);
            unpack_line(d[1], next);
            unpack_line(pixel, last);
            add_products<2>(sum, pixel, d[0], 2);
            add_products<2>(sum, pixel, d[1], 0);
            move_strip(d[0], d[1]);
        }
    }
    write_share<TAPS>(l, sum, warp_sums, shares, true);
}

#define BLOCKS 6                     /* on each multiprocessor, one after the other: what walks are cut for */
#define SHARES 4                     /* blocks on each multiprocessor that sum weights' gradients */

/* Walks over images of height x width. */
static struct layout layout_make(const struct conv_problem *p, int multiprocessors, dim3 *grid)
{
    bool data = p->phase == PHASE_BACKWARD_DATA, strided = p->stride[0] == 2;
    struct layout l = {.c = p->c, .in = {p->in[0], p->in[1]}, .out = {p->out[0], p->out[1]}};
    int height = data && strided ? div_up(p->in[0], 2) : p->out[0], width = data ? p->in[1] : p->out[1];
    int lanes = p->c / CHANNELS;
    l.across = 32;
    while (lanes % l.across != 0) l.across /= 2;
    l.strips = div_up(width, COLUMNS);
    int64_t threads = (int64_t)p->n * l.strips * lanes, wanted = (int64_t)BLOCKS * THREADS * multiprocessors;
    int64_t segments = div_up(wanted, threads), most = div_up(height, SHORTEST);
    l.segments = (int)(segments < most ? segments : most);
    l.rows = div_up(height, l.segments);
    l.segments = div_up(height, l.rows);
    l.walks = p->n * l.segments * l.strips;
    unsigned wide = (unsigned)(lanes / l.across), blocks = (unsigned)div_up(l.walks, THREADS / l.across);
    unsigned shares = (unsigned)div_up(SHARES * multiprocessors, (int)wide);
    *grid = dim3(wide, p->phase == PHASE_BACKWARD_PARAMS && shares < blocks ? shares : blocks);
    return l;
}

/* Numbers that every block sums for every channel. */
static int share_numbers(const struct conv_problem *p)
{
    if (p->phase == PHASE_BACKWARD_PARAMS) return TAPS;
    return p->sums ? 2 : 0;
}

template <class T> static enum status depthwise_run_phase(const struct conv_problem *p,
                                                          const struct call *call)
{
    struct conv_operands at = conv_operands(call);
    const T *weight = (const T *)at.weight;
    T *x = (T *)at.x, *y = (T *)at.y;
    float *shares = (float *)call->workspace;
    cudaStream_t stream = stream_of(call);
    dim3 grid;
    struct layout l = layout_make(p, cuda_facts(call->device)->multiprocessors, &grid);
    size_t shared = (size_t)WARPS * l.across * CHANNELS * share_numbers(p) * sizeof(float);
    bool strided = p->stride[0] == 2;
    if (p->phase == PHASE_FORWARD && p->sums) {
        if (strided)
            depthwise_forward_strided_kernel<T, true><<<grid, THREADS, shared, stream>>>(l, y, x, weight,
                                                                                         shares);
        else depthwise_forward_kernel<T, true><<<grid, THREADS, shared, stream>>>(l, y, x, weight, false,
                                                                                  shares);
        TRY(launched(call));
        return conv_sum_shares(call, (float *)call->sums.data, shares, (int)grid.y, 2 * p->c);
    }
    if (p->phase == PHASE_FORWARD) {
        if (strided) depthwise_forward_strided_kernel<T, false><<<grid, THREADS, 0, stream>>>(l, y, x,
                                                                                              weight, NULL);
        else depthwise_forward_kernel<T, false><<<grid, THREADS, 0, stream>>>(l, y, x, weight, false, NULL);
        return launched(call);
    }
    if (p->phase == PHASE_BACKWARD_DATA) {
        if (strided) depthwise_backward_strided_kernel<<<grid, THREADS, 0, stream>>>(l, x, y, weight);
        else depthwise_forward_kernel<T, false><<<grid, THREADS, 0, stream>>>(l, x, y, weight, true, NULL);
        return launched(call);
    }
    if (strided) depthwise_weight_shares_strided_kernel<<<grid, THREADS, shared, stream>>>(l, shares, x, y);
    else depthwise_weight_shares_kernel<<<grid, THREADS, shared, stream>>>(l, shares, x, y);
    TRY(launched(call));
    return conv_sum_shares(call, (float *)at.weight, shares, (int)grid.y, p->c * TAPS);
}

static enum status depthwise_run(const struct conv_plan *plan, const struct call *call,
                                 const struct conv_tools *tools)
{
    (void)tools;
    const struct conv_problem *p = &plan->problem;
    return with_type(p->dtype, [&](auto type) { return depthwise_run_phase<decltype(type)>(p, call); });
}

#define GRID_MAX 65535               /* of blocks in the grid's second dimension */

static bool is_ours(const struct conv_problem *p, const struct conv_tools *tools)
{
    if (p->groups != p->c || p->k != p->c || p->c % CHANNELS != 0 || p->bias) return false;
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != 3 || p->pad[i] != 1 || p->dilation[i] != 1 || p->stride[i] > 2) return false;
    dim3 grid;
    layout_make(p, cuda_facts(tools->device)->multiprocessors, &grid);
    return p->stride[0] == p->stride[1] && grid.y <= GRID_MAX;
}

static int depthwise_candidates(const struct conv_problem *problem, const struct conv_tools *tools, int most,
                                char names[][CANDIDATE_NAME])
{
    if (most < 1 || !is_ours(problem, tools)) return 0;
    snprintf(names[0], CANDIDATE_NAME, "depthwise");
    return 1;
}

static bool depthwise_make(struct conv_plan *plan, const struct conv_tools *tools)
{
    const struct conv_problem *p = &plan->problem;
    if (!is_ours(p, tools)) return false;
    dim3 grid;
    layout_make(p, cuda_facts(tools->device)->multiprocessors, &grid);
    plan->workspace = (size_t)grid.y * p->c * share_numbers(p) * sizeof(float);
    plan->gives_sums = p->sums;
    return true;
}

static void depthwise_release(struct conv_plan *plan)
{
    (void)plan;
}

const struct conv_algorithm conv_by_depthwise = {
    .name = "depthwise",
    .candidates = depthwise_candidates,
    .make = depthwise_make,
    .release = depthwise_release,
    .run = depthwise_run,
};
