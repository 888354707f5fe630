/* conv_transpose_concat_patches.cu: with the taps side by side, y is a matrix [pixels of x, taps x filters],
 * and the weight one [channels, taps x filters]: y = x w, d_x = d_y w', d_w = x' d_y. Boxes of y, 64 filters
 * of a tap at the pixels of a tile, are rows of that matrix: the tensor memory accelerator finds them where
 * they lie, whatever lies between. The 64 pixels of a tile are a rectangle, of rows of all images.
 *
 * y and d_x are made by tiles.cuh's blocks. Of d_w, a block has 128 channels x 256 columns in registers, and
 * every nth tile of pixels; what blocks have is added up in a fixed order. */
#include "kernels/folded/conv_transpose_concat_patches.cuh"

#include "kernels/support/columns.cuh"
#include "kernels/support/tiles.cuh"

using namespace tiles;

/* Sides of 64 channels, of a tap; taps in a row of the kernel. */
struct taps {
    int sides, across;
};

/* Rectangles of pixels. */
struct rectangles {
    int width, height, across;           /* of one; a row's number */
};

struct patches_problem : problem {
    rectangles pixels;
    taps a, d;
    const void *bias;
};

constexpr int group_count = 3;
constexpr int weight_rows = 128, weight_columns = 256, weight_groups = 2, weight_stages = 4;
constexpr int stage_sides = (weight_rows + weight_columns) / 64;

struct weights_problem {
    rectangles pixels;
    taps y;
    int channels, columns, tiles, splits;    /* tiles: of pixels */
    float *parts, *sums;                 /* [splits][channels][columns], [splits x 2][columns] or NULL */
};

struct weights_memory {
    uint8_t sides[weight_stages][stage_sides][side_bytes];     /* of x, then of d_y */
    uint64_t full[weight_stages], empty[weight_stages];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* The first coordinates of a box: of 64 channels of a tap, and of a tile's pixels. One thread computes those
 * of all boxes, so it must not divide for each. */
struct side {
    int c, s, r;
    __device__ side(const taps &t, int number)
    {
        int tap = number / t.sides;
        c = number % t.sides * 64, s = tap % t.across, r = tap / t.across;
    }
    __device__ void next(const taps &t)
    {
        if ((c += 64) < t.sides * 64) return;
        c = 0;
        if (++s < t.across) return;
        s = 0, r++;
    }
};
struct spot {
    int q, row;
    __device__ spot(const rectangles &pixels, int64_t tile)
    {
        unsigned number = (unsigned)tile, across = (unsigned)pixels.across;
        q = (int)(number % across) * pixels.width, row = (int)(number / across) * pixels.height;
    }
};

__device__ static inline void load_side(void *to, const CUtensorMap *map, const side &of, const spot &at,
                                        uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(to)), "l"(map),
                 "r"(shared_address(barrier)), "r"(of.c), "r"(at.q), "r"(at.row), "r"(of.s), "r"(of.r)
                 : "memory");
}

__device__ static inline void store_side(const CUtensorMap *map, const void *from, const side &of,
                                         const spot &at)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
                 ::"l"(map), "r"(shared_address(from)), "r"(of.c), "r"(at.q), "r"(at.row), "r"(of.s),
                 "r"(of.r) : "memory");
}

/* Writes D, with the bias of its channels. */
template <class T, int columns>
__device__ static inline void write_tile(const patches_problem &p, int column, const corner &c, uint8_t *tile,
                                         const float (&d)[columns / 2])
{
#pragma unroll
    for (int j = 0; j < columns / 8; j++) {
        int channel = (column / 64 + j / 8) % p.d.sides * 64 + j % 8 * 8 + c.pair * 2;
        float2 b = p.bias ? unpack(*(const uint32_t *)((const T *)p.bias + channel), T()) : float2{0, 0};
#pragma unroll
        for (int below = 0; below < 2; below++)
            *(uint32_t *)(tile + c.offset(j, c.row + 8 * below)) =
                pack_pair(d[4 * j + 2 * below] + b.x, d[4 * j + 2 * below + 1] + b.y, T());
    }
}

template <class T, bool turned, int columns>
__device__ static void make_tiles(const block<group_count, columns> &b, const patches_problem &p)
{
    corner c;
    ring chunks = {0, 0}, tiles = {0, 0};
    barrier_wait(&b.barrier->weight, 0);
    for (int64_t tile = b.first; tile < b.end; tile += b.step, tiles.next(p.tiles)) {
        float d[columns / 2];
        multiply_tile<T, turned>(b, chunks, d);
        barrier_wait(&b.barrier->in[b.g][tiles.at], tiles.phase);
        write_tile<T, columns>(p, b.column, c, b.tile_at(tiles.at), d);
        show_stored();
        barrier_arrive(&b.barrier->out[b.g][tiles.at]);
    }
}

/* ---- The weight's gradient ---- */

/* A block's part: channels, columns, tiles of pixels. */
struct weights_part {
    int channel, column, split;
    __device__ weights_part(const weights_problem &p)
    {
        int wide = p.columns / weight_columns, high = p.channels / weight_rows;
        column = blockIdx.x % wide * weight_columns;
        channel = blockIdx.x / wide % high * weight_rows;
        split = blockIdx.x / (wide * high);
    }
};

__device__ static void load_pixels(weights_memory &m, const weights_problem &p, const CUtensorMap *x,
                                   const CUtensorMap *y)
{
    weights_part part(p);
    const taps channels = {p.channels / 64, 1};
    const side x_first(channels, part.channel / 64), y_first(p.y, part.column / 64);
    ring ring = {0, 1};
    for (int tile = part.split; tile < p.tiles; tile += p.splits, ring.next(weight_stages)) {
        const spot at(p.pixels, tile);
        side of_x = x_first, of_y = y_first;
        barrier_wait(&m.empty[ring.at], ring.phase);
        barrier_expect(&m.full[ring.at], stage_sides * side_bytes);
        for (int s = 0; s < stage_sides; s++) {
            bool from_x = s < weight_rows / 64;
            load_side(m.sides[ring.at][s], from_x ? x : y, from_x ? of_x : of_y, at, &m.full[ring.at]);
            if (from_x) of_x.next(channels);
            else of_y.next(p.y);
        }
    }
}

/* Begins a' b of 64 pixels: 64 channels x 256 columns. */
template <class T>
__device__ static inline void multiply_pixels(float (&d)[2][64], const uint8_t *a, const uint8_t *b,
                                              bool adds)
{
    begin_products();
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply<false, true>(
                d[half], matrix_at(shared_address(a) + i * 16 * row_bytes, side_bytes),
                matrix_at(shared_address(b) + half * 2 * side_bytes + i * 16 * row_bytes, side_bytes),
                adds || i > 0, T());
    commit_products();
}

/* Adds up 8 columns in every eighth pixel. */
template <class T> __device__ static inline void sum_pixels(float (&sums)[8], const uint8_t *b)
{
    int unit = threadIdx.x % 8, row = threadIdx.x / 8 % 8;
    const uint8_t *at = b + threadIdx.x / 64 * side_bytes + row * row_bytes + ((unit ^ row) << 4);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint4 eight = *(const uint4 *)(at + i * 8 * row_bytes);
        const uint32_t two[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float2 both = unpack(two[k], T());
            sums[2 * k] += both.x, sums[2 * k + 1] += both.y;
        }
    }
}

__device__ static void leave_pixels(const weights_problem &p, const weights_part &part,
                                    const float (&d)[2][64], float (&sums)[8], bool has_sums)
{
    corner c;
    int g = threadIdx.x / 128;
#pragma unroll
    for (int i = 0; i < 128; i += 2) {
        int row = part.channel + g * 64 + c.row + i % 4 / 2 * 8;
        int column = part.column + i / 64 * 128 + i % 64 / 4 * 8 + c.pair * 2;
        *(float2 *)(p.parts + ((int64_t)part.split * p.channels + row) * p.columns + column) =
            float2{d[i / 64][i % 64], d[i / 64][i % 64 + 1]};
    }
    if (!has_sums) return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sums[i] += __shfl_xor_sync(~0u, sums[i], 8);
        sums[i] += __shfl_xor_sync(~0u, sums[i], 16);
    }
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *to = p.sums + (int64_t)(part.split * 2 + warp % 2) * p.columns + part.column + warp / 2 * 64;
    if (lane >= 8) return;
#pragma unroll
    for (int i = 0; i < 8; i++) to[lane * 8 + i] = sums[i];
}

template <class T> __device__ static void multiply_weights(weights_memory &m, const weights_problem &p)
{
    weights_part part(p);
    bool has_sums = p.sums && part.channel == 0;
    float d[2][64], sums[8] = {};
    ring ring = {0, 0};
    int last = -1;
    auto release = [&] {
        if (last >= 0 && threadIdx.x % 32 == 0) barrier_arrive(&m.empty[last]);
    };
    for (int tile = part.split; tile < p.tiles; tile += p.splits, ring.next(weight_stages)) {
        const uint8_t(*sides)[side_bytes] = m.sides[ring.at];
        barrier_wait(&m.full[ring.at], ring.phase);
        multiply_pixels<T>(d, sides[threadIdx.x / 128], sides[weight_rows / 64],
                           last >= 0);
        if (has_sums) sum_pixels<T>(sums, sides[weight_rows / 64]);
        wait_products<1>();
        release();
        last = ring.at;
    }
    finish_products(d[0]);
    finish_products(d[1]);
    leave_pixels(p, part, d, sums, has_sums);
}

#endif

template <class T, bool turned, int columns>
__global__ void __launch_bounds__(threads(group_count), 1)
    folded_patches_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap weight,
                        const __grid_constant__ CUtensorMap d, const patches_problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    share_work<group_count, columns>(
        p, [&](const auto &b) { make_tiles<T, turned>(b, p); },
        [&](const auto &b) {
            load_columns<turned>(b, &weight);
            side of(p.a, 0);
            spot at(p.pixels, 0);
            load_rows(b, [&](int64_t tile, int k, uint8_t *to, uint64_t *full) {
                if (k == 0) of = side(p.a, 0), at = spot(p.pixels, tile);
                load_side(to, &a, of, at, full);
                of.next(p.a);
            });
        },
        [&](const auto &b) {
            const side first(p.d, b.column / 64);
            side of = first;
            exchange_sides(
                b, [&](int64_t, int i) { barrier_arrive(&b.barrier->in[b.g][i]); },
                [&](int64_t tile, int s, const uint8_t *from) {
                    if (s == 0) of = first;
                    store_side(&d, from, of, spot(p.pixels, tile));
                    of.next(p.d);
                });
        });
#endif
}

template <class T>
__global__ void __launch_bounds__(threads(weight_groups), 1)
    folded_patches_weights_kernel(const __grid_constant__ CUtensorMap x,
                                  const __grid_constant__ CUtensorMap y, const weights_problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t memory[];
    weights_memory &m = *(weights_memory *)(memory + (-shared_address(memory) & (8 * row_bytes - 1)));
    if (threadIdx.x == 0) {
        for (int i = 0; i < weight_stages; i++) {
            barrier_init(&m.full[i], 1);
            barrier_init(&m.empty[i], 4 * weight_groups);
        }
        show_barriers();
    }
    __syncthreads();
    if (threadIdx.x < 128 * weight_groups) {
        take_registers<weight_groups, true>();
        multiply_weights<T>(m, p);
    } else {
        take_registers<weight_groups, false>();
        if (threadIdx.x == 128 * weight_groups) load_pixels(m, p, &x, &y);
    }
#endif
}

/* Four numbers of the weight's gradient. */
__global__ void patches_finish_kernel(float4 *d_weight, const float4 *parts, int64_t count, int splits)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float4 sum = parts[i];
#pragma unroll 8
    for (int split = 1; split < splits; split++) {
        float4 more = parts[split * count + i];
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    d_weight[i] = sum;
}

/* ---- On the host ---- */

static int columns_of(const struct folded_patches *of)
{
    return of->kernel[0] * of->kernel[1] * of->filters;
}

static rectangles rectangles_of(const struct folded_patches *of)
{
    int width = 1;
    while (width < 64 && of->width % (2 * width) == 0) width *= 2;
    return {width, 64 / width, of->width / width};
}

static int64_t tiles_of(const struct folded_patches *of)
{
    rectangles pixels = rectangles_of(of);
    return (int64_t)pixels.across * div_up(of->rows, pixels.height);
}

/* Pixels of so many channels at the taps of a kernel; each tap has rows x width of them. */
static bool map_pixels(CUtensorMap *map, const struct folded_patches *of, const void *data, int channels,
                       int64_t pitch, const int (&kernel)[2])
{
    encode_function encode;
    rectangles pixels = rectangles_of(of);
    cuuint64_t pixel = (cuuint64_t)pitch * 2, row = pixel * (cuuint64_t)(of->width * kernel[1]);
    cuuint64_t size[5] = {(cuuint64_t)channels, (cuuint64_t)of->width, (cuuint64_t)of->rows,
                          (cuuint64_t)kernel[1], (cuuint64_t)kernel[0]};
    cuuint64_t pitches[4] = {pixel * (cuuint64_t)kernel[1], row * (cuuint64_t)kernel[0], pixel, row};
    cuuint32_t box[5] = {64, (cuuint32_t)pixels.width, (cuuint32_t)pixels.height, 1, 1};
    cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    return cuda_driver_find("cuTensorMapEncodeTiled", 12000, &encode) &&
           !encode(map, of->dtype == F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                   5, (void *)data, size, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

struct maps {
    CUtensorMap x, y, weight;
};

static enum status maps_make(const struct folded_patches *of, struct maps *maps)
{
    bool made = map_pixels(&maps->x, of, of->x, of->channels, of->channels, {1, 1}) &&
                map_pixels(&maps->y, of, of->y, of->filters, of->pitch, of->kernel) &&
                map_matrix(&maps->weight, of->dtype, of->weight, of->channels, columns_of(of));
    return made ? OK : fail(NO_DEVICE, "the driver does not describe a convolution's tensors");
}

/* The problem of y or d_x for blocks of so many columns. */
template <int columns>
static patches_problem problem_of(const struct folded_patches *of, const struct cuda_facts *facts,
                                  size_t *shared)
{
    bool forward = of->phase == PHASE_FORWARD;
    const taps x = {of->channels / 64, 1}, y = {of->filters / 64, of->kernel[1]};
    patches_problem p = {};
    p.rows = tiles_of(of) * tiles::tile_rows;
    p.columns = forward ? columns_of(of) : of->channels;
    p.chunks = (forward ? of->channels : columns_of(of)) / tiles::chunk;
    p.pixels = rectangles_of(of);
    p.a = forward ? x : y;
    p.d = forward ? y : x;
    p.bias = of->bias;
    *shared = rings_fit<group_count, columns>(&p, facts->shared_bytes);
    return p;
}

static weights_problem weights_problem_of(const struct folded_patches *of, struct device *device)
{
    weights_problem p = {rectangles_of(of), {of->filters / 64, of->kernel[1]}, of->channels, columns_of(of)};
    int blocks = p.channels / weight_rows * (p.columns / weight_columns);
    int most = multiprocessors_of(device) / blocks;
    p.tiles = (int)tiles_of(of);
    p.splits = most < 1 ? 1 : most < p.tiles ? most : p.tiles;
    return p;
}

static size_t parts_bytes(const weights_problem *p)
{
    return (size_t)p->splits * (size_t)p->channels * (size_t)p->columns * sizeof(float);
}

size_t folded_patches_workspace(const struct folded_patches *of, struct device *device)
{
    if (of->phase != PHASE_BACKWARD_PARAMS) return 0;
    weights_problem p = weights_problem_of(of, device);
    return parts_bytes(&p) + (of->sums ? 2 * (size_t)(p.splits * p.columns) * sizeof(float) : 0);
}

template <class T> static enum status run_weights(const struct call *call, const struct folded_patches *of)
{
    weights_problem p = weights_problem_of(of, call->device);
    p.parts = (float *)call->workspace;
    p.sums = of->sums ? (float *)((char *)call->workspace + parts_bytes(&p)) : NULL;
    struct maps maps;
    TRY(maps_make(of, &maps));
    auto kernel = folded_patches_weights_kernel<T>;
    TRY(grant_shared(call, kernel));
    unsigned blocks = (unsigned)(p.splits * (p.channels / weight_rows) * (p.columns / weight_columns));
    size_t shared = sizeof(weights_memory) + 8 * row_bytes;
    kernel<<<blocks, threads(weight_groups), shared, stream_of(call)>>>(maps.x, maps.y, p);
    TRY(launched(call));
    int64_t count = (int64_t)p.channels * p.columns / 4;
    patches_finish_kernel<<<(unsigned)div_up(count, (int64_t)128), 128, 0, stream_of(call)>>>(
        (float4 *)of->weight, (const float4 *)p.parts, count, p.splits);
    TRY(launched(call));
    int rows = 2 * p.splits * of->kernel[0] * of->kernel[1];
    return p.sums ? columns_finish(call, {p.sums, rows, 1, of->filters}, of->d_bias) : OK;
}

template <class T, bool turned, int columns>
static enum status run_pixels(const struct call *call, const struct folded_patches *of)
{
    const struct cuda_facts *facts = cuda_facts(call->device);
    size_t shared;
    patches_problem p = problem_of<columns>(of, facts, &shared);
    int wide = p.columns / columns;
    struct maps maps;
    TRY(maps_make(of, &maps));
    auto kernel = folded_patches_kernel<T, turned, columns>;
    TRY(grant_shared(call, kernel));
    kernel<<<(unsigned)(facts->multiprocessors / wide * wide), threads(group_count), shared,
             stream_of(call)>>>(turned ? maps.y : maps.x, maps.weight, turned ? maps.x : maps.y, p);
    return launched(call);
}

/* Blocks of half as many columns have room for twice as many chunks of B. */
static bool is_narrow(const struct folded_patches *of)
{
    return (of->phase == PHASE_FORWARD ? of->channels : columns_of(of)) > 512;
}

template <class T> static enum status run_type(const struct call *call, const struct folded_patches *of)
{
    if (of->phase == PHASE_BACKWARD_PARAMS) return run_weights<T>(call, of);
    if (of->phase == PHASE_FORWARD)
        return is_narrow(of) ? run_pixels<T, false, 64>(call, of) : run_pixels<T, false, 128>(call, of);
    return is_narrow(of) ? run_pixels<T, true, 64>(call, of) : run_pixels<T, true, 128>(call, of);
}

enum status folded_patches_run(const struct call *call, const struct folded_patches *of)
{
    return of->dtype == F16 ? run_type<__half>(call, of) : run_type<__nv_bfloat16>(call, of);
}

bool folded_patches_fit(const struct folded_patches *of, struct device *device)
{
    const struct cuda_facts *facts = cuda_facts(device);
    size_t shared;
    if (facts->capability != 90 || (double)of->rows * of->width > 1e9 ||
        !is_compiled(folded_patches_weights_kernel<__half>)) return false;
    patches_problem p = is_narrow(of) ? problem_of<64>(of, facts, &shared)
                                      : problem_of<128>(of, facts, &shared);
    return of->phase == PHASE_BACKWARD_PARAMS ||
           (p.tiles > 0 && p.columns / (is_narrow(of) ? 64 : 128) <= facts->multiprocessors);
}
