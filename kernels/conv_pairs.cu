/* conv_pairs.cu: convolution of each channel by itself (groups = c = k), for what conv_depthwise.cu has no
 * code: kernels of 5x5 and 7x7 but for gradients of weights, 3x3 with a bias or where channels come in pairs
 * only; padding k / 2, stride 1 or 2.
 *
 * A thread has two neighbouring channels and four neighbouring columns, and walks down some rows: so every
 * row is read once, and what it adds to the rows around it waits in registers, as do the weights. */
#include "kernels/chunk.cuh"
#include "kernels/conv_cuda.cuh"

#define THREADS 128
#define WARPS (THREADS / 32)
#define CHANNELS 2                   /* of a thread */
#define COLUMNS 4                    /* of a thread: a strip */
#define BLOCKS 4                     /* on each multiprocessor: what walks are cut for */
#define SHARES 4                     /* blocks on each multiprocessor that sum weights' gradients */
#define SHORTEST 14                  /* rows that are worth a walk */

/* How the work is laid out. Blocks are `across` threads wide in channels; a walk goes over `rows` rows of a
 * strip of what is written, or of y for gradients of weights. Walks are counted [n][segment][strip]. */
struct pairs_layout {
    int c, in[2], out[2];
    int across;
    int strips, segments, rows, walks;
};

struct pairs_walk {
    int n, first, last, column;
};

__device__ static inline pairs_walk walk_at(const struct pairs_layout &l, int index, int height)
{
    int rest = index / l.strips, n = rest / l.segments;
    int first = (rest - n * l.segments) * l.rows, last = first + l.rows;
    return {n, first, last < height ? last : height, (index - rest * l.strips) * COLUMNS};
}

__device__ static inline int pairs_channel(const struct pairs_layout &l)
{
    return (blockIdx.x * l.across + threadIdx.x % l.across) * CHANNELS;
}

__device__ static inline int first_walk(const struct pairs_layout &l)
{
    return blockIdx.y * (THREADS / l.across) + threadIdx.x / l.across;
}

/* `count` pixels of one row from `column` on; zero outside the image. */
template <class T, int count> struct pairs_line {
    chunk<T, CHANNELS> at[count];
};

template <class T, int count>
__device__ static inline pairs_line<T, count> read_line(const T *image, const int size[2], int c, int row,
                                                        int column)
{
    pairs_line<T, count> got;
    bool inside = (unsigned)row < (unsigned)size[0];
    const T *from = image + ((int64_t)row * size[1] + column) * c;
#pragma unroll
    for (int i = 0; i < count; i++, from += c) {
        got.at[i].at[0] = got.at[i].at[1] = from_float<T>(0);
        if (inside && (unsigned)(column + i) < (unsigned)size[1])
            got.at[i] = *(const chunk<T, CHANNELS> *)from;
    }
    return got;
}

template <class T, int count>
__device__ static inline void unpack_line(float to[count][CHANNELS], const pairs_line<T, count> &from)
{
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int v = 0; v < CHANNELS; v++) to[i][v] = to_float(from.at[i].at[v]);
}

template <class T, int taps>
__device__ static inline void load_weights(float to[taps][CHANNELS], const T *weight, int channel,
                                           bool turned)
{
#pragma unroll
    for (int v = 0; v < CHANNELS; v++)
#pragma unroll
        for (int tap = 0; tap < taps; tap++)
            to[tap][v] = to_float(weight[(channel + v) * taps + (turned ? taps - 1 - tap : tap)]);
}

/* Writes a strip of the row; adds the stored numbers to the thread's sums if `total` is not NULL. */
template <class T>
__device__ static inline void store_strip(T *image, const int size[2], int c, int row, int column,
                                          const float value[COLUMNS][CHANNELS], float total[2][CHANNELS])
{
    T *to = image + ((int64_t)row * size[1] + column) * c;
#pragma unroll
    for (int i = 0; i < COLUMNS; i++, to += c) {
        if (column + i >= size[1]) continue;
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

__device__ static inline void add_product(float sum[CHANNELS], const float a[CHANNELS],
                                          const float b[CHANNELS])
{
#pragma unroll
    for (int v = 0; v < CHANNELS; v++) sum[v] = fmaf(a[v], b[v], sum[v]);
}

/* Moves rows of strips up by `by`, the last ones become `fill`. */
template <int rows, int by>
__device__ static inline void move_up(float ring[rows][COLUMNS][CHANNELS], const float fill[CHANNELS])
{
#pragma unroll
    for (int a = 0; a < rows; a++)
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
#pragma unroll
            for (int v = 0; v < CHANNELS; v++) ring[a][i][v] = a + by < rows ? ring[a + by][i][v] : fill[v];
}

/* The block's sum of one number a channel of its threads into to[channel * pitch]. */
__device__ static inline void write_share(const struct pairs_layout &l, const float value[CHANNELS],
                                          float *to, int pitch)
{
    __shared__ float sums[WARPS][32 * CHANNELS];
    int lane = threadIdx.x % l.across;
    __syncthreads();
#pragma unroll
    for (int v = 0; v < CHANNELS; v++) {
        float total = value[v];
        for (int step = 16; step >= l.across; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
        if (threadIdx.x % 32 < l.across) sums[threadIdx.x / 32][lane * CHANNELS + v] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < l.across * CHANNELS; i += THREADS) {
        int channel = blockIdx.x * l.across * CHANNELS + i;
        float total = 0;
        for (int warp = 0; warp < WARPS; warp++) total += sums[warp][i];
        if (channel < l.c) to[(int64_t)channel * pitch] = total;
    }
}

/* Tensors of the walks that write pixels. `shares`: [blocks below one another][sum, squares][channel], or
 * NULL. */
template <class T> struct pairs_tensors {
    T *to;
    const T *from, *weight, *bias;
    bool turned;
    float *shares;
};

/* y from x, or with turned weights d_x from d_y at stride 1. After row p * stride - pad + k - 1 of x, row p
 * of y is complete: sum[0]; sum[a] is row p + a. Rows are read `stride` for each step. */
template <class T, int k, int stride>
__global__ void __launch_bounds__(THREADS, k == 7 ? 2 : 3)
pairs_forward_kernel(struct pairs_layout l, struct pairs_tensors<T> t)
{
    constexpr int pad = k / 2, active = (k - 1) / stride + 1, wide = (COLUMNS - 1) * stride + k;
    int channel = pairs_channel(l), index = first_walk(l);
    float total[2][CHANNELS] = {};
    if (index < l.walks && channel < l.c) {
        float w[k * k][CHANNELS], bias[CHANNELS] = {}, sum[active][COLUMNS][CHANNELS] = {};
        load_weights<T, k * k>(w, t.weight, channel, t.turned);
#pragma unroll
        for (int v = 0; v < CHANNELS; v++)
            if (t.bias) bias[v] = to_float(t.bias[channel + v]);
        pairs_walk at = walk_at(l, index, l.out[0]);
        const T *from = t.from + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        T *to = t.to + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
        int begin = at.first - (k - 1) / stride, row = begin * stride - pad + k - stride;
        int left = at.column * stride - pad;
        auto next = read_line<T, wide>(from, l.in, l.c, row, left);
        move_up<active, active>(sum, bias);
        for (int p = begin; p < at.last; p++) {
#pragma unroll
            for (int j = 0; j < stride; j++, row++) {
                float pixel[wide][CHANNELS];
                unpack_line(pixel, next);
                next = read_line<T, wide>(from, l.in, l.c, row + 1, left);
                if ((unsigned)row >= (unsigned)l.in[0]) continue;
#pragma unroll
                for (int a = 0; a < active; a++) {
                    const int r = k - stride + j - stride * a;
                    if (r < 0) continue;
#pragma unroll
                    for (int s = 0; s < k; s++)
#pragma unroll
                        for (int i = 0; i < COLUMNS; i++)
                            add_product(sum[a][i], pixel[i * stride + s], w[r * k + s]);
                }
            }
            if (p >= at.first)
                store_strip(to, l.out, l.c, p, at.column, sum[0], t.shares ? total : NULL);
            move_up<active, 1>(sum, bias);
        }
    }
    if (!t.shares) return;
    for (int i = 0; i < 2; i++)
        write_share(l, total[i], t.shares + ((int64_t)blockIdx.y * 2 + i) * l.c, 1);
}

/* d_x from d_y at stride 2: row p of d_y adds to k rows of d_x from 2p - pad on, of which the first two are
 * then complete. */
template <class T, int k>
__global__ void __launch_bounds__(THREADS, k == 7 ? 2 : 3)
pairs_backward_kernel(struct pairs_layout l, struct pairs_tensors<T> t)
{
    constexpr int pad = k / 2, before = pad / 2, wide = before + (COLUMNS - 1 + pad) / 2 + 1;
    const float zero[CHANNELS] = {};
    int channel = pairs_channel(l), index = first_walk(l);
    if (index >= l.walks || channel >= l.c) return;
    float w[k * k][CHANNELS], sum[k][COLUMNS][CHANNELS] = {};
    load_weights<T, k * k>(w, t.weight, channel, false);
    pairs_walk at = walk_at(l, index, l.in[0]);
    const T *from = t.from + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
    T *to = t.to + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
    int begin = (at.first + pad) / 2 - (k - 1) / 2, end = (at.last - 1 + pad) / 2;
    auto next = read_line<T, wide>(from, l.out, l.c, begin, at.column / 2 - before);
    for (int p = begin; p <= end; p++) {
        float d[wide][CHANNELS];
        unpack_line(d, next);
        next = read_line<T, wide>(from, l.out, l.c, p + 1, at.column / 2 - before);
#pragma unroll
        for (int r = 0; r < k; r++)
#pragma unroll
            for (int s = 0; s < k; s++)
#pragma unroll
                for (int i = 0; i < COLUMNS; i++) {
                    if ((i + pad + s) % 2 != 0) continue;
                    const int q = before + (i + 2 * k + pad - s) / 2 - k;
                    add_product(sum[r][i], d[q], w[r * k + s]);
                }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int row = 2 * p - pad + j;
            if (row >= at.first && row < at.last) store_strip(to, l.in, l.c, row, at.column, sum[j], NULL);
        }
        move_up<k, 2>(sum, zero);
    }
}

/* Each block's share of the weights' gradient: shares[blockIdx.y][channel][tap]. Rows of x come as in
 * forward; d[a] is row p + a of d_y, zero where that is another walk's. */
template <class T, int k, int stride>
__global__ void __launch_bounds__(THREADS, 3)
pairs_weights_kernel(struct pairs_layout l, float *shares, const T *x, const T *d_y)
{
    constexpr int pad = k / 2, active = (k - 1) / stride + 1, wide = (COLUMNS - 1) * stride + k;
    const float zero[CHANNELS] = {};
    int channel = pairs_channel(l);
    float sum[k * k][CHANNELS] = {};
    int step = gridDim.y * (THREADS / l.across);
    for (int index = first_walk(l); channel < l.c && index < l.walks; index += step) {
        pairs_walk at = walk_at(l, index, l.out[0]);
        const T *from = x + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        const T *gradient = d_y + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
        int own[2] = {at.last, l.out[1]};
        int begin = at.first - (k - 1) / stride, row = begin * stride - pad + k - stride;
        int left = at.column * stride - pad;
        float d[active][COLUMNS][CHANNELS] = {};
        auto next = read_line<T, wide>(from, l.in, l.c, row, left);
        auto coming = read_line<T, COLUMNS>(gradient, own, l.c, begin + active - 1, at.column);
        for (int p = begin; p < at.last; p++) {
            unpack_line(d[active - 1], coming);
            coming = read_line<T, COLUMNS>(gradient, own, l.c, p + active, at.column);
#pragma unroll
            for (int j = 0; j < stride; j++, row++) {
                float pixel[wide][CHANNELS];
                unpack_line(pixel, next);
                next = read_line<T, wide>(from, l.in, l.c, row + 1, left);
                if ((unsigned)row >= (unsigned)l.in[0]) continue;
#pragma unroll
                for (int a = 0; a < active; a++) {
                    const int r = k - stride + j - stride * a;
                    if (r < 0) continue;
#pragma unroll
                    for (int s = 0; s < k; s++)
#pragma unroll
                        for (int i = 0; i < COLUMNS; i++)
                            add_product(sum[r * k + s], pixel[i * stride + s], d[a][i]);
                }
            }
            move_up<active, 1>(d, zero);
        }
    }
#pragma unroll
    for (int tap = 0; tap < k * k; tap++)
        write_share(l, sum[tap], shares + (int64_t)blockIdx.y * l.c * k * k + tap, k * k);
}

/* The threads in a row that leave the fewest without channels. */
static int threads_across(int lanes)
{
    int best = 32;
    for (int across = 16; across >= 8; across /= 2)
        if (div_up(lanes, across) * across < div_up(lanes, best) * best) best = across;
    return best;
}

static struct pairs_layout pairs_layout(const struct conv_problem *p, int multiprocessors, dim3 *grid)
{
    bool spreads = p->phase == PHASE_BACKWARD_DATA && p->stride[0] == 2;
    struct pairs_layout l = {.c = p->c, .in = {p->in[0], p->in[1]}, .out = {p->out[0], p->out[1]}};
    int height = spreads ? p->in[0] : p->out[0], width = spreads ? p->in[1] : p->out[1];
    int lanes = p->c / CHANNELS;
    l.across = threads_across(lanes);
    l.strips = div_up(width, COLUMNS);
    int64_t threads = (int64_t)p->n * l.strips * lanes, wanted = (int64_t)BLOCKS * THREADS * multiprocessors;
    int64_t segments = div_up(wanted, threads), most = div_up(height, SHORTEST);
    l.segments = (int)(segments < most ? segments : most);
    l.rows = div_up(height, l.segments);
    l.segments = div_up(height, l.rows);
    l.walks = p->n * l.segments * l.strips;
    unsigned wide = (unsigned)div_up(lanes, l.across), blocks = (unsigned)div_up(l.walks, THREADS / l.across);
    unsigned shares = (unsigned)div_up(SHARES * multiprocessors, (int)wide);
    *grid = dim3(wide, p->phase == PHASE_BACKWARD_PARAMS && shares < blocks ? shares : blocks);
    return l;
}

/* Numbers that every block sums for every channel. */
static int share_numbers(const struct conv_problem *p)
{
    if (p->phase == PHASE_BACKWARD_PARAMS) return p->kernel[0] * p->kernel[1];
    return p->sums ? 2 : 0;
}

template <class T, int k, int stride>
static enum status pairs_run_phase(const struct conv_problem *p, const struct call *call)
{
    struct conv_operands at = conv_operands(call);
    const T *weight = (const T *)at.weight;
    T *x = (T *)at.x, *y = (T *)at.y;
    float *shares = (float *)call->workspace;
    dim3 grid;
    struct pairs_layout l = pairs_layout(p, cuda_facts(call->device)->multiprocessors, &grid);
    if constexpr (k == 3)
        if (p->phase == PHASE_BACKWARD_PARAMS) {
            pairs_weights_kernel<T, k, stride><<<grid, THREADS, 0, stream_of(call)>>>(l, shares, x, y);
            TRY(launched(call));
            return conv_sum_shares(call, (float *)at.weight, shares, (int)grid.y, p->c * k * k);
        }
    struct pairs_tensors<T> t = {y, x, weight, p->bias ? (const T *)at.bias : NULL, false,
                                 p->sums ? shares : NULL};
    if (p->phase == PHASE_BACKWARD_DATA) t = {x, y, weight, NULL, stride == 1, NULL};
    auto kernel = pairs_forward_kernel<T, k, stride>;
    if constexpr (stride == 2)
        if (p->phase == PHASE_BACKWARD_DATA) kernel = pairs_backward_kernel<T, k>;
    kernel<<<grid, THREADS, 0, stream_of(call)>>>(l, t);
    TRY(launched(call));
    return t.shares ? conv_sum_shares(call, (float *)call->sums.data, shares, (int)grid.y, 2 * p->c) : OK;
}

template <class T> static enum status pairs_run_kernel(const struct conv_problem *p, const struct call *call)
{
    bool strided = p->stride[0] == 2;
    if (p->kernel[0] == 7) return pairs_run_phase<T, 7, 1>(p, call);
    if (p->kernel[0] == 5)
        return strided ? pairs_run_phase<T, 5, 2>(p, call) : pairs_run_phase<T, 5, 1>(p, call);
    return strided ? pairs_run_phase<T, 3, 2>(p, call) : pairs_run_phase<T, 3, 1>(p, call);
}

static enum status pairs_run(const struct conv_plan *plan, const struct call *call,
                             const struct conv_tools *tools)
{
    (void)tools;
    const struct conv_problem *p = &plan->problem;
    return with_type(p->dtype, [&](auto type) { return pairs_run_kernel<decltype(type)>(p, call); });
}

#define GRID_MAX 65535               /* of blocks in the grid's second dimension */

static bool is_ours(const struct conv_problem *p, const struct conv_tools *tools)
{
    int k = p->kernel[0], stride = p->stride[0];
    if (p->groups != p->c || p->k != p->c || p->c % CHANNELS != 0) return false;
    if (k == 3 && p->c % 4 == 0 && !p->bias) return false;
    if (k > 3 && p->phase == PHASE_BACKWARD_PARAMS) return false;     /* others are twice as fast */
    if ((k != 3 && k != 5 && k != 7) || (stride != 1 && (stride != 2 || k == 7))) return false;
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != k || p->pad[i] != k / 2 || p->dilation[i] != 1 || p->stride[i] != stride)
            return false;
    dim3 grid;
    pairs_layout(p, cuda_facts(tools->device)->multiprocessors, &grid);
    return grid.y <= GRID_MAX;
}

static int pairs_candidates(const struct conv_problem *problem, const struct conv_tools *tools, int most,
                            char names[][CANDIDATE_NAME])
{
    if (most < 1 || !is_ours(problem, tools)) return 0;
    snprintf(names[0], CANDIDATE_NAME, "pairs");
    return 1;
}

static bool pairs_make(struct conv_plan *plan, const struct conv_tools *tools)
{
    const struct conv_problem *p = &plan->problem;
    if (!is_ours(p, tools)) return false;
    dim3 grid;
    pairs_layout(p, cuda_facts(tools->device)->multiprocessors, &grid);
    plan->workspace = (size_t)grid.y * p->c * share_numbers(p) * sizeof(float);
    plan->gives_sums = p->sums;
    return true;
}

static void pairs_release(struct conv_plan *plan)
{
    (void)plan;
}

const struct conv_algorithm conv_by_pairs = {
    .name = "pairs",
    .candidates = pairs_candidates,
    .make = pairs_make,
    .release = pairs_release,
    .run = pairs_run,
};
