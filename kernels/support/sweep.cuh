/* sweep.cuh: the mapping of blocks to rows of channels in kernels that compute sums by channel. */
#pragma once

#include "kernels/norm/batchnorm.cuh"

namespace batchnorm_parts {

constexpr int unroll = 4;             /* rows of a thread in flight */
constexpr int64_t blocks_max = 1024; /* of a first sweep */
constexpr int segment = 512;          /* bytes of a row that a block takes, about: wide enough for memory, and
                                         with few sums to leave */

/* How a sweep's blocks lie over memory: x side by side on rows, y below one another. */
struct sweep {
    int64_t rows, tiles;       /* a tile: `unroll` rows for every lane */
    int64_t channels;
    int columns, span, lanes;  /* packs of a row; those of a block; rows that it has at once */
};

static inline struct sweep sweep_open(const struct tensor *x, int width)
{
    struct sweep s = {};
    s.channels = x->shape.c;
    s.rows = shape_count(x->shape) / s.channels;
    s.columns = (int)(s.channels / width);
    int most = segment / (width * (int)dtype_bytes(x->dtype));
    s.span = div_up(s.columns, div_up(s.columns, most < threads ? most : threads));
    s.lanes = threads / s.span;
    s.tiles = div_up(s.rows, (int64_t)s.lanes * unroll);
    return s;
}

/* Blocks below one another, if there are `blocks` in all. */
static inline int64_t sweep_height(const struct sweep *s, int64_t blocks)
{
    int64_t height = div_up(blocks, (int64_t)div_up(s->columns, s->span));
    return s->tiles < height ? s->tiles : height;
}

static inline dim3 sweep_grid(const struct call *call, const struct sweep *s, int per_multiprocessor)
{
    int64_t blocks = (int64_t)cuda_facts(call->device)->multiprocessors * per_multiprocessor;
    int64_t height = sweep_height(s, blocks < blocks_max ? blocks : blocks_max);
    return dim3((unsigned)height, (unsigned)div_up(s->columns, s->span));
}

/* A thread's position in a sweep. */
struct sweep_position {
    int lane, column, channel;
    bool here;                 /* false for threads beyond the last lane or column */
};

template <int width> __device__ static inline sweep_position sweep_position_of(const struct sweep &s)
{
    int lane = threadIdx.x / s.span, column = blockIdx.y * s.span + threadIdx.x % s.span;
    return {lane, column, column * width, lane < s.lanes && column < s.columns};
}

/* A thread's rows in a tile, and where its part of each begins. */
struct tile_rows {
    int64_t first, at, step;
    int lanes, count;          /* how many of them there are */
    __device__ int64_t operator[](int j) const { return at + j * step; }
};

__device__ static inline tile_rows rows_of(const struct sweep &s, const sweep_position &p, int64_t tile)
{
    int64_t first = tile * s.lanes * unroll + p.lane, left = (s.rows - first + s.lanes - 1) / s.lanes;
    return {first, first * s.channels + p.channel, s.lanes * s.channels, s.lanes,
            left >= unroll ? unroll : left > 0 ? (int)left : 0};
}

/* Rows of a tile that has all of them, as nearly all do: no row needs a test. */
struct full_rows : tile_rows {
    static constexpr int count = unroll;
    __device__ full_rows(const tile_rows &rows) : tile_rows(rows) {}
};

/* Calls work(rows), for rows of a full tile as such. */
template <class Work> __device__ static inline void with_rows(const tile_rows &rows, Work work)
{
    if (rows.count == unroll) work(full_rows(rows));
    else work(rows);
}

template <class T, int width, class Rows>
__device__ static inline void load_rows(cell<T, width> (&to)[unroll], const T *from, const Rows &rows)
{
#pragma unroll
    for (int j = 0; j < unroll; j++)
        if (j < rows.count) to[j] = load<T, width>(from + rows[j]);
}

/* True if kernels for this can use a mask: its bytes are of eight channels, and suffice for relu. */
template <int width, enum act act> constexpr bool can_mask = width == 8 && act == ACT_RELU;

/* A byte of the mask for eight channels. */
template <class T, int width, enum side by, class Rows>
__device__ static inline void load_sides(side_cell<T, width, by> (&to)[unroll], const gradients<T> &g,
                                         const Rows &rows)
{
    if constexpr (by == SIDE_MASK) {
#pragma unroll
        for (int j = 0; j < unroll; j++)
            if (j < rows.count) to[j].mask = g.mask[rows[j] / 8];
    } else if constexpr (by == SIDE_Y) {
#pragma unroll
        for (int j = 0; j < unroll; j++)
            if (j < rows.count) to[j].y = load<T, width>(g.y + rows[j]);
    }
}

/* Both of a block's sums, for its columns: parts[part][which][channel]. */
template <int width>
__device__ static inline void leave_part(const struct sweep &s, const sweep_position &p,
                                         const tally<width> &t, float *parts)
{
    if (!p.here || p.lane != 0) return;
    float *at = parts + (int64_t)blockIdx.x * 2 * s.channels + p.channel;
#pragma unroll
    for (int i = 0; i < width; i++) at[i] = t.first[i], at[s.channels + i] = t.second[i];
}

}
