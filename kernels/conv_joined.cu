/* conv_joined.cu: the data gradient of a 1x1 convolution, added to another gradient, by one kernel on Hopper
 * (capability 9.0): D = mask * (A B + C) and the sums of D's columns. A is d_y, pixels x filters; B the
 * weight, filters x channels; C is d_x_more and D d_x, pixels x channels. C is read and D written once. C may
 * have every second pixel of an image in both directions only: those of a tile are consecutive in it.
 *
 * Blocks are persistent: each has 128 channels, whose part of B stays in shared memory, and every nth tile
 * of 64 pixels. `groups` warpgroups multiply, each its own tiles, so that some may wait for memory while
 * others work. Two warps, with one active thread each, serve a group: one loads chunks of 64 columns of A,
 * the other loads C, which D replaces, and stores D. Chunks and tiles go through rings in shared memory, with
 * mbarriers.
 *
 * Matrices lie in shared memory as the tensor memory accelerator writes them with its 128-byte swizzle: rows
 * of 64 elements, whose 16-byte parts are permuted by the row's lowest three bits. */
#include <cuda.h>

#include "kernels/conv_cuda.cuh"

extern "C" {
#include "base/memory.h"
#include "device/cuda_driver.h"
}

constexpr int tile_rows = 64, tile_columns = 128, chunk = 64;
constexpr int row_bytes = 128;                       /* of 64 numbers */
constexpr int side_bytes = tile_rows * row_bytes;    /* half of a tile, or a chunk of A */
constexpr int tile_bytes = 2 * side_bytes;
constexpr int weight_bytes = chunk * tile_columns * 2;   /* of B for one chunk: two halves, too */
constexpr int ring_max = 4;
constexpr int picked_rows = 8;                       /* of a box of C */

struct joined_problem {
    int64_t rows;
    int columns, chunks;
    int height, width;                   /* of an image, where C is picked; else 0 */
    int stages, tiles;                   /* of a group: chunks of A in its ring, and tiles */
    const uint8_t *mask;
    float *parts;                        /* [blocks that have the same columns][columns] */
};

/* The threads: groups that multiply, then warps that load and store, padded to warpgroups. */
__host__ __device__ constexpr int helpers(int groups) { return groups <= 2 ? 4 : 8; }
__host__ __device__ constexpr int threads(int groups) { return 32 * (4 * groups + helpers(groups)); }

template <int groups> struct barriers {
    uint64_t weight, full[groups][ring_max], empty[groups][ring_max];
    uint64_t in[groups][ring_max], out[groups][ring_max];    /* barriers of tiles with C; with D */
};

template <int groups> static size_t shared_bytes(const joined_problem &p)
{
    return row_bytes * 8 + (size_t)p.chunks * weight_bytes +
           (size_t)groups * (p.stages * side_bytes + p.tiles * tile_bytes) +
           groups * 4 * tile_columns * sizeof(float) + sizeof(barriers<groups>);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- The instructions ---- */

__device__ static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ static inline void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

__device__ static inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

__device__ static inline void barrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

/* The position in a ring, and the parity of its barrier's phase. */
struct ring {
    int at, phase;
    __device__ void next(int length)
    {
        if (++at < length) return;
        at = 0;
        phase ^= 1;
    }
};

__device__ static inline void barrier_wait(uint64_t *barrier, int phase)
{
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(shared_address(barrier)), "r"(phase) : "memory");
}

/* A box of the matrix, given by its first column and row. */
__device__ static inline void load_box(void *to, const CUtensorMap *map, int column, int64_t row,
                                       uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)), "l"(map),
                 "r"(shared_address(barrier)), "r"(column), "r"((int)row) : "memory");
}

__device__ static inline void store_box(const CUtensorMap *map, const void *from, int column, int64_t row)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(column), "r"((int)row) : "memory");
}

/* The descriptor of a swizzled matrix for wgmma. `leading` is the distance between groups of 64 columns of a
 * matrix that is not transposed, here of B; eight rows are 1024 bytes. */
__device__ static inline uint64_t matrix_at(uint32_t address, int leading)
{
    return (uint64_t)(address >> 4) | (uint64_t)(leading >> 4) << 16 |
           (uint64_t)(8 * row_bytes >> 4) << 32 | (uint64_t)1 << 62;
}

/* d = a b + (adds ? d : 0), 64 x 128 over 16. */
#define D8(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define MULTIPLY(type) \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
                 "%64, %65, adds, 1, 1, 0, 1;\n}" \
                 : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56) \
                 : "l"(a), "l"(b), "r"((int)adds))

__device__ static inline void multiply(float (&d)[64], uint64_t a, uint64_t b, bool adds, __half)
{
    MULTIPLY("f16");
}

__device__ static inline void multiply(float (&d)[64], uint64_t a, uint64_t b, bool adds, __nv_bfloat16)
{
    MULTIPLY("bf16");
}

template <int count> __device__ static inline void wait_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(count) : "memory");
}

/* Sets the number of registers per thread of this warpgroup; others may take what one releases. */
template <int groups, bool multiplies> __device__ static inline void take_registers()
{
    if (multiplies && groups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    if (multiplies && groups == 3) asm volatile("setmaxnreg.inc.sync.aligned.u32 144;");
    if (!multiplies && groups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (!multiplies && groups == 3) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
}

/* Two neighbouring numbers. */
__device__ static inline float2 unpack(uint32_t two, __half) { return __half22float2(*(__half2 *)&two); }
__device__ static inline float2 unpack(uint32_t two, __nv_bfloat16)
{
    return {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
}
__device__ static inline uint32_t pack_pair(float low, float high, __half)
{
    __half2 two = __floats2half2_rn(low, high);
    return *(uint32_t *)&two;
}
__device__ static inline uint32_t pack_pair(float low, float high, __nv_bfloat16)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&two;
}

/* ---- A block ---- */

/* A block's shared memory, and what a group has of it and of the problem. */
template <int groups> struct block {
    const joined_problem &p;
    uint8_t *weight, *tiles, *rows;
    float *lines;                        /* [warps that multiply][tile_columns] */
    barriers<groups> *barrier;
    int column, line, g;
    int64_t first, step, end;            /* the group's tiles */

    __device__ block(const joined_problem &p, uint8_t *memory, int g) : p(p), g(g)
    {
        int wide = p.columns / tile_columns;
        weight = memory + (-shared_address(memory) & (8 * row_bytes - 1));
        tiles = weight + p.chunks * weight_bytes;
        rows = tiles + groups * p.tiles * tile_bytes;
        lines = (float *)(rows + groups * p.stages * side_bytes);
        barrier = (barriers<groups> *)(lines + groups * 4 * tile_columns);
        column = blockIdx.x % wide * tile_columns;
        line = blockIdx.x / wide;
        first = line * groups + g;
        step = gridDim.x / wide * groups;
        end = (p.rows + tile_rows - 1) / tile_rows;
    }
    __device__ uint8_t *chunk_at(int i) const { return rows + (g * p.stages + i) * side_bytes; }
    __device__ uint8_t *tile_at(int i) const { return tiles + (g * p.tiles + i) * tile_bytes; }
};

template <int groups> __device__ static void barriers_init(const block<groups> &b)
{
    barrier_init(&b.barrier->weight, 1);
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < ring_max; i++) {
            barrier_init(&b.barrier->full[g][i], 1);
            barrier_init(&b.barrier->empty[g][i], 4);
            barrier_init(&b.barrier->in[g][i], 1);
            barrier_init(&b.barrier->out[g][i], 128);
        }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

template <int groups>
__device__ static void load_factors(const block<groups> &b, const CUtensorMap *rows,
                                    const CUtensorMap *weight)
{
    if (b.g == 0) {
        barrier_expect(&b.barrier->weight, b.p.chunks * weight_bytes);
        for (int i = 0; i < 2 * b.p.chunks; i++)
            load_box(b.weight + i * side_bytes, weight, b.column + i % 2 * 64, i / 2 * chunk,
                     &b.barrier->weight);
    }
    ring ring = {0, 1};
    for (int64_t tile = b.first; tile < b.end; tile += b.step)
        for (int k = 0; k < b.p.chunks; k++, ring.next(b.p.stages)) {
            uint64_t *full = &b.barrier->full[b.g][ring.at];
            barrier_wait(&b.barrier->empty[b.g][ring.at], ring.phase);
            barrier_expect(full, side_bytes);
            load_box(b.chunk_at(ring.at), rows, k * chunk, tile * tile_rows, full);
        }
}

/* The number of picked pixels in front of one, and whether that is picked. */
__device__ static inline int picked_before(const joined_problem &p, int64_t pixel, bool *picked)
{
    int w = (int)pixel % p.width, row = (int)pixel / p.width, h = row % p.height, n = row / p.height;
    int wide = (p.width + 1) / 2, high = (p.height + 1) / 2;
    *picked = h % 2 == 0 && w % 2 == 0;
    return (n * high + (h + 1) / 2) * wide + (h % 2 == 0 ? (w + 1) / 2 : 0);
}

/* What is picked of C lies in the first rows of a tile, which are loaded by eights. */
template <bool picks, int groups>
__device__ static void load_tile(const block<groups> &b, const CUtensorMap *more, int64_t tile, int i)
{
    uint64_t *in = &b.barrier->in[b.g][i];
    int64_t first = tile * tile_rows;
    int rows = tile_rows, step = tile_rows;
    if constexpr (picks) {
        bool here;
        int64_t end = picked_before(b.p, min(first + tile_rows, b.p.rows), &here);
        first = picked_before(b.p, first, &here);
        step = picked_rows;
        rows = (int)(end - first + step - 1) / step * step;
    }
    barrier_expect(in, 2 * rows * row_bytes);
    for (int row = 0; row < rows; row += step)
        for (int s = 0; s < 2; s++)
            load_box(b.tile_at(i) + s * side_bytes + row * row_bytes, more, b.column + s * 64, first + row,
                     in);
}

/* The memory of a tile can be reused as soon as it has been read. */
template <bool picks, int groups>
__device__ static void exchange_tiles(const block<groups> &b, const CUtensorMap *more, const CUtensorMap *d_x)
{
    int64_t ahead = b.first;
    for (int i = 0; i < b.p.tiles && ahead < b.end; i++, ahead += b.step) load_tile<picks>(b, more, ahead, i);
    ring ring = {0, 0};
    for (int64_t tile = b.first; tile < b.end; tile += b.step, ahead += b.step, ring.next(b.p.tiles)) {
        barrier_wait(&b.barrier->out[b.g][ring.at], ring.phase);
        for (int s = 0; s < 2; s++)
            store_box(d_x, b.tile_at(ring.at) + s * side_bytes, b.column + s * 64, tile * tile_rows);
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
        if (ahead < b.end) load_tile<picks>(b, more, ahead, ring.at);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* A tile of A B. A chunk is released when its own products have ended, after those of the next have begun. */
template <class T, int groups>
__device__ static inline void multiply_tile(const block<groups> &b, ring &ring, float (&d)[64])
{
    uint32_t weight = shared_address(b.weight);
    int last = 0;
    auto release = [&] {
        if (threadIdx.x % 32 == 0) barrier_arrive(&b.barrier->empty[b.g][last]);
    };
    for (int k = 0; k < b.p.chunks; k++, ring.next(b.p.stages)) {
        barrier_wait(&b.barrier->full[b.g][ring.at], ring.phase);
        uint32_t rows = shared_address(b.chunk_at(ring.at));
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply(d, matrix_at(rows + i * 32, 16),
                     matrix_at(weight + k * weight_bytes + i * 16 * row_bytes, side_bytes), k > 0 || i > 0,
                     T());
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (k > 0) {
            wait_products<1>();
            release();
        }
        last = ring.at;
    }
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
    release();
}

/* A thread's place in the results of wgmma: two rows, eight apart, and two neighbouring ones of each eight
 * columns. */
struct corner {
    int row, eighth, pair;
    __device__ corner() : row(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4), eighth(threadIdx.x / 4 % 8),
                          pair(threadIdx.x % 4) {}
    /* Of columns 8 j + 2 pair and the next, of a row of the tile. */
    __device__ int offset(int j, int row) const
    {
        return j / 8 * side_bytes + row * row_bytes + ((j % 8 ^ row % 8) << 4) + pair * 4;
    }
};

/* The mask of the thread's two rows, shifted so that the first of its columns is the lowest bit. */
constexpr int mask_words = tile_columns / 32;

__device__ static inline void load_mask(const joined_problem &p, int64_t row, int column,
                                        uint32_t (&mask)[2][mask_words])
{
#pragma unroll
    for (int below = 0; below < 2; below++) {
        bool here = row + 8 * below < p.rows;
        int64_t at = ((row + 8 * below) * p.columns + column) / 8;
        uint4 words = here ? *(const uint4 *)(p.mask + at) : make_uint4(0, 0, 0, 0);
        int shift = 2 * (threadIdx.x % 4);
        mask[below][0] = words.x >> shift, mask[below][1] = words.y >> shift;
        mask[below][2] = words.z >> shift, mask[below][3] = words.w >> shift;
    }
}

/* Where the thread's two rows of C are among those picked, and a mask of their numbers: 0 where all are. */
struct picked {
    int row[2];
    uint32_t numbers[2];
    __device__ picked() {}
    __device__ picked(const joined_problem &p, const corner &c, int64_t first)
    {
        bool here;
        int before = picked_before(p, first, &here);
#pragma unroll
        for (int below = 0; below < 2; below++) {
            int at = picked_before(p, first + c.row + 8 * below, &here) - before;
            row[below] = here ? at : 0;
            numbers[below] = here ? ~0u : 0;
        }
    }
};

/* Adds what is picked of C to the thread's part of A B. All of the group read before any writes. */
template <class T, int groups>
__device__ static inline void add_picked(const block<groups> &b, const corner &c, const picked &from,
                                         const uint8_t *tile, float (&d)[64])
{
#pragma unroll
    for (int below = 0; below < 2; below++)
#pragma unroll
        for (int j = 0; j < tile_columns / 8; j++) {
            uint32_t two = *(const uint32_t *)(tile + c.offset(j, from.row[below]));
            float2 more = unpack(two & from.numbers[below], T());
            d[4 * j + 2 * below] += more.x;
            d[4 * j + 2 * below + 1] += more.y;
        }
    asm volatile("bar.sync %0, 128;" ::"r"(2 + b.g) : "memory");
}

/* Writes D to `tile`, from A B in registers and, unless that was added, C in `tile`; adds up D's sums. */
template <class T, bool added>
__device__ static inline void join_tile(const corner &c, uint8_t *tile, const float (&d)[64],
                                        const uint32_t (&mask)[2][mask_words], float (&sums)[32])
{
#pragma unroll
    for (int j = 0; j < tile_columns / 8; j++)
#pragma unroll
        for (int below = 0; below < 2; below++) {
            uint32_t *at = (uint32_t *)(tile + c.offset(j, c.row + 8 * below));
            uint32_t bits = mask[below][j / 4] >> j % 4 * 8;
            float2 more = {0, 0};
            if (!added) more = unpack(*at, T());
            float x = d[4 * j + 2 * below] + more.x, y = d[4 * j + 2 * below + 1] + more.y;
            *at = pack_pair(bits & 1 ? x : 0, bits & 2 ? y : 0, T());
            float2 stored = unpack(*at, T());
            sums[2 * j] += stored.x;
            sums[2 * j + 1] += stored.y;
        }
}

/* The sums of all warps, in a fixed order. */
template <int groups> __device__ static void leave_sums(const block<groups> &b, float (&sums)[32])
{
    corner c;
    float *line = b.lines + threadIdx.x / 32 * tile_columns;
#pragma unroll
    for (int i = 0; i < 32; i++) {
#pragma unroll
        for (int m = 4; m < 32; m *= 2) sums[i] += __shfl_xor_sync(0xffffffff, sums[i], m);
        if (c.eighth == 0) line[i / 2 * 8 + c.pair * 2 + i % 2] = sums[i];
    }
    asm volatile("bar.sync 1, %0;" ::"n"(groups * 128) : "memory");
    if (threadIdx.x >= tile_columns) return;
    float sum = 0;
    for (int warp = 0; warp < 4 * groups; warp++) sum += b.lines[warp * tile_columns + threadIdx.x];
    b.p.parts[(int64_t)b.line * b.p.columns + b.column + threadIdx.x] = sum;
}

template <class T, bool picks, int groups> __device__ static void multiply_tiles(const block<groups> &b)
{
    corner c;
    float sums[32] = {};
    ring chunks = {0, 0}, tiles = {0, 0};
    barrier_wait(&b.barrier->weight, 0);
    for (int64_t tile = b.first; tile < b.end; tile += b.step, tiles.next(b.p.tiles)) {
        uint32_t mask[2][mask_words];
        float d[64];
        load_mask(b.p, tile * tile_rows + c.row, b.column, mask);
        picked from = picks ? picked(b.p, c, tile * tile_rows) : picked();
        multiply_tile<T>(b, chunks, d);
        barrier_wait(&b.barrier->in[b.g][tiles.at], tiles.phase);
        uint8_t *joined = b.tile_at(tiles.at);
        if constexpr (picks) add_picked<T>(b, c, from, joined, d);
        join_tile<T, picks>(c, joined, d, mask, sums);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        barrier_arrive(&b.barrier->out[b.g][tiles.at]);
    }
    leave_sums(b, sums);
}

#endif

template <class T, int groups, bool picks>
__global__ void __launch_bounds__(threads(groups), 1)
    conv_joined_kernel(const __grid_constant__ CUtensorMap d_y, const __grid_constant__ CUtensorMap weight,
                       const __grid_constant__ CUtensorMap more, const __grid_constant__ CUtensorMap d_x,
                       const joined_problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t memory[];
    int helper = (int)threadIdx.x / 32 - 4 * groups;
    block<groups> b(p, memory, helper < 0 ? threadIdx.x / 128 : helper / 2);
    if (threadIdx.x == 0) barriers_init(b);
    __syncthreads();
    if (helper < 0) {
        take_registers<groups, true>();
        multiply_tiles<T, picks>(b);
        return;
    }
    take_registers<groups, false>();
    if (b.g >= groups || threadIdx.x % 32 != 0) return;
    if (helper % 2 == 0) load_factors(b, &d_y, &weight);
    else exchange_tiles<picks>(b, &more, &d_x);
#endif
}

/* ---- The algorithm ---- */

/* Rings have as many chunks as fit. */
struct joined_plan {
    int groups, stages, tiles, lines;
    size_t shared;
};

typedef CUresult(CUDAAPI *encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static joined_problem joined_problem_of(const struct conv_problem *p, const struct joined_plan *made)
{
    return {.rows = (int64_t)p->n * p->in[0] * p->in[1], .columns = p->c, .chunks = p->k / chunk,
            .height = p->picks ? p->in[0] : 0, .width = p->picks ? p->in[1] : 0, .stages = made->stages,
            .tiles = made->tiles};
}

template <int groups, class Work> static auto with_kernel_of(const struct conv_problem *p, Work work)
{
    auto kernel = p->dtype == F16 ? conv_joined_kernel<__half, groups, false>
                                  : conv_joined_kernel<__nv_bfloat16, groups, false>;
    if (p->picks)
        kernel = p->dtype == F16 ? conv_joined_kernel<__half, groups, true>
                                 : conv_joined_kernel<__nv_bfloat16, groups, true>;
    return work(kernel, shared_bytes<groups>);
}

/* Calls work(kernel, shared_bytes<groups>) with those for the problem and the groups. */
template <class Work> static auto with_kernel(const struct conv_problem *p, int groups, Work work)
{
    return groups == 2 ? with_kernel_of<2>(p, work) : with_kernel_of<3>(p, work);
}

/* Whether code for exactly this capability was compiled, and runs. */
static bool joined_is_compiled(const struct conv_problem *p)
{
    return with_kernel(p, 2, [](auto kernel, auto) {
        struct cudaFuncAttributes found;
        bool good = cudaFuncGetAttributes(&found, kernel) == cudaSuccess;
        if (!good) cudaGetLastError();
        return good && found.binaryVersion == 90 && found.ptxVersion == 90;
    });
}

static bool can_join(const struct conv_problem *p, const struct cuda_facts *facts)
{
    bool product = p->groups == 1 && p->kernel[0] == 1 && p->kernel[1] == 1 && p->stride[0] == 1 &&
                   p->stride[1] == 1 && p->pad[0] == 0 && p->pad[1] == 0;
    return p->joins && product && dtype_bytes(p->dtype) == 2 && p->c % tile_columns == 0 &&
           p->c / tile_columns <= facts->multiprocessors && p->k % chunk == 0 &&
           (double)p->n * p->in[0] * p->in[1] < 2e9 && facts->capability == 90 &&
           joined_is_compiled(p);
}

static bool joined_fit(const struct conv_problem *p, const struct cuda_facts *facts, struct joined_plan *made)
{
    for (made->stages = ring_max; made->stages >= 2; made->stages--) {
        joined_problem problem = joined_problem_of(p, made);
        made->shared = made->groups == 2 ? shared_bytes<2>(problem) : shared_bytes<3>(problem);
        if (made->shared <= facts->shared_bytes) break;
    }
    made->lines = facts->multiprocessors / (p->c / tile_columns);
    return made->stages >= 2;
}

static int joined_candidates(const struct conv_problem *p, const struct conv_tools *tools, int most,
                             char names[][CANDIDATE_NAME])
{
    static const int sizes[][2] = {{2, 2}, {3, 1}, {2, 1}};   /* groups, tiles */
    const struct cuda_facts *facts = cuda_facts(tools->device);
    int count = 0;
    if (!can_join(p, facts)) return 0;
    for (const int *size : sizes) {
        struct joined_plan made = {.groups = size[0], .tiles = size[1]};
        if (count < most && joined_fit(p, facts, &made))
            snprintf(names[count++], CANDIDATE_NAME, "joined %d %d", made.groups, made.tiles);
    }
    return count;
}

static bool joined_make(struct conv_plan *plan, const struct conv_tools *tools)
{
    const struct cuda_facts *facts = cuda_facts(tools->device);
    const struct conv_problem *p = &plan->problem;
    struct joined_plan made = {};
    if (!can_join(p, facts) || sscanf(plan->name, "joined %d %d", &made.groups, &made.tiles) != 2 ||
        (made.groups != 2 && made.groups != 3) || made.tiles < 1 || made.tiles > ring_max ||
        !joined_fit(p, facts, &made))
        return false;
    /* All plans share the kernel, and its limit of shared memory. */
    bool granted = with_kernel(p, made.groups, [&](auto kernel, auto) {
        return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)facts->shared_bytes) == cudaSuccess;
    });
    if (!granted) {
        cudaGetLastError();
        return false;
    }
    plan->state = memory_new(1, sizeof made);
    *(struct joined_plan *)plan->state = made;
    plan->workspace = (size_t)made.lines * p->c * sizeof(float);
    plan->joins = true;
    return true;
}

static void joined_release(struct conv_plan *plan)
{
    free(plan->state);
}

/* A matrix of rows of `columns` numbers, in boxes of 64 columns. */
static bool joined_map(CUtensorMap *map, enum dtype dtype, void *data, int64_t rows, int columns,
                       cuuint32_t box_rows = 64)
{
    encode_function encode;
    cuuint64_t size[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, pitch[1] = {(cuuint64_t)columns * 2};
    cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
    return cuda_driver_find("cuTensorMapEncodeTiled", 12000, &encode) &&
           !encode(map, dtype == F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                   data, size, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static enum status joined_run(const struct conv_plan *plan, const struct call *call,
                              const struct conv_tools *tools)
{
    const struct joined_plan *made = (const struct joined_plan *)plan->state;
    const struct conv_problem *p = &plan->problem;
    struct conv_operands at = conv_operands(call);
    joined_problem problem = joined_problem_of(p, made);
    problem.mask = (const uint8_t *)call->mask.data;
    problem.parts = (float *)call->workspace;
    int64_t more_rows = p->picks ? (int64_t)p->n * ((p->in[0] + 1) / 2) * ((p->in[1] + 1) / 2) : problem.rows;
    CUtensorMap d_y, weight, more, d_x;
    if (problem.rows == 0) return OK;
    if (!joined_map(&d_y, p->dtype, at.y, problem.rows, p->k) ||
        !joined_map(&weight, p->dtype, at.weight, p->k, p->c) ||
        !joined_map(&more, p->dtype, call->d_x_more.data, more_rows, p->c, p->picks ? picked_rows : 64) ||
        !joined_map(&d_x, p->dtype, at.x, problem.rows, p->c))
        return plan->trusted ? fail(NO_DEVICE, "the driver does not describe a convolution's tensors")
                             : NO_DEVICE;
    unsigned blocks = (unsigned)(made->lines * (p->c / tile_columns));
    with_kernel(p, made->groups, [&](auto kernel, auto) {
        kernel<<<blocks, threads(made->groups), made->shared, stream_of(call)>>>(d_y, weight, more, d_x,
                                                                                problem);
    });
    TRY(launched(call));
    return conv_sum_shares(call, (float *)call->sums.data, problem.parts, made->lines, p->c);
}

const struct conv_algorithm conv_by_joined = {
    .name = "joined",
    .candidates = joined_candidates,
    .make = joined_make,
    .release = joined_release,
    .run = joined_run,
};
