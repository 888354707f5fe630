/* gram.cu: a tile of x is normalised where it lies in shared memory, unless it is only measured, stored from
 * there, and multiplied by itself: a group of warps has a'a of its tiles in registers. The last tiles come
 * first: what was written last of x is still in the cache. */
#include "kernels/norm/gram.cuh"

#include "kernels/support/columns.cuh"
#include "kernels/support/dependent_launch.cuh"
#include "kernels/support/tiles.cuh"

using namespace tiles;
using batchnorm_parts::cell;
using batchnorm_parts::channel_values;
using batchnorm_parts::factors;

__host__ __device__ constexpr int groups_of(int columns) { return columns == 64 ? 3 : 2; }

struct gram_problem : problem {
    channel_values values;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int columns> using gram_block = block<groups_of(columns), columns>;

/* A thread's cells of a tile: of one column of cells, so that its factors stay in registers; rows that are a
 * multiple of eight apart, so that all are permuted alike. */
template <int columns> struct gram_cells {
    static constexpr int across = columns / 8, step = 128 / across, count = tiles::tile_rows / step;
    int column, row, offset;
    __device__ gram_cells() : column(threadIdx.x % across), row(threadIdx.x % 128 / across)
    {
        offset = column / 8 * side_bytes + row * row_bytes + ((column % 8 ^ row % 8) << 4);
    }
    __device__ uint8_t *of(uint8_t *tile, int i) const { return tile + offset + i * step * row_bytes; }
};

/* Adds up a; if it normalises, writes it over x, 0 from the row on at which the tensor ends. */
template <class T, bool normalises, int columns>
__device__ static inline void sum_tile(const gram_cells<columns> &at, const factors<8> &f, uint8_t *tile,
                                       int64_t rows, float (&sums)[8])
{
    constexpr int count = gram_cells<columns>::count;
    cell<T, 8> a[count];
#pragma unroll
    for (int i = 0; i < count; i++) a[i] = batchnorm_parts::load<T, 8>(at.of(tile, i));
#pragma unroll
    for (int i = 0; i < count; i++) {
        if (normalises) {
            a[i] = batchnorm_parts::normalise_cell<ACTIVATION_RELU, false>(f, 0, a[i], a[i]);
            if (at.row + i * at.step >= rows) a[i].packed = make_uint4(0, 0, 0, 0);
            *(cell<T, 8> *)at.of(tile, i) = a[i];
        }
#pragma unroll
        for (int k = 0; k < 8; k++) sums[k] += a[i].get(k);
    }
}

/* Begins to add a'a of a tile, 64 rows of it a side. */
template <class T, int columns>
__device__ static inline void multiply_itself(float (&d)[columns / 64][columns / 2], const uint8_t *tile)
{
    uint32_t at = shared_address(tile);
    begin_products();
#pragma unroll
    for (int side = 0; side < columns / 64; side++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply<false, true>(d[side], matrix_at(at + side * side_bytes + i * 16 * row_bytes, side_bytes),
                                  matrix_at(at + i * 16 * row_bytes, side_bytes), true, T());
    commit_products();
}

/* Leaves a block's a'a, that of the last group first. */
template <int columns>
__device__ static void leave_gram(const gram_block<columns> &b, const float (&d)[columns / 64][columns / 2],
                                  float *to)
{
    constexpr int size = columns / 2, all = columns / 64 * size;
    corner c;
    float *room = (float *)b.weight + threadIdx.x % 128;
    for (int g = groups_of(columns) - 1; g > 0; g--) {
        if (b.g == g)
#pragma unroll
            for (int i = 0; i < all; i++) {
                float more = g < groups_of(columns) - 1 ? room[i * 128] : 0;
                room[i * 128] = d[i / size][i % size] + more;
            }
        b.synchronise_groups();
    }
    if (b.g == 0)
#pragma unroll
        for (int i = 0; i < all; i += 2) {
            int row = i / size * 64 + c.row + i % 4 / 2 * 8, column = i % size / 4 * 8 + c.pair * 2;
            *(float2 *)(to + row * columns + column) = {d[i / size][i % size] + room[i * 128],
                                                        d[i / size][i % size + 1] + room[(i + 1) * 128]};
        }
    b.synchronise_groups();
}

/* Leaves a block's sums, in a fixed order: those of lanes, of all warps. */
template <int columns>
__device__ static void leave_column_sums(const gram_block<columns> &b, float (&sums)[8], float *to)
{
    constexpr int across = gram_cells<columns>::across;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *lines = (float *)b.weight;
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int m = across; m < 32; m *= 2) sums[i] += __shfl_xor_sync(~0u, sums[i], m);
        if (lane < across) lines[warp * columns + lane * 8 + i] = sums[i];
    }
    b.synchronise_groups();
    if (threadIdx.x >= columns) return;
    float sum = 0;
    for (int w = 0; w < 4 * groups_of(columns); w++) sum += lines[w * columns + threadIdx.x];
    to[threadIdx.x] = sum;
}

/* A tile is released when its product has ended, after the next one has been added up. */
template <class T, bool normalises, int columns>
__device__ static void multiply_tiles(const gram_block<columns> &b, const gram_problem &p)
{
    gram_cells<columns> at;
    ring tiles = {0, 0};
    int last = -1;
    float d[columns / 64][columns / 2] = {}, sums[8] = {};
    auto release = [&] {
        wait_products<0>();
        if (last >= 0) barrier_arrive(&b.barrier->out[b.g][last]);
    };
    wait_for_last();
    factors<8> f = {};
    if (normalises) f = batchnorm_parts::factors_at<8>(p.values, at.column * 8);
    for (int64_t tile = b.first; tile < b.end; tile += b.step, tiles.next(p.tiles)) {
        uint8_t *a = b.tile_at(tiles.at);
        barrier_wait(&b.barrier->in[b.g][tiles.at], tiles.phase);
        sum_tile<T, normalises>(at, f, a, p.rows - first_row<true>(b, tile), sums);
        if (normalises) show_stored();
        release();
        if (normalises) b.synchronise_group();
        multiply_itself<T, columns>(d, a);
        last = tiles.at;
    }
    release();
#pragma unroll
    for (int side = 0; side < columns / 64; side++) finish_products(d[side]);
    float *part = p.parts + (int64_t)blockIdx.x * columns * (columns + 1);
    leave_gram<columns>(b, d, part + columns);
    leave_column_sums<columns>(b, sums, part);
}

/* Calls load(tile, i) for all tiles, each as soon as there is room. */
template <int columns, class Load>
__device__ static void load_tiles(const gram_block<columns> &b, Load load)
{
    ring ring = {0, 1};
    for (int64_t tile = b.first; tile < b.end; tile += b.step, ring.next(b.p.tiles)) {
        barrier_wait(&b.barrier->out[b.g][ring.at], ring.phase);
        load(tile, ring.at);
    }
}

#endif

template <class T, int columns, bool normalises>
__global__ void __launch_bounds__(threads(groups_of(columns)), 1)
    gram_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap a,
                const gram_problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    let_next_begin();
    share_work<groups_of(columns), columns>(
        p, [&](const auto &b) { multiply_tiles<T, normalises>(b, p); }, [](const auto &) {},
        [&](const auto &b) {
            auto load = [&](int64_t tile, int i) { load_tile<true>(b, &x, tile, i); };
            if constexpr (normalises) exchange_tiles<true>(b, &a, load);
            else load_tiles(b, load);
        });
#endif
}

template <class T, class Work> static auto with_kernel_of(const struct tensor *x, bool normalises, Work work)
{
    if (x->shape.c == 64) return work(normalises ? gram_kernel<T, 64, true> : gram_kernel<T, 64, false>);
    return work(normalises ? gram_kernel<T, 128, true> : gram_kernel<T, 128, false>);
}

/* Calls work(kernel) with the one for the tensor. */
template <class Work> static auto with_kernel(const struct tensor *x, bool normalises, Work work)
{
    return x->dtype == F16 ? with_kernel_of<__half>(x, normalises, work)
                           : with_kernel_of<__nv_bfloat16>(x, normalises, work);
}

static gram_problem gram_problem_of(const struct tensor *x)
{
    gram_problem p = {};
    p.rows = shape_count(x->shape) / x->shape.c;
    p.columns = (int)x->shape.c;
    p.own_chunks = p.columns / 32;       /* room for a'a */
    p.tiles = ring_max;
    return p;
}

bool gram_fits(const struct tensor *x, struct device *device)
{
    bool whole = batchnorm_gives_gram(x->shape.c) && dtype_bytes(x->dtype) == 2 &&
                 shape_count(x->shape) / x->shape.c < 2000000000;
    return whole && device && cuda_facts(device)->capability == 90 &&
           with_kernel(x, true, [](auto kernel) { return is_compiled(kernel); });
}

size_t gram_workspace(const struct tensor *x, struct device *device)
{
    size_t channels = (size_t)x->shape.c;
    return channels * (channels + 1) * (size_t)cuda_facts(device)->multiprocessors * sizeof(float);
}

enum status gram_run(const struct call *call, bool behind)
{
    const struct tensor *of = &call->x[0];
    bool normalises = call->y.data;
    gram_problem p = gram_problem_of(of);
    if (normalises) p.values = batchnorm_parts::values_of(call);
    p.parts = (float *)call->workspace;
    int blocks = cuda_facts(call->device)->multiprocessors;
    bool narrow = p.columns == 64;
    struct launch how = {
        (unsigned)blocks, (unsigned)(narrow ? threads(groups_of(64)) : threads(groups_of(128))),
        narrow ? shared_bytes<groups_of(64), 64>(p) : shared_bytes<groups_of(128), 128>(p), behind};
    CUtensorMap x, a;
    if (!map_matrix(&x, of->dtype, of->data, p.rows, p.columns) ||
        !map_matrix(&a, of->dtype, normalises ? call->y.data : of->data, p.rows, p.columns))
        return fail(NO_DEVICE, "the driver does not describe a batch norm's tensors");
    TRY(with_kernel(of, normalises, [&](auto kernel) {
        TRY(grant_shared(call, kernel));
        return launch_as(call, kernel, how, x, a, p);
    }));
    return columns_finish(call, {p.parts, blocks, 1, p.columns * (p.columns + 1)},
                          (float *)call_data(call, OPERAND_Y_SUMS));
}
