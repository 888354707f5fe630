/* columns.cuh: sums by channel: gradients of biases and factors, moments of norms.
 *
 * Memory consists of rows of channels, which blocks go through in tiles. A thread has `width` channels and
 * every `lanes`-th row of its block: `span` threads are side by side. Threads of a channel are merged into
 * the sums of a block, which blocks leave in the workspace, where they are added up in a fixed order. */
#pragma once

#include "kernels/support/chunk.cuh"
#include "kernels/support/copy.cuh"
#include "kernels/support/dependent_launch.cuh"

#define COLUMNS_THREADS 256
#define COLUMNS_BLOCKS 1024      /* of a sweep, at most */
#define COLUMNS_SEGMENT 512      /* bytes of a row that a block takes, about: wide enough for memory, and with
                                    few sums to leave */

/* Blocks over rows; a tile: `in_flight` rows of every lane. */
struct columns {
    int64_t rows, tiles, channels;
    int packs, span, lanes, in_flight; /* packs: of `width` channels, of a row */
};

static inline struct columns columns_open(enum dtype dtype, struct shape shape, int width, int in_flight)
{
    struct columns l = {.rows = shape_count(shape) / shape.c, .channels = shape.c, .in_flight = in_flight};
    int most = COLUMNS_SEGMENT / (width * (int)dtype_bytes(dtype));
    l.packs = (int)(l.channels / width);
    l.span = div_up(l.packs, div_up(l.packs, most < COLUMNS_THREADS ? most : COLUMNS_THREADS));
    l.lanes = COLUMNS_THREADS / l.span;
    l.tiles = div_up(l.rows, (int64_t)l.lanes * in_flight);
    return l;
}

/* The blocks below one another, if there are `blocks` in all. */
static inline int64_t columns_depth(const struct columns &l, int64_t blocks)
{
    int64_t depth = div_up(blocks, (int64_t)div_up(l.packs, l.span));
    return l.tiles < 1 ? 1 : l.tiles < depth ? l.tiles : depth;
}

/* So many blocks that a device is full of them, `depth` below one another for each of `images`. */
static inline dim3 columns_grid(const struct call *call, const struct columns &l, int per_multiprocessor,
                                int64_t images = 1)
{
    int64_t blocks = (int64_t)cuda_facts(call->device)->multiprocessors * per_multiprocessor;
    int64_t depth = columns_depth(l, div_up(blocks < COLUMNS_BLOCKS ? blocks : COLUMNS_BLOCKS, images));
    return dim3((unsigned)(depth * images), (unsigned)div_up(l.packs, l.span));
}

/* The bytes of the parts of so many sums, whatever the device. */
static inline size_t columns_bytes(const struct columns &l, int sums, int64_t images = 1)
{
    int64_t depth = columns_depth(l, div_up((int64_t)COLUMNS_BLOCKS, images));
    return sizeof(float) * (size_t)(images * depth * l.channels) * (size_t)sums;
}

/* A thread's position. */
struct columns_place {
    int lane, column, channel; /* column: of the block */
    bool here;                 /* false for threads beyond the last lane or pack */
};

template <int width> __device__ static inline columns_place columns_place_of(const struct columns &l)
{
    int lane = threadIdx.x / l.span, column = threadIdx.x % l.span, pack = blockIdx.y * l.span + column;
    return {lane, column, pack * width, lane < l.lanes && pack < l.packs};
}

/* A thread's rows in a tile, and where its part of each begins. */
struct tile_rows {
    int64_t first, at, step;
    int lanes, count;          /* how many of them there are */
    __device__ int64_t operator[](int j) const { return at + j * step; }
};

__device__ static inline tile_rows rows_of(const struct columns &l, const columns_place &p, int64_t tile)
{
    int64_t first = tile * l.lanes * l.in_flight + p.lane, left = (l.rows - first + l.lanes - 1) / l.lanes;
    return {first, first * l.channels + p.channel, l.lanes * l.channels, l.lanes,
            left >= l.in_flight ? l.in_flight : left > 0 ? (int)left : 0};
}

/* Rows of a tile that has all of them, as nearly all do: no row needs a test. */
template <int in_flight> struct full_rows : tile_rows {
    static constexpr int count = in_flight;
    __device__ full_rows(const tile_rows &rows) : tile_rows(rows) {}
};

/* Calls work(rows), for rows of a full tile as such. */
template <int in_flight, class Work>
__device__ static inline void with_rows(const tile_rows &rows, Work work)
{
    if (rows.count == in_flight) work(full_rows<in_flight>(rows));
    else work(rows);
}

/* Sums of `width` channels. */
template <int sums, int width> struct column_sums {
    float at[sums][width];
};

/* Adds up numbers one by one. */
struct merge_sums {
    template <class V> static __device__ void merge(V &a, const V &b)
    {
#pragma unroll
        for (int i = 0; i < (int)(sizeof(V) / sizeof(float)); i++)
            ((float *)&a)[i] += ((const float *)&b)[i];
    }
};

/* Shared memory for half of a block's values, which consist of floats; odd row lengths avoid bank
 * conflicts. */
template <class V> constexpr int merge_pitch = (int)(sizeof(V) / sizeof(float)) | 1;
template <class V, int threads = COLUMNS_THREADS> using merge_room = float[threads / 2 * merge_pitch<V>];

/* Merges the lanes' values in a fixed order into lane 0's. `span` threads are side by side on a row. */
template <class Merge, class V>
__device__ static inline void merge_lanes(V &mine, int lane, int column, int span, int lanes, float *room)
{
    constexpr int words = sizeof(V) / sizeof(float);
    for (int top = lanes; top > 1;) {
        int half = (top + 1) / 2;
        float *slot = room + ((lane < half ? lane : lane - half) * span + column) * merge_pitch<V>;
        if (lane >= half && lane < top) {
#pragma unroll
            for (int i = 0; i < words; i++) slot[i] = ((float *)&mine)[i];
        }
        __syncthreads();
        if (lane < top - half) {
            V other;
#pragma unroll
            for (int i = 0; i < words; i++) ((float *)&other)[i] = slot[i];
            Merge::merge(mine, other);
        }
        __syncthreads();
        top = half;
    }
}

/* Leaves lane 0's sums: parts[part][sum][channel]. */
template <int sums, int width>
__device__ static inline void leave_sums(const struct columns &l, const columns_place &p, int64_t part,
                                         const float (&sum)[sums][width], float *parts)
{
    if (!p.here || p.lane != 0) return;
    float *at = parts + part * sums * l.channels + p.channel;
#pragma unroll
    for (int k = 0; k < sums; k++)
#pragma unroll
        for (int i = 0; i < width; i++) at[k * l.channels + i] = sum[k][i];
}

/* The sweep's kernel. A body says what is done with a row; it has
 *   width, sums                 channels of a thread; sums of a channel
 *   in_flight, blocks           rows that are loaded before one is used; blocks of a multiprocessor
 *   cells                       what is loaded of a row
 *   begin(body, channel)        reads what belongs to a thread's channels; the body is in constant memory
 *   load(cells, row, at)        loads a row, whose channels begin at the offset `at`
 *   add(cells, row, at, sum)    stores, if it does, and adds to sum[sums][width]
 * It goes backward through memory: what an op before it wrote last is in the cache, and an op after it reads
 * the beginning first. Without parts nothing is added up. */
template <class Body>
__global__ void __launch_bounds__(COLUMNS_THREADS, Body::blocks)
columns_kernel(const __grid_constant__ Body body, const __grid_constant__ struct columns l, int depth,
               float *parts)
{
    column_sums<Body::sums, Body::width> sum = {};
    __shared__ merge_room<decltype(sum)> room;
    columns_place p = columns_place_of<Body::width>(l);
    unsigned image = blockIdx.x / depth, part = blockIdx.x - image * depth;
    int64_t first_row = image * l.rows, start = first_row * l.channels;
    Body mine = body;
    let_next_begin();
    if (p.here) mine.begin(body, p.channel);
    for (int64_t tile = l.tiles - 1 - part; p.here && tile >= 0; tile -= depth)
        with_rows<Body::in_flight>(rows_of(l, p, tile), [&](const auto &rows) {
            typename Body::cells got[Body::in_flight];
#pragma unroll
            for (int j = 0; j < Body::in_flight; j++)
                if (j < rows.count)
                    mine.load(got[j], first_row + rows.first + j * rows.lanes, start + rows[j]);
#pragma unroll
            for (int j = 0; j < Body::in_flight; j++)
                if (j < rows.count)
                    mine.add(got[j], first_row + rows.first + j * rows.lanes, start + rows[j], sum.at);
        });
    if (!parts) return;
    merge_lanes<merge_sums>(sum, p.lane, p.column, l.span, l.lanes, room);
    leave_sums(l, p, blockIdx.x, sum.at, parts);
}

/* The sums of blocks: parts[image][count][sums][channels]. */
struct column_parts {
    const float *at;
    int count, sums, channels;
};

/* Runs a body over images of x's rows, each with sums of its own; `parts` may be NULL. */
template <class Body>
static enum status columns_sweep(const struct call *call, const Body &body, const struct columns &l,
                                 int64_t images, float *parts, struct column_parts *left)
{
    dim3 grid = columns_grid(call, l, Body::blocks, images);
    int depth = (int)(grid.x / images);
    columns_kernel<<<grid, COLUMNS_THREADS, 0, stream_of(call)>>>(body, l, depth, parts);
    *left = {parts, depth, Body::sums, (int)l.channels};
    return launched(call);
}

/* Adds up an image's parts to the first sum and the second, [channels] each. A NULL is not written. */
enum status columns_finish(const struct call *call, const struct column_parts &parts, float *first,
                           float *second = NULL);

/* Both, for rows of the shape. */
template <class Body>
static enum status columns_run(const struct call *call, const Body &body, enum dtype dtype,
                               struct shape shape, float *parts, float *first, float *second = NULL)
{
    struct column_parts left;
    TRY(columns_sweep(call, body, columns_open(dtype, shape, Body::width, Body::in_flight), 1, parts, &left));
    return parts ? columns_finish(call, left, first, second) : OK;
}

/* y [n, h, w, c] summed over all but its channels into to[c], and with `squares` y * y into to[c..2c), in a
 * workspace of columns_workspace bytes. */
size_t columns_workspace(const struct tensor *y, bool squares);
enum status columns_sum(const struct call *call, const struct tensor *y, float *to, bool squares);
/* Without squares, of those y whose `number` is not `left_out`. */
enum status columns_sum_where(const struct call *call, const struct tensor *y, float *to,
                              const uint8_t *numbers, int left_out);
/* Copies the picked pixels of x and adds them up; the workspace is that of the picked. */
enum status columns_sum_picked(const struct call *call, const struct pick *pick, void *picked, const void *x,
                               float *to);
