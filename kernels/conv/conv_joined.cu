/* conv_joined.cu: the data gradient of a 1x1 convolution, added to another gradient, by one kernel on Hopper
 * (tiles.cuh): D = mask * (A B + C) and the sums of D's columns. A is d_y, pixels x filters; B the weight,
 * filters x channels; C is d_x_more and D d_x, pixels x channels. C is read and D written once. C may have
 * every second pixel of an image in both directions only: those of a tile are consecutive in it. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/support/tiles.cuh"

extern "C" {
#include "base/memory.h"
}

using namespace tiles;

constexpr int tile_columns = 128;
constexpr int picked_rows = 8;                       /* of a box of C */

struct joined_problem : problem {
    int height, width;                   /* of an image, where C is picked; else 0 */
    const uint8_t *mask;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int groups> using joined_block = block<groups, tile_columns>;

/* The number of picked pixels in front of one, and whether that is picked. */
__device__ static inline int picked_before(const joined_problem &p, int64_t pixel, bool *picked)
{
    int w = (int)pixel % p.width, row = (int)pixel / p.width, h = row % p.height, n = row / p.height;
    int wide = (p.width + 1) / 2, high = (p.height + 1) / 2;
    *picked = h % 2 == 0 && w % 2 == 0;
    return (n * high + (h + 1) / 2) * wide + (h % 2 == 0 ? (w + 1) / 2 : 0);
}

/* Picked rows of C lie in the first rows of a tile, which are loaded by eights. */
template <int groups>
__device__ static void load_picked(const joined_block<groups> &b, const joined_problem &p,
                                   const CUtensorMap *more, int64_t tile, int i)
{
    bool here;
    uint64_t *in = &b.barrier->in[b.g][i];
    int64_t first = tile * tiles::tile_rows;
    int64_t end = picked_before(p, min(first + tiles::tile_rows, p.rows), &here);
    first = picked_before(p, first, &here);
    int rows = (int)(end - first + picked_rows - 1) / picked_rows * picked_rows;
    barrier_expect(in, 2 * rows * row_bytes);
    for (int row = 0; row < rows; row += picked_rows)
        for (int s = 0; s < 2; s++)
            load_box(b.tile_at(i) + s * side_bytes + row * row_bytes, more, b.column + s * 64, first + row,
                     in);
}

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
__device__ static inline void add_picked(const joined_block<groups> &b, const corner &c, const picked &from,
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
    b.synchronise_group();
}

/* Writes D to `tile`, from A B in registers and, unless that was added, C in `tile`; adds up D's sums. */
template <class T, bool added>
__device__ static inline void join_tile(const corner &c, uint8_t *tile, const float (&d)[64],
                                        const uint32_t (&mask)[2][mask_words], float (&sums)[1][32])
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
            sums[0][2 * j] += stored.x;
            sums[0][2 * j + 1] += stored.y;
        }
}

template <class T, bool picks, int groups>
__device__ static void join_tiles(const joined_block<groups> &b, const joined_problem &p)
{
    corner c;
    float sums[1][32] = {};
    ring chunks = {0, 0}, tiles = {0, 0};
    barrier_wait(&b.barrier->weight, 0);
    for (int64_t tile = b.first; tile < b.end; tile += b.step, tiles.next(b.p.tiles)) {
        uint32_t mask[2][mask_words];
        float d[64];
        load_mask(p, tile * tiles::tile_rows + c.row, b.column, mask);
        picked from = picks ? picked(p, c, tile * tiles::tile_rows) : picked();
        multiply_tile<T>(b, chunks, d);
        barrier_wait(&b.barrier->in[b.g][tiles.at], tiles.phase);
        uint8_t *joined = b.tile_at(tiles.at);
        if constexpr (picks) add_picked<T>(b, c, from, joined, d);
        join_tile<T, picks>(c, joined, d, mask, sums);
        show_stored();
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
    share_work<groups, tile_columns>(
        p, [&](const auto &b) { join_tiles<T, picks>(b, p); },
        [&](const auto &b) { load_factors(b, &d_y, &weight); },
        [&](const auto &b) {
            exchange_tiles(b, &d_x, [&](int64_t tile, int i) {
                if constexpr (picks) load_picked(b, p, &more, tile, i);
                else load_tile(b, &more, tile, i);
            });
        });
#endif
}

/* ---- The algorithm ---- */

/* Rings have as many chunks as fit. */
struct joined_plan {
    int groups, stages, tiles, lines;
    size_t shared;
};

/* True if C has every second pixel. */
static bool is_picked(const struct conv_call *p)
{
    return shape_count(call_operand(p->call, OPERAND_D_X_ADDEND)->shape) < shape_count(p->call->d_x[0].shape);
}

static joined_problem joined_problem_of(const struct conv_call *p, const struct joined_plan *made)
{
    joined_problem made_of = {};
    made_of.rows = (int64_t)p->n * p->in[0] * p->in[1];
    made_of.columns = p->c;
    made_of.chunks = p->k / tiles::chunk;
    made_of.stages = made->stages;
    made_of.tiles = made->tiles;
    made_of.height = is_picked(p) ? p->in[0] : 0;
    made_of.width = is_picked(p) ? p->in[1] : 0;
    return made_of;
}

template <int groups, class Work> static auto with_kernel_of(const struct conv_call *p, Work work)
{
    auto kernel = p->dtype == F16 ? conv_joined_kernel<__half, groups, false>
                                  : conv_joined_kernel<__nv_bfloat16, groups, false>;
    if (is_picked(p))
        kernel = p->dtype == F16 ? conv_joined_kernel<__half, groups, true>
                                 : conv_joined_kernel<__nv_bfloat16, groups, true>;
    return work(kernel);
}

/* Calls work(kernel) with the one for the problem and the groups. */
template <class Work> static auto with_kernel(const struct conv_call *p, int groups, Work work)
{
    return groups == 2 ? with_kernel_of<2>(p, work) : with_kernel_of<3>(p, work);
}

static bool joined_is_compiled(const struct conv_call *p)
{
    return with_kernel(p, 2, [](auto kernel) { return is_compiled(kernel); });
}

static bool can_join(const struct conv_call *p, const struct cuda_facts *facts)
{
    bool product = p->groups == 1 && p->kernel[0] == 1 && p->kernel[1] == 1 && p->stride[0] == 1 &&
                   p->stride[1] == 1 && p->pad[0] == 0 && p->pad[1] == 0;
    return call_operand(p->call, OPERAND_MASK) && product &&
           dtype_bytes(p->dtype) == 2 && p->c % tile_columns == 0 &&
           p->c / tile_columns <= facts->multiprocessors && p->k % tiles::chunk == 0 &&
           (double)p->n * p->in[0] * p->in[1] < 2e9 && facts->capability == 90 &&
           joined_is_compiled(p);
}

static bool joined_fit(const struct conv_call *p, const struct cuda_facts *facts, struct joined_plan *made)
{
    for (made->stages = ring_max; made->stages >= 2; made->stages--) {
        joined_problem problem = joined_problem_of(p, made);
        made->shared = made->groups == 2 ? shared_bytes<2, tile_columns>(problem)
                                         : shared_bytes<3, tile_columns>(problem);
        if (made->shared <= facts->shared_bytes) break;
    }
    made->lines = facts->multiprocessors / (p->c / tile_columns);
    return made->stages >= 2;
}

static bool joined_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    return can_join(&p, cuda_facts(call->device));
}

static int joined_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    static const int sizes[][2] = {{2, 2}, {3, 1}, {2, 1}};   /* groups, tiles */
    const struct conv_call p = conv_call_of(call);
    int count = 0;
    for (const int *size : sizes) {
        struct joined_plan made = {.groups = size[0], .tiles = size[1]};
        if (count < most && joined_fit(&p, cuda_facts(call->device), &made))
            snprintf(names[count++], PLAN_NAME, "joined %d %d", made.groups, made.tiles);
    }
    return count;
}

static bool joined_make(const struct call *call, struct kernel_plan *plan)
{
    const struct cuda_facts *facts = cuda_facts(call->device);
    const struct conv_call p = conv_call_of(call);
    struct joined_plan made = {};
    if (sscanf(plan->name, "joined %d %d", &made.groups, &made.tiles) != 2 ||
        (made.groups != 2 && made.groups != 3) || made.tiles < 1 || made.tiles > ring_max ||
        !joined_fit(&p, facts, &made))
        return false;
    /* All plans share the kernel, and its limit of shared memory. */
    bool allowed = with_kernel(&p, made.groups, [&](auto kernel) {
        return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)facts->shared_bytes) == cudaSuccess;
    });
    if (!allowed) {
        cudaGetLastError();
        return false;
    }
    plan->state = memory_new(1, sizeof made);
    *(struct joined_plan *)plan->state = made;
    plan->workspace = (size_t)made.lines * p.c * sizeof(float);
    plan->epilogues = AS_BIT(EPILOGUE_ADD) | AS_BIT(EPILOGUE_MULTIPLY) | AS_BIT(EPILOGUE_SUMS);
    return true;
}

static enum status joined_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct joined_plan *made = (const struct joined_plan *)plan->state;
    const struct conv_call p = conv_call_of(call);
    joined_problem problem = joined_problem_of(&p, made);
    problem.mask = (const uint8_t *)call_data(call, OPERAND_MASK);
    problem.parts = (float *)call->workspace;
    bool picked = is_picked(&p);
    int64_t more_rows = picked ? (int64_t)p.n * ((p.in[0] + 1) / 2) * ((p.in[1] + 1) / 2) : problem.rows;
    CUtensorMap d_y, weight, more, d_x;
    if (problem.rows == 0) return OK;
    if (!map_matrix(&d_y, p.dtype, conv_y(call), problem.rows, p.k) ||
        !map_matrix(&weight, p.dtype, conv_weight(call), p.k, p.c) ||
        !map_matrix(&more, p.dtype, call_data(call, OPERAND_D_X_ADDEND), more_rows, p.c,
                    picked ? picked_rows : 64) ||
        !map_matrix(&d_x, p.dtype, conv_x(call), problem.rows, p.c))
        return plan->trusted ? fail(NO_DEVICE, "the driver does not describe a convolution's tensors")
                             : NO_DEVICE;
    unsigned blocks = (unsigned)(made->lines * (p.c / tile_columns));
    with_kernel(&p, made->groups, [&](auto kernel) {
        kernel<<<blocks, threads(made->groups), made->shared, stream_of(call)>>>(d_y, weight, more, d_x,
                                                                                problem);
    });
    TRY(launched(call));
    float *sums = (float *)call_data(call, OPERAND_D_X_SUMS);
    return columns_finish(call, {problem.parts, made->lines, 1, p.c}, sums);
}

const struct algorithm conv_by_joined = {
    .name = "joined",
    .supports = joined_supports,
    .candidates = joined_candidates,
    .make = joined_make,
    .run = joined_run,
};
