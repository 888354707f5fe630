/* conv_depthwise.cu: convolution of each channel by itself (groups = c = k): square kernels of 3, 5 or 7 with as much
 * padding as keeps the image's size, stride 1 or 2.
 *
 * A thread works on a few neighbouring channels and on tiles of a few rows and columns; a block on a run of tiles, one
 * after the other, so that what neighbours share is read from memory once and then found in the first cache. */
#include "kernels/conv_cuda.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define COLUMNS 4                    /* of a tile */
#define GRID_MOST 65535              /* of blocks in the grid's second dimension */

/* Channels of one thread: as many as the registers hold weights for. */
template <int kernel> constexpr int channels_of = kernel == 3 ? 4 : kernel == 5 ? 2 : 1;

/* Rows of a tile of outputs: with stride 2 neighbours share too little. */
template <int stride> constexpr int rows_of = stride == 1 ? 2 : 1;

template <class T, int width> struct alignas(width * sizeof(T)) chunk {
    T at[width];
};

/* How the work is laid out. Blocks are `across` threads wide in channels; each takes `run` tiles. */
struct layout {
    int c, in[2], out[2];
    int across;
    unsigned tiles_down, tiles_across, tiles, run;
};

/* Where a tile lies. */
struct place {
    int n, row, column;
};

__device__ static inline struct place tile_place(const struct layout &l, unsigned tile, int rows)
{
    unsigned line = tile / l.tiles_across, n = line / l.tiles_down;
    return {(int)n, (int)(line - n * l.tiles_down) * rows, (int)(tile - line * l.tiles_across) * COLUMNS};
}

/* `count` neighbouring pixels of one row, from column `left` on; outside the image they are zero. `image` points to the
 * thread's channels in the image's first pixel. */
template <class T, int width, int count>
__device__ static inline void load_row(float to[count][width], const T *image, const int size[2], int c, int row, int left)
{
    bool inside = row >= 0 && row < size[0];
    int first = (row * size[1] + left) * c;
#pragma unroll
    for (int i = 0; i < count; i++) {
        chunk<T, width> got = {};
        if (inside && left + i >= 0 && left + i < size[1]) got = *(const chunk<T, width> *)(image + (first + i * c));
#pragma unroll
        for (int v = 0; v < width; v++) to[i][v] = to_float(got.at[v]);
    }
}

template <class T, int width>
__device__ static inline chunk<T, width> store_pixel(T *image, const int size[2], int c, int row, int column,
                                                     const float value[width])
{
    chunk<T, width> out;
#pragma unroll
    for (int v = 0; v < width; v++) out.at[v] = from_float<T>(value[v]);
    *(chunk<T, width> *)(image + (row * size[1] + column) * c) = out;
    return out;
}

/* The weights of a thread's channels, tap by tap; turned by half a circle for the data gradient. */
template <class T, int kernel, int width>
__device__ static inline void load_weights(float to[kernel * kernel][width], const T *weight, int channel, bool turned)
{
    constexpr int taps = kernel * kernel;
#pragma unroll
    for (int tap = 0; tap < taps; tap++)
#pragma unroll
        for (int v = 0; v < width; v++)
            to[tap][v] = to_float(weight[(channel + v) * taps + (turned ? taps - 1 - tap : tap)]);
}

/* The block's sum of what its threads have for each channel, `count` numbers a channel:
 * shares[blockIdx.y][number][channel]. `sums` is shared memory for a share of every warp. */
template <int width, int count>
__device__ static inline void write_share(const struct layout &l, float value[count][width], float *sums, float *shares,
                                          bool number_last)
{
    int lane = threadIdx.x % l.across, wide = l.across * width, share = wide * count;
    float *mine = sums + threadIdx.x / 32 * share + lane * width;
#pragma unroll
    for (int i = 0; i < count; i++)
#pragma unroll
        for (int v = 0; v < width; v++) {
            float total = value[i][v];
            for (int step = 16; step >= l.across; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
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

/* y from x; with stride 1 and turned weights, d_x from d_y. Where `shares` is not NULL it gets the sums of y and of
 * its squares. */
template <class T, int kernel, int stride, bool summed>
__global__ void __launch_bounds__(THREADS, 2)
    forward_kernel(struct layout l, T *y, const T *x, const T *weight, bool turned, float *shares)
{
    constexpr int width = channels_of<kernel>, pad = kernel / 2, rows = rows_of<stride>;
    constexpr int columns = (COLUMNS - 1) * stride + kernel;
    extern __shared__ float warp_sums[];
    int channel = (blockIdx.x * l.across + threadIdx.x % l.across) * width;
    float w[kernel * kernel][width], total[2][width] = {};
    load_weights<T, kernel, width>(w, weight, channel, turned);
    unsigned first = blockIdx.y * l.run, end = min(first + l.run, l.tiles);
    for (unsigned tile = first + threadIdx.x / l.across; tile < end; tile += THREADS / l.across) {
        struct place at = tile_place(l, tile, rows);
        const T *from = x + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        T *to = y + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
        float sum[rows][COLUMNS][width] = {};
#pragma unroll
        for (int i = 0; i < (rows - 1) * stride + kernel; i++) {
            float line[columns][width];
            load_row<T, width, columns>(line, from, l.in, l.c, at.row * stride - pad + i, at.column * stride - pad);
#pragma unroll
            for (int row = 0; row < rows; row++) {
                int r = i - row * stride;
                if (r < 0 || r >= kernel) continue;
#pragma unroll
                for (int s = 0; s < kernel; s++)
#pragma unroll
                    for (int column = 0; column < COLUMNS; column++)
#pragma unroll
                        for (int v = 0; v < width; v++)
                            sum[row][column][v] += line[column * stride + s][v] * w[r * kernel + s][v];
            }
        }
#pragma unroll
        for (int row = 0; row < rows; row++)
#pragma unroll
            for (int column = 0; column < COLUMNS; column++) {
                if (at.row + row >= l.out[0] || at.column + column >= l.out[1]) continue;
                chunk<T, width> stored = store_pixel<T, width>(to, l.out, l.c, at.row + row, at.column + column,
                                                               sum[row][column]);
                for (int v = 0; summed && v < width; v++) {
                    float value = to_float(stored.at[v]);
                    total[0][v] += value;
                    total[1][v] += value * value;
                }
            }
    }
    if (summed) write_share<width, 2>(l, total, warp_sums, shares, false);
}

/* d_x from d_y for stride 2: tiles are 2 rows of d_x and begin at even rows and columns, so that which taps meet which
 * pixel is known when this is compiled. Pixel i of a tile meets output pixel (i + pad - tap) / 2 of it, if that is
 * whole. */
template <class T, int kernel>
__global__ void __launch_bounds__(THREADS, 2) backward_data_kernel(struct layout l, T *d_x, const T *d_y, const T *weight)
{
    constexpr int width = channels_of<kernel>, pad = kernel / 2;
    constexpr int before = (kernel - 1 - pad) / 2, lines = before + (1 + pad) / 2 + 1;
    constexpr int columns = before + (COLUMNS - 1 + pad) / 2 + 1;
    int channel = (blockIdx.x * l.across + threadIdx.x % l.across) * width;
    float w[kernel * kernel][width];
    load_weights<T, kernel, width>(w, weight, channel, false);
    unsigned first = blockIdx.y * l.run, end = min(first + l.run, l.tiles);
    for (unsigned tile = first + threadIdx.x / l.across; tile < end; tile += THREADS / l.across) {
        struct place at = tile_place(l, tile, 2);
        const T *from = d_y + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
        T *to = d_x + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        float sum[2][COLUMNS][width] = {};
#pragma unroll
        for (int i = 0; i < lines; i++) {
            float line[columns][width];
            load_row<T, width, columns>(line, from, l.out, l.c, at.row / 2 - before + i, at.column / 2 - before);
#pragma unroll
            for (int tap = 0; tap < kernel * kernel; tap++)
#pragma unroll
                for (int pixel = 0; pixel < 2 * COLUMNS; pixel++) {
                    int row = pixel / COLUMNS, column = pixel % COLUMNS;
                    int down = row + pad - tap / kernel, right = column + pad - tap % kernel + 2 * before;
                    if (down != 2 * (i - before) || right % 2 != 0) continue;
#pragma unroll
                    for (int v = 0; v < width; v++) sum[row][column][v] += line[right / 2][v] * w[tap][v];
                }
        }
#pragma unroll
        for (int pixel = 0; pixel < 2 * COLUMNS; pixel++) {
            int row = pixel / COLUMNS, column = pixel % COLUMNS;
            if (at.row + row < l.in[0] && at.column + column < l.in[1])
                store_pixel<T, width>(to, l.in, l.c, at.row + row, at.column + column, sum[row][column]);
        }
    }
}

/* Each block's share of the weights' gradient: shares[blockIdx.y][channel][tap]. Tiles lie in d_y. */
template <class T, int kernel, int stride>
__global__ void __launch_bounds__(THREADS, 2) weight_shares_kernel(struct layout l, float *shares, const T *x, const T *d_y)
{
    constexpr int width = channels_of<kernel>, pad = kernel / 2, rows = rows_of<stride>;
    constexpr int columns = (COLUMNS - 1) * stride + kernel, taps = kernel * kernel;
    extern __shared__ float warp_sums[];
    int channel = (blockIdx.x * l.across + threadIdx.x % l.across) * width;
    float sum[taps][width] = {};
    unsigned first = blockIdx.y * l.run, end = min(first + l.run, l.tiles);
    for (unsigned tile = first + threadIdx.x / l.across; tile < end; tile += THREADS / l.across) {
        struct place at = tile_place(l, tile, rows);
        const T *from = x + (int64_t)at.n * l.in[0] * l.in[1] * l.c + channel;
        const T *gradient = d_y + (int64_t)at.n * l.out[0] * l.out[1] * l.c + channel;
        float d[rows][COLUMNS][width];
#pragma unroll
        for (int row = 0; row < rows; row++)
            load_row<T, width, COLUMNS>(d[row], gradient, l.out, l.c, at.row + row, at.column);
#pragma unroll
        for (int i = 0; i < (rows - 1) * stride + kernel; i++) {
            float line[columns][width];
            load_row<T, width, columns>(line, from, l.in, l.c, at.row * stride - pad + i, at.column * stride - pad);
#pragma unroll
            for (int row = 0; row < rows; row++) {
                int r = i - row * stride;
                if (r < 0 || r >= kernel) continue;
#pragma unroll
                for (int s = 0; s < kernel; s++)
#pragma unroll
                    for (int column = 0; column < COLUMNS; column++)
#pragma unroll
                        for (int v = 0; v < width; v++)
                            sum[r * kernel + s][v] += line[column * stride + s][v] * d[row][column][v];
            }
        }
    }
    write_share<width, taps>(l, sum, warp_sums, shares, true);
}

/* Tiles of `rows` cover images of `size`. */
static struct layout layout_make(const struct conv_problem *p, const int size[2], int rows)
{
    struct layout l = {.c = p->c, .in = {p->in[0], p->in[1]}, .out = {p->out[0], p->out[1]}};
    int lanes = p->c / (p->kernel[0] == 3 ? 4 : p->kernel[0] == 5 ? 2 : 1);
    l.across = p->kernel[0] == 3 ? 8 : 32;
    while (lanes % l.across != 0) l.across /= 2;
    l.tiles_down = (unsigned)div_up(size[0], rows);
    l.tiles_across = (unsigned)div_up(size[1], COLUMNS);
    l.tiles = (unsigned)p->n * l.tiles_down * l.tiles_across;
    return l;
}

/* Runs that fill each multiprocessor with about `blocks` blocks in all, one after the other; how many. */
static unsigned runs_make(struct layout *l, unsigned wide, int multiprocessors, unsigned blocks)
{
    unsigned step = THREADS / l->across, most = div_up(l->tiles, step);
    unsigned wanted = div_up(blocks * (unsigned)multiprocessors, wide);
    if (wanted > GRID_MOST) wanted = GRID_MOST;
    l->run = div_up(most, wanted) * step;
    return div_up(l->tiles, l->run);
}

#define BLOCKS 8
#define SHARE_BLOCKS 4

/* The layout of a phase, and its grid. */
template <int kernel>
static struct layout grid_make(const struct conv_problem *p, int multiprocessors, dim3 *grid)
{
    bool data = p->phase == PHASE_BACKWARD_DATA, params = p->phase == PHASE_BACKWARD_PARAMS;
    int rows = p->stride[0] == 1 || data ? 2 : 1;
    struct layout l = layout_make(p, data ? p->in : p->out, rows);
    unsigned wide = (unsigned)(p->c / channels_of<kernel> / l.across);
    *grid = dim3(wide, runs_make(&l, wide, multiprocessors, params ? SHARE_BLOCKS : BLOCKS));
    return l;
}

/* Numbers that every block sums for every channel. */
static int share_numbers(const struct conv_problem *p)
{
    if (p->phase == PHASE_BACKWARD_PARAMS) return p->kernel[0] * p->kernel[1];
    return p->sums ? 2 : 0;
}

template <class T, int kernel> static enum status run_phase(const struct conv_problem *p, const struct call *call)
{
    struct conv_operands at = conv_operands(call);
    const T *weight = (const T *)at.weight;
    T *x = (T *)at.x, *y = (T *)at.y;
    float *shares = (float *)call->workspace;
    cudaStream_t stream = stream_of(call);
    dim3 grid;
    struct layout l = grid_make<kernel>(p, cuda_facts(call->device)->multiprocessors, &grid);
    size_t shared = (size_t)WARPS * l.across * channels_of<kernel> * share_numbers(p) * sizeof(float);
    bool once = p->stride[0] == 1;
    if (p->phase == PHASE_FORWARD && p->sums) {
        if (once) forward_kernel<T, kernel, 1, true><<<grid, THREADS, shared, stream>>>(l, y, x, weight, false, shares);
        else forward_kernel<T, kernel, 2, true><<<grid, THREADS, shared, stream>>>(l, y, x, weight, false, shares);
        TRY(launched(call));
        return conv_sum_shares(call, (float *)call->sums.data, shares, (int)grid.y, 2 * p->c);
    }
    if (p->phase == PHASE_FORWARD) {
        if (once) forward_kernel<T, kernel, 1, false><<<grid, THREADS, 0, stream>>>(l, y, x, weight, false, NULL);
        else forward_kernel<T, kernel, 2, false><<<grid, THREADS, 0, stream>>>(l, y, x, weight, false, NULL);
        return launched(call);
    }
    if (p->phase == PHASE_BACKWARD_DATA) {
        if (once) forward_kernel<T, kernel, 1, false><<<grid, THREADS, 0, stream>>>(l, x, y, weight, true, NULL);
        else backward_data_kernel<T, kernel><<<grid, THREADS, 0, stream>>>(l, x, y, weight);
        return launched(call);
    }
    if (once) weight_shares_kernel<T, kernel, 1><<<grid, THREADS, shared, stream>>>(l, shares, x, y);
    else weight_shares_kernel<T, kernel, 2><<<grid, THREADS, shared, stream>>>(l, shares, x, y);
    TRY(launched(call));
    return conv_sum_shares(call, (float *)at.weight, shares, (int)grid.y, p->c * kernel * kernel);
}

static enum status run(const struct conv_way *way, const struct call *call, const struct conv_tools *tools)
{
    (void)tools;
    const struct conv_problem *p = &way->problem;
    return with_type(p->dtype, [&](auto type) {
        using T = decltype(type);
        if (p->kernel[0] == 3) return run_phase<T, 3>(p, call);
        if (p->kernel[0] == 5) return run_phase<T, 5>(p, call);
        return run_phase<T, 7>(p, call);
    });
}

static bool is_ours(const struct conv_problem *p)
{
    int kernel = p->kernel[0], stride = p->stride[0];
    if (p->groups != p->c || p->k != p->c || p->bias) return false;
    if ((kernel != 3 && kernel != 5 && kernel != 7) || (stride != 1 && stride != 2)) return false;
    if (p->c % (kernel == 3 ? 4 : kernel == 5 ? 2 : 1) != 0) return false;
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != kernel || p->stride[i] != stride || p->pad[i] != kernel / 2 || p->dilation[i] != 1)
            return false;
    return true;
}

static int offer(const struct conv_problem *problem, const struct conv_tools *tools, int most,
                 char choices[][CONV_CHOICE])
{
    (void)tools;
    if (most < 1 || !is_ours(problem)) return 0;
    snprintf(choices[0], CONV_CHOICE, "depthwise");
    return 1;
}

#define MULTIPROCESSORS 256          /* as many as a device may have, to bound a workspace before one is known */

static bool make(struct conv_way *way, const struct conv_tools *tools)
{
    (void)tools;
    const struct conv_problem *p = &way->problem;
    if (!is_ours(p)) return false;
    dim3 grid;
    if (p->kernel[0] == 3) grid_make<3>(p, MULTIPROCESSORS, &grid);
    else if (p->kernel[0] == 5) grid_make<5>(p, MULTIPROCESSORS, &grid);
    else grid_make<7>(p, MULTIPROCESSORS, &grid);
    way->workspace = (size_t)grid.y * p->c * share_numbers(p) * sizeof(float);
    way->gives_sums = p->sums;
    return true;
}

static void release(struct conv_way *way)
{
    (void)way;
}

const struct conv_kind conv_by_depthwise = {
    .name = "depthwise", .offer = offer, .make = make, .release = release, .run = run,
};
