/* tiles.cuh: products of matrices on Hopper (capability 9.0), tile by tile: what conv_joined.cu,
 * conv_batchnorm_data.cu, conv_batchnorm_output.cu, conv_transpose_concat_patches.cu and gram.cu share.
 * D [rows x columns] is A B and what a kernel makes of that; it takes the place of a second operand C of the
 * same shape, if any.
 *
 * Blocks are persistent: each has `columns` columns, whose part of B stays in shared memory, and every nth
 * tile of 64 rows. `groups` warpgroups multiply, each its own tiles, so that some may wait for memory while
 * others work. Two warps, with one active thread each, serve a group: one loads chunks of 64 columns of A,
 * the other loads C, which D replaces, and stores D. Chunks and tiles go through rings in shared memory, with
 * mbarriers.
 *
 * Matrices lie in shared memory as the tensor memory accelerator writes them with its 128-byte swizzle: rows
 * of 64 elements, whose 16-byte parts are permuted by the row's lowest three bits. A side is 64 such rows: a
 * chunk of A, or 64 columns of a tile of C or D, or of 64 rows of B. */
#pragma once

#include <cuda.h>

#include "kernels/support/hopper.cuh"

extern "C" {
#include "device/cuda_driver.h"
}

namespace tiles {

using namespace hopper;

constexpr int tile_rows = 64, chunk = 64;
constexpr int row_bytes = 128;                       /* of 64 numbers */
constexpr int side_bytes = tile_rows * row_bytes;
constexpr int ring_max = 4;

struct problem {
    int64_t rows;
    int columns, chunks;                 /* of D, of A */
    int own_chunks;                      /* of B in shared memory behind those that A is multiplied by */
    int stages, tiles;                   /* of a group: chunks of A in its ring, and tiles */
    float *parts;                        /* sums: [blocks that have the same columns][kinds][columns] */
};

/* The threads: groups that multiply, then warps that load and store, padded to warpgroups. */
__host__ __device__ constexpr int helpers(int groups) { return groups <= 2 ? 4 : 8; }
__host__ __device__ constexpr int threads(int groups) { return 32 * (4 * groups + helpers(groups)); }
__host__ __device__ constexpr int tile_bytes(int columns) { return columns / 64 * side_bytes; }

template <int groups> struct barriers {
    uint64_t weight, full[groups][ring_max], empty[groups][ring_max];
    uint64_t in[groups][ring_max], out[groups][ring_max];    /* barriers of tiles with C; with D */
};

template <int groups, int columns> static size_t shared_bytes(const problem &p)
{
    return row_bytes * 8 + (size_t)(p.chunks + p.own_chunks) * tile_bytes(columns) +
           (size_t)groups * (p.stages * side_bytes + p.tiles * tile_bytes(columns)) +
           sizeof(barriers<groups>);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- The instructions ---- */

__device__ static inline void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

/* Makes barriers that this thread has initialised visible to copies. */
__device__ static inline void show_barriers()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
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

/* d = a b + (adds ? d : 0), 64 x 64, 64 x 128 or 64 x 192 over 16; or, turned, a b', where b lies as
 * columns x rows; or, a_turned, a' b, where a lies as 16 rows of 64. */
#define D32(i) D8(i), D8(i + 8), D8(i + 16), D8(i + 24)
#define FIRST_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NEXT_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LAST_32 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA(columns, type, numbers, a, b, condition, a_turned, straight) \
    "{\n.reg .pred adds;\nsetp.ne.b32 adds, " condition ", 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" numbers "}, " a ", " b \
    ", adds, 1, 1, " a_turned ", " straight ";\n}"
#define MULTIPLY_64(type) \
    asm volatile(WGMMA("64", type, FIRST_32, "%32", "%33", "%34", "%35", "%36") \
                 : D32(0) : "l"(a), "l"(b), "r"((int)adds), "n"(a_turned), "n"(!turned))
#define MULTIPLY_128(type) \
    asm volatile(WGMMA("128", type, FIRST_32 NEXT_32, "%64", "%65", "%66", "%67", "%68") \
                 : D32(0), D32(32) : "l"(a), "l"(b), "r"((int)adds), "n"(a_turned), "n"(!turned))
#define MULTIPLY_192(type) \
    asm volatile(WGMMA("192", type, FIRST_32 NEXT_32 LAST_32, "%96", "%97", "%98", "%99", "%100") \
                 : D32(0), D32(32), D32(64) \
                 : "l"(a), "l"(b), "r"((int)adds), "n"(a_turned), "n"(!turned))

template <bool turned, bool a_turned = false>
__device__ static inline void multiply(float (&d)[32], uint64_t a, uint64_t b, bool adds, __half)
{
    MULTIPLY_64("f16");
}
template <bool turned, bool a_turned = false>
__device__ static inline void multiply(float (&d)[32], uint64_t a, uint64_t b, bool adds, __nv_bfloat16)
{
    MULTIPLY_64("bf16");
}
template <bool turned, bool a_turned = false>
__device__ static inline void multiply(float (&d)[64], uint64_t a, uint64_t b, bool adds, __half)
{
    MULTIPLY_128("f16");
}
template <bool turned, bool a_turned = false>
__device__ static inline void multiply(float (&d)[64], uint64_t a, uint64_t b, bool adds, __nv_bfloat16)
{
    MULTIPLY_128("bf16");
}
template <bool turned, bool a_turned = false>
__device__ static inline void multiply(float (&d)[96], uint64_t a, uint64_t b, bool adds, __half)
{
    MULTIPLY_192("f16");
}
template <bool turned, bool a_turned = false>
__device__ static inline void multiply(float (&d)[96], uint64_t a, uint64_t b, bool adds, __nv_bfloat16)
{
    MULTIPLY_192("bf16");
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
template <int groups, int columns> struct block {
    const problem &p;
    uint8_t *weight, *tiles, *rows;
    barriers<groups> *barrier;
    int column, line, g;
    int64_t first, step, end;            /* the group's tiles */

    __device__ block(const problem &p, uint8_t *memory, int g) : p(p), g(g)
    {
        int wide = p.columns / columns;
        weight = memory + (-shared_address(memory) & (8 * row_bytes - 1));
        tiles = weight + (p.chunks + p.own_chunks) * tile_bytes(columns);
        rows = tiles + groups * p.tiles * tile_bytes(columns);
        barrier = (barriers<groups> *)(rows + groups * p.stages * side_bytes);
        column = blockIdx.x % wide * columns;
        line = blockIdx.x / wide;
        first = line * groups + g;
        step = gridDim.x / wide * groups;
        end = (p.rows + tile_rows - 1) / tile_rows;
    }
    __device__ uint8_t *chunk_at(int i) const { return rows + (g * p.stages + i) * side_bytes; }
    __device__ uint8_t *tile_at(int i) const
    {
        return tiles + (g * p.tiles + i) * tile_bytes(columns);
    }
    __device__ void synchronise_group() const { asm volatile("bar.sync %0, 128;" ::"r"(2 + g) : "memory"); }
    __device__ void synchronise_groups() const
    {
        asm volatile("bar.sync 1, %0;" ::"n"(groups * 128) : "memory");
    }
};

template <int groups, int columns> __device__ static void barriers_init(const block<groups, columns> &b)
{
    barrier_init(&b.barrier->weight, 1);
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < ring_max; i++) {
            barrier_init(&b.barrier->full[g][i], 1);
            barrier_init(&b.barrier->empty[g][i], 4);
            barrier_init(&b.barrier->in[g][i], 1);
            barrier_init(&b.barrier->out[g][i], 128);
        }
    show_barriers();
}

/* B's parts, which are of `columns` rows where it is turned. */
template <bool turned, int groups, int columns>
__device__ static inline void load_columns(const block<groups, columns> &b, const CUtensorMap *weight)
{
    constexpr int sides = columns / 64;
    int chunks = b.p.chunks + b.p.own_chunks;
    if (b.g > 0) return;
    barrier_expect(&b.barrier->weight, chunks * tile_bytes(columns));
    for (int i = 0; i < sides * chunks; i++) {
        int inner = i / sides * chunk, column = b.column + i % sides * 64;
        load_box(b.weight + i * side_bytes, weight, turned ? inner : column, turned ? column : inner,
                 &b.barrier->weight);
    }
}

/* Calls load(tile, k, to, barrier) for all chunks of A, each as soon as there is room. */
template <int groups, int columns, class Load>
__device__ static inline void load_rows(const block<groups, columns> &b, Load load)
{
    ring ring = {0, 1};
    for (int64_t tile = b.first; tile < b.end; tile += b.step)
        for (int k = 0; k < b.p.chunks; k++, ring.next(b.p.stages)) {
            uint64_t *full = &b.barrier->full[b.g][ring.at];
            barrier_wait(&b.barrier->empty[b.g][ring.at], ring.phase);
            barrier_expect(full, side_bytes);
            load(tile, k, b.chunk_at(ring.at), full);
        }
}

template <bool turned = false, int groups, int columns>
__device__ static void load_factors(const block<groups, columns> &b, const CUtensorMap *rows,
                                    const CUtensorMap *weight)
{
    load_columns<turned>(b, weight);
    load_rows(b, [&](int64_t tile, int k, uint8_t *to, uint64_t *full) {
        load_box(to, rows, k * chunk, tile * tile_rows, full);
    });
}

/* Where a tile's rows begin; backwards: the first tile has the last rows. */
template <bool backwards, int groups, int columns>
__device__ static inline int64_t first_row(const block<groups, columns> &b, int64_t tile)
{
    return (backwards ? b.end - 1 - tile : tile) * tile_rows;
}

/* A tile of C. */
template <bool backwards = false, int groups, int columns>
__device__ static void load_tile(const block<groups, columns> &b, const CUtensorMap *c, int64_t tile, int i)
{
    uint64_t *in = &b.barrier->in[b.g][i];
    barrier_expect(in, tile_bytes(columns));
    for (int s = 0; s < columns / 64; s++)
        load_box(b.tile_at(i) + s * side_bytes, c, b.column + s * 64, first_row<backwards>(b, tile), in);
}

/* Calls load(tile, i) for all tiles, and store(tile, s, from) for all sides of D. The memory of a tile can be
 * reused as soon as it has been read. */
template <int groups, int columns, class Load, class Store>
__device__ static inline void exchange_sides(const block<groups, columns> &b, Load load, Store store)
{
    int64_t ahead = b.first;
    for (int i = 0; i < b.p.tiles && ahead < b.end; i++, ahead += b.step) load(ahead, i);
    ring ring = {0, 0};
    for (int64_t tile = b.first; tile < b.end; tile += b.step, ahead += b.step, ring.next(b.p.tiles)) {
        barrier_wait(&b.barrier->out[b.g][ring.at], ring.phase);
        for (int s = 0; s < columns / 64; s++) store(tile, s, b.tile_at(ring.at) + s * side_bytes);
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
        if (ahead < b.end) load(ahead, ring.at);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <bool backwards = false, int groups, int columns, class Load>
__device__ static void exchange_tiles(const block<groups, columns> &b, const CUtensorMap *d, Load load)
{
    exchange_sides(b, load, [&](int64_t tile, int s, const uint8_t *from) {
        store_box(d, from, b.column + s * 64, first_row<backwards>(b, tile));
    });
}

/* Begins the product of a chunk and those 64 rows of B. */
template <class T, bool turned = false, int size>
__device__ static inline void multiply_chunk(float (&d)[size], const uint8_t *rows, const uint8_t *weight,
                                             bool adds)
{
    uint32_t a = shared_address(rows), b = shared_address(weight);
    begin_products();
#pragma unroll
    for (int i = 0; i < 4; i++)
        multiply<turned>(d, matrix_at(a + i * 32, 16),
                         turned ? matrix_at(b + i * 32, 16) : matrix_at(b + i * 16 * row_bytes, side_bytes),
                         adds || i > 0, T());
    commit_products();
}

/* A tile of A B. A chunk is released when its own products have ended, after those of the next have begun. */
template <class T, bool turned = false, int groups, int columns>
__device__ static inline void multiply_tile(const block<groups, columns> &b, ring &ring,
                                            float (&d)[columns / 2])
{
    int last = 0;
    auto release = [&] {
        if (threadIdx.x % 32 == 0) barrier_arrive(&b.barrier->empty[b.g][last]);
    };
    for (int k = 0; k < b.p.chunks; k++, ring.next(b.p.stages)) {
        barrier_wait(&b.barrier->full[b.g][ring.at], ring.phase);
        multiply_chunk<T, turned>(d, b.chunk_at(ring.at), b.weight + k * tile_bytes(columns), k > 0);
        if (k > 0) {
            wait_products<1>();
            release();
        }
        last = ring.at;
    }
    finish_products(d);
    release();
}

/* A thread's place in the results of wgmma: two rows, eight apart, and two neighbouring ones of each eight
 * columns. */
struct corner {
    int row, eighth, pair;
    __device__ corner() : row(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4), eighth(threadIdx.x / 4 % 8),
                          pair(threadIdx.x % 4) {}
    /* The offset of columns 8 j + 2 pair and the next, of a row of the tile. */
    __device__ int offset(int j, int row) const
    {
        return j / 8 * side_bytes + row * row_bytes + ((j % 8 ^ row % 8) << 4) + pair * 4;
    }
};

/* Leaves a block's sums of each kind by column, in a fixed order: those of a thread's corner, of all warps.
 * All products have ended: the sums pass through B's memory. */
template <int groups, int columns, int kinds>
__device__ static void leave_sums(const block<groups, columns> &b, float (&sums)[kinds][columns / 4])
{
    constexpr int line = kinds * columns;
    corner c;
    float *lines = (float *)b.weight, *mine = lines + threadIdx.x / 32 * line;
    b.synchronise_groups();
#pragma unroll
    for (int i = 0; i < line / 4; i++) {
        float &sum = sums[i / (columns / 4)][i % (columns / 4)];
        int column = i % (columns / 4) / 2 * 8 + c.pair * 2 + i % 2;
#pragma unroll
        for (int m = 4; m < 32; m *= 2) sum += __shfl_xor_sync(0xffffffff, sum, m);
        if (c.eighth == 0) mine[i / (columns / 4) * columns + column] = sum;
    }
    b.synchronise_groups();
    for (int i = threadIdx.x; i < line; i += groups * 128) {
        float sum = 0;
        for (int warp = 0; warp < 4 * groups; warp++) sum += lines[warp * line + i];
        b.p.parts[(b.line * kinds + i / columns) * (int64_t)b.p.columns + b.column + i % columns] = sum;
    }
}

/* A block's work: each group does multiply(b); of the two warps that serve it, with one thread each, one does
 * load(b) and the other exchange(b). */
template <int groups, int columns, class Multiply, class Load, class Exchange>
__device__ static inline void share_work(const problem &p, Multiply multiply, Load load, Exchange exchange)
{
    extern __shared__ uint8_t memory[];
    int helper = (int)threadIdx.x / 32 - 4 * groups;
    block<groups, columns> b(p, memory, helper < 0 ? threadIdx.x / 128 : helper / 2);
    if (threadIdx.x == 0) barriers_init(b);
    __syncthreads();
    if (helper < 0) {
        take_registers<groups, true>();
        multiply(b);
        return;
    }
    take_registers<groups, false>();
    if (b.g >= groups || threadIdx.x % 32 != 0) return;
    if (helper % 2 == 0) load(b);
    else exchange(b);
}

#endif

/* ---- On the host ---- */

/* Makes the rings as large as fit, tiles first; returns the shared memory. Without room for two chunks and a
 * tile, there are no tiles. */
template <int groups, int columns> static size_t rings_fit(problem *p, size_t most)
{
    for (p->tiles = 2; p->tiles > 0; p->tiles--)
        for (p->stages = ring_max; p->stages >= 2; p->stages--)
            if (shared_bytes<groups, columns>(*p) <= most) return shared_bytes<groups, columns>(*p);
    return 0;
}

/* All problems share a kernel's limit of shared memory. */
template <class Kernel> static enum status grant_shared(const struct call *call, Kernel kernel)
{
    int bytes = (int)cuda_facts(call->device)->shared_bytes;
    return cuda_status(call->device,
                       cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                       "granting a kernel shared memory");
}

typedef CUresult(CUDAAPI *encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* A matrix of rows of `columns` numbers of 16 bits, in boxes of 64 columns. */
static bool map_matrix(CUtensorMap *map, enum dtype dtype, const void *data, int64_t rows, int columns,
                       cuuint32_t box_rows = 64)
{
    encode_function encode;
    cuuint64_t size[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, pitch[1] = {(cuuint64_t)columns * 2};
    cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
    return cuda_driver_find("cuTensorMapEncodeTiled", 12000, &encode) &&
           !encode(map, dtype == F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                   (void *)data, size, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}
