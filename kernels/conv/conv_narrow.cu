/* conv_narrow.cu: "narrow": 3x3 convolutions of 64 or 128 channels on Hopper, with bias and relu or with
 * moments, data gradients of as many filters, and weights' gradients; the other channels, or filters, are a
 * multiple of 64. cuDNN computes such products 64 columns at a time, for which tensor cores wait for shared
 * memory; here they have 128 or 192. Images, and their gradients, may be two tensors, whose channels follow
 * each other.
 *
 * A strip is 128 pixels wide and as high as an image. Blocks are persistent; each has a run of tiles, which
 * go down strips. Lines of x, with a pixel more at each side, come to a ring in shared memory once, and all
 * nine taps read them there: a pixel is a row of 128 bytes, and what another tap reads begins rows later. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/support/tiles.cuh"

using namespace tiles;

constexpr int across = CONV_STRIP, taps = 9;
constexpr int line_pitch = (across + 8) * row_bytes; /* the swizzle repeats every 1024 bytes */
constexpr int pixels_bytes = across * row_bytes;

/* `down`: tiles of a strip. */
struct work {
    int w, h, strips, down;
    int64_t tiles;
    int channels, first, wanted;         /* of the weights; of the result, a block has 64 of those */
};

/* A block's first channel of the result, and its part of those that have the same. */
struct part {
    int channel, number, count;
    __device__ part(const work &work)
    {
        int wide = work.wanted / 64;
        channel = work.first + blockIdx.x % wide * 64;
        number = blockIdx.x / wide;
        count = gridDim.x / wide;
    }
};

/* One tensor, or two, of which the first has so many channels. */
struct images {
    CUtensorMap of[2];
    int first;
};

/* A tile, and whether it is the first or the last that its block has of a strip. */
struct place {
    int n, x, at;
    bool begins, ends;
};

static work work_of(const struct conv_call *p, int rows)
{
    struct work work = {.w = p->out[1], .h = p->out[0], .strips = div_up(p->out[1], across),
                        .down = div_up(p->out[0], rows), .channels = p->c};
    work.tiles = (int64_t)p->n * work.strips * work.down;
    return work;
}

/* Pixels of 64 channels each, `pixels` of a line at a time; those outside of the image are zeros. */
static bool map_tensor(CUtensorMap *map, const struct conv_call *p, const void *data, int channels,
                       int pixels)
{
    encode_function encode;
    cuuint64_t pixel = (cuuint64_t)channels * 2, line = pixel * p->in[1];
    cuuint64_t size[4] = {(cuuint64_t)channels, (cuuint64_t)p->in[1], (cuuint64_t)p->in[0],
                          (cuuint64_t)p->n};
    cuuint64_t pitch[3] = {pixel, line, line * p->in[0]};
    cuuint32_t box[4] = {64, (cuuint32_t)pixels, 1, 1}, steps[4] = {1, 1, 1, 1};
    return cuda_driver_find("cuTensorMapEncodeTiled", 12000, &encode) &&
           !encode(map, p->dtype == F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                   4, (void *)data, size, pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* The tensors of a phase: a gradient takes the place of its tensor; not every one of x is wanted. */
static bool map_x(images *x, const struct conv_call *p, int pixels)
{
    const struct call *call = p->call;
    bool mapped = true;
    x->first = (int)call->x[0].shape.c;
    for (int i = 0; i < call->x_count; i++) {
        const struct tensor *tensor = p->phase == PHASE_BACKWARD_DATA ? &call->d_x[i] : &call->x[i];
        if (!tensor->data) continue;
        mapped = mapped && map_tensor(&x->of[i], p, tensor->data, (int)call->x[i].shape.c, pixels);
    }
    return mapped;
}

static bool map_y(images *y, const struct conv_call *p, int pixels)
{
    y->first = p->k;
    return map_tensor(&y->of[0], p, conv_y(p->call), p->k, pixels);
}

/* The end of a convolution without moments: bias is added to D, then relu. */
struct finish {
    const void *bias;                    /* [filters], of x's type; NULL: none */
    bool relu;
};

static enum status describe_fail(bool trusted)
{
    return trusted ? fail(NO_DEVICE, "the driver does not describe a convolution's tensors") : NO_DEVICE;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int line_bytes = (across + 2) * row_bytes;

/* Calls body(place) for the block's `part` of so many. */
template <class Body>
__device__ static inline void each_tile(const work &work, int part, int parts, Body body)
{
    int first = (int)(work.tiles * part / parts), end = (int)(work.tiles * (part + 1) / parts);
    int at = first % work.down, strip = first / work.down;
    for (int tile = first; tile < end; tile++) {
        bool lowest = at + 1 == work.down;
        body(place{strip / work.strips, strip % work.strips * across, at, tile == first || at == 0,
                   tile + 1 == end || lowest});
        at = lowest ? 0 : at + 1;
        strip += lowest;
    }
}

/* Barriers of a ring that one thread fills and so many warps empty. */
__device__ static inline void barriers_begin(uint64_t *full, uint64_t *empty, int count, int warps)
{
    for (int i = 0; i < count; i++) {
        barrier_init(&full[i], 1);
        barrier_init(&empty[i], warps);
    }
}

__device__ static inline void load_pixels(void *to, const images &from, int c, int x, int y, int n,
                                          uint64_t *barrier)
{
    const CUtensorMap *map = &from.of[c >= from.first];
    if (c >= from.first) c -= from.first;
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)), "l"(map),
                 "r"(shared_address(barrier)), "r"(c), "r"(x), "r"(y), "r"(n) : "memory");
}

__device__ static inline void store_pixels(const images &to, const void *from, int c, int x, int y, int n)
{
    const CUtensorMap *map = &to.of[c >= to.first];
    if (c >= to.first) c -= to.first;
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map), "r"(shared_address(from)), "r"(c), "r"(x), "r"(y),
                 "r"(n) : "memory");
}

#endif

/* ---- Forward and the data's gradient ----
 *
 * D [64 filters x 128 pixels] is the sum over the taps of A B': A is a tap's weights, which all are in shared
 * memory; B the pixels that it reads. Two warpgroups have a line each of a tile, whose four lines of x are
 * two pairs, the second of which is the first of the tile below; a third has the thread that loads them. */

constexpr int groups = 2;                            /* warpgroups that multiply */
constexpr int pairs_held = 3;                        /* of lines, in the ring */
constexpr int pair_bytes = 2 * line_pitch;

struct pixel_barriers {
    uint64_t weight, full[pairs_held], empty[pairs_held];
};

constexpr size_t pixels_shared = 8 * row_bytes + taps * side_bytes + pairs_held * pair_bytes +
                                 groups * pixels_bytes + sizeof(pixel_barriers);

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct pixel_block {
    uint8_t *weight, *lines, *tiles;
    pixel_barriers *barrier;
    part own;
    __device__ pixel_block(uint8_t *memory, const work &work) : own(work)
    {
        weight = memory + (-shared_address(memory) & (8 * row_bytes - 1));
        lines = weight + taps * side_bytes;
        tiles = lines + pairs_held * pair_bytes;
        barrier = (pixel_barriers *)(tiles + groups * pixels_bytes);
    }
};

/* Readies the barriers of a block with weights and a ring of so many. */
template <class Block> __device__ static inline void block_begin(const Block &b, int held)
{
    if (threadIdx.x == 0) {
        barrier_init(&b.barrier->weight, 1);
        barriers_begin(b.barrier->full, b.barrier->empty, held, 4 * groups);
        show_barriers();
    }
    __syncthreads();
}

/* Loads all taps of the block's filters for 64 channels from `from` on; for the data's gradient, those of its
 * channels for 64 filters. */
template <bool data>
__device__ static inline void load_taps(uint8_t *to, const part &own, const work &work,
                                        const CUtensorMap *weight, int from, uint64_t *barrier)
{
    int column = data ? own.channel : from, row = data ? from : own.channel;
    for (int tap = 0; tap < taps; tap++)
        load_box(to + tap * side_bytes, weight, tap * work.channels + column, row, barrier);
}

template <bool data>
__device__ static void load_lines(const pixel_block &b, const work &work, const images &x,
                                  const CUtensorMap *weight)
{
    barrier_expect(&b.barrier->weight, taps * side_bytes);
    load_taps<data>(b.weight, b.own, work, weight, 0, &b.barrier->weight);
    ring ring = {0, 1};
    each_tile(work, b.own.number, b.own.count, [&](const place &at) {
        for (int pair = at.begins ? 0 : 1; pair < 2; pair++, ring.next(pairs_held)) {
            uint64_t *full = &b.barrier->full[ring.at];
            int y = 2 * (at.at + pair) - 1;
            barrier_wait(&b.barrier->empty[ring.at], ring.phase);
            barrier_expect(full, 2 * line_bytes);
            for (int i = 0; i < 2; i++)
                load_pixels(b.lines + ring.at * pair_bytes + i * line_pitch, x, 0, at.x - 1, y + i, at.n,
                            full);
        }
    });
}

/* Warpgroups take turns, with the tensor cores or with memory: one finishes its line while the other
 * multiplies. The second passes the first turn to the first, which takes the last one. */
__device__ static inline void take_turn(int g) { asm volatile("bar.sync %0, 256;" ::"r"(3 + g) : "memory"); }
__device__ static inline void pass_turn(int g)
{
    asm volatile("bar.arrive %0, 256;" ::"r"(3 + (g ^ 1)) : "memory");
}

/* Begins the products of a line with a row of taps. */
template <class T, bool data>
__device__ static inline void multiply_taps(uint32_t weight, uint32_t line, int row, bool adds,
                                            float (&d)[64])
{
#pragma unroll
    for (int s = 0; s < 3; s++) {
        uint32_t tap = weight + (data ? 8 - (3 * row + s) : 3 * row + s) * side_bytes;
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply<true, data>(d, matrix_at(tap + i * (data ? 16 * row_bytes : 32), 16),
                                 matrix_at(line + s * row_bytes + i * 32, 16), adds || s + i > 0, T());
    }
}

/* A line of the tile whose pairs of lines are in these places of the ring. */
template <class T, bool data>
__device__ static inline void multiply_line(const pixel_block &b, int g, int above, int below, float (&d)[64])
{
    uint32_t weight = shared_address(b.weight), lines = shared_address(b.lines);
    take_turn(g);
    begin_products();
#pragma unroll
    for (int r = 0; r < 3; r++) {
        if (r == 2) pass_turn(g);      /* so that there is no pause between the two's products */
        uint32_t line = lines + (g + r < 2 ? above : below) * pair_bytes + (g + r) % 2 * line_pitch;
        multiply_taps<T, data>(weight, line, r, r > 0, d);
    }
    commit_products();
    finish_products(d);
}

/* Writes so many numbers of D to `tile` as pixels of 64 filters: each warp has 16 of them. */
template <class T, int from, int count>
__device__ static inline void turn_tile(uint8_t *tile, const float (&d)[64])
{
    int lane = threadIdx.x % 32, eighth = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
    uint32_t to = shared_address(tile) + (lane / 16 * 8 + lane % 8) * row_bytes + ((eighth ^ lane % 8) << 4);
#pragma unroll
    for (int j = from; j < from + count; j += 8)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         to + (j - from) * 2 * row_bytes),
                     "r"(pack_pair(d[j], d[j + 1], T())), "r"(pack_pair(d[j + 2], d[j + 3], T())),
                     "r"(pack_pair(d[j + 4], d[j + 5], T())), "r"(pack_pair(d[j + 6], d[j + 7], T()))
                     : "memory");
}

/* Stores so many numbers of D, a line of y, when `tile` has been read for the last store. */
template <class T, int from, int count>
__device__ static inline void store_line(const images &y, int channel, uint8_t *tile, int g, const place &at,
                                         int line, const float (&d)[64])
{
    bool first = threadIdx.x % 128 == 0;
    if (first) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(1 + g) : "memory");
    turn_tile<T, from, count>(tile, d);
    show_stored();
    asm volatile("bar.sync %0, 128;" ::"r"(1 + g) : "memory");
    if (first) store_pixels(y, tile, channel, at.x + 2 * from, line, at.n);
}

/* The bias of the thread's two filters, of 64 from `first` on; zeros if there is none. */
template <class T> __device__ static inline float2 bias_of(const finish &finish, int first)
{
    int filter = first + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    const T *bias = (const T *)finish.bias;
    return bias ? make_float2(to_float(bias[filter]), to_float(bias[filter + 8])) : make_float2(0, 0);
}

__device__ static inline void finish_line(const finish &finish, float2 bias, float (&d)[64])
{
    if (!finish.bias && !finish.relu) return;
#pragma unroll
    for (int i = 0; i < 64; i++) {
        d[i] += i / 2 % 2 ? bias.y : bias.x;
        if (finish.relu && d[i] <= 0) d[i] = 0;
    }
}

/* Adds D to the sums of the thread's two filters, and to those of squares. What is beyond the line, of which
 * `left` pixels are left, becomes 0. */
__device__ static inline void add_moments(float (&d)[64], int left, float (&sums)[2][2])
{
    if (left < across) {
#pragma unroll
        for (int i = 0; i < 64; i++)
            if (i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 >= left) d[i] = 0;
    }
#pragma unroll
    for (int i = 0; i < 64; i++) {
        sums[0][i / 2 % 2] += d[i];
        sums[1][i / 2 % 2] += d[i] * d[i];
    }
}

__device__ static inline void leave_moments(float *parts, const part &own, const work &work, int g,
                                            float (&sums)[2][2])
{
    int filter = own.channel + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    for (int i = 0; i < 4; i++) {
        float sum = sums[i / 2][i % 2];
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        if (threadIdx.x % 4 == 0)
            parts[((own.number * groups + g) * 2 + i / 2) * work.wanted + filter + i % 2 * 8] = sum;
    }
}

template <class T, bool data>
__device__ static void multiply_lines(const pixel_block &b, const work &work, const images &y, int g,
                                      float *parts, const finish &finish)
{
    float sums[2][2] = {};
    float2 bias = bias_of<T>(finish, b.own.channel);
    uint8_t *tile = b.tiles + g * pixels_bytes;
    bool first = threadIdx.x % 128 == 0, leads = threadIdx.x % 32 == 0;
    ring ring = {0, 0};
    barrier_wait(&b.barrier->weight, 0);
    if (g > 0) pass_turn(g);
    each_tile(work, b.own.number, b.own.count, [&](const place &at) {
        float d[64];
        int above = ring.at, line = 2 * at.at + g;
        if (at.begins) barrier_wait(&b.barrier->full[ring.at], ring.phase);
        ring.next(pairs_held);
        int below = ring.at;
        barrier_wait(&b.barrier->full[ring.at], ring.phase);
        multiply_line<T, data>(b, g, above, below, d);
        if (leads) barrier_arrive(&b.barrier->empty[above]);
        if (leads && at.ends) barrier_arrive(&b.barrier->empty[below]);
        if (at.ends) ring.next(pairs_held);
        finish_line(finish, bias, d);
        store_line<T, 0, 64>(y, b.own.channel, tile, g, at, line, d);
        if (parts) add_moments(d, line < work.h ? work.w - at.x : 0, sums);
    });
    if (g == 0) take_turn(g);
    if (first) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    if (parts) leave_moments(parts, b.own, work, g, sums);
}

#endif

template <class T, bool data>
__global__ void __launch_bounds__(128 * (groups + 1), 1)
    conv_narrow_kernel(const __grid_constant__ images x, const __grid_constant__ CUtensorMap weight,
                       const __grid_constant__ images y, const work work, float *parts,
                       const finish finish)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t memory[];
    pixel_block b(memory, work);
    block_begin(b, pairs_held);
    int g = threadIdx.x / 128;
    if (g < groups) multiply_lines<T, data>(b, work, y, g, parts, finish);
    else if (threadIdx.x % 128 == 0) load_lines<data>(b, work, x, &weight);
#endif
}

/* ---- The same, of 128 channels, or filters that the data's gradient reads ----
 *
 * The weights leave no room for pairs of lines: lines of 64 channels come one after another, six for a tile
 * of four, and then those of the other channels. Each warpgroup has two lines of the tile, and finishes them
 * while the other multiplies: they take turns with the memory from which half a line of D is stored. */

constexpr int deep = 2, deep_held = 4;               /* times 64 channels; lines in the ring */
constexpr int own_lines = 2, deep_rows = groups * own_lines; /* lines of a tile */

struct deep_barriers {
    uint64_t weight, full[deep_held], empty[deep_held];
};

constexpr size_t deep_shared = 8 * row_bytes + deep * taps * side_bytes + deep_held * line_pitch +
                               pixels_bytes / 2 + sizeof(deep_barriers);

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct deep_block {
    uint8_t *weight, *lines, *tile;
    deep_barriers *barrier;
    part own;
    __device__ deep_block(uint8_t *memory, const work &work) : own(work)
    {
        weight = memory + (-shared_address(memory) & (8 * row_bytes - 1));
        lines = weight + deep * taps * side_bytes;
        tile = lines + deep_held * line_pitch;
        barrier = (deep_barriers *)(tile + pixels_bytes / 2);
    }
};

template <bool data>
__device__ static void load_deep(const deep_block &b, const work &work, const images &x,
                                 const CUtensorMap *weight)
{
    barrier_expect(&b.barrier->weight, deep * taps * side_bytes);
    for (int i = 0; i < deep; i++)
        load_taps<data>(b.weight + i * taps * side_bytes, b.own, work, weight, i * 64, &b.barrier->weight);
    ring ring = {0, 1};
    constexpr int read = deep_rows + 2;
    each_tile(work, b.own.number, b.own.count, [&](const place &at) {
        for (int i = 0; i < deep * read; i++, ring.next(deep_held)) {
            uint64_t *full = &b.barrier->full[ring.at];
            barrier_wait(&b.barrier->empty[ring.at], ring.phase);
            barrier_expect(full, line_bytes);
            load_pixels(b.lines + ring.at * line_pitch, x, i / read * 64, at.x - 1,
                        deep_rows * at.at - 1 + i % read, at.n, full);
        }
    });
}

/* Releases so many lines of x, which are the other warpgroup's. */
__device__ static inline void skip_lines(const deep_block &b, ring &ring, int count)
{
    for (int i = 0; i < count; i++, ring.next(deep_held)) {
        barrier_wait(&b.barrier->full[ring.at], ring.phase);
        if (threadIdx.x % 32 == 0) barrier_arrive(&b.barrier->empty[ring.at]);
    }
}

/* Adds the products of 64 channels to the warpgroup's lines of the tile. A line of x is released when its
 * products have ended, after those of the next have begun. */
template <class T, bool data>
__device__ static inline void multiply_half(const deep_block &b, int half, ring &ring,
                                            float (&d)[own_lines][64])
{
    bool leads = threadIdx.x % 32 == 0;
    uint32_t weight = shared_address(b.weight) + half * taps * side_bytes;
    int last = 0;
#pragma unroll
    for (int i = 0; i < own_lines + 2; i++, ring.next(deep_held)) {
        barrier_wait(&b.barrier->full[ring.at], ring.phase);
        begin_products();
#pragma unroll
        for (int l = 0; l < own_lines; l++)
            if (i >= l && i <= l + 2)
                multiply_taps<T, data>(weight, shared_address(b.lines) + ring.at * line_pitch, i - l,
                                       half > 0 || i > l, d[l]);
        commit_products();
        if (i > 0) wait_products<1>();
        if (i > 0 && leads) barrier_arrive(&b.barrier->empty[last]);
        last = ring.at;
    }
    wait_products<0>();
    if (leads) barrier_arrive(&b.barrier->empty[last]);
}

template <class T, bool data>
__device__ static void multiply_all_deep(const deep_block &b, const work &work, const images &y, int g,
                                         float *parts, const finish &finish)
{
    float sums[2][2] = {};
    float2 bias = bias_of<T>(finish, b.own.channel);
    bool first = threadIdx.x % 128 == 0;
    ring ring = {0, 0};
    barrier_wait(&b.barrier->weight, 0);
    if (g > 0) pass_turn(g);
    each_tile(work, b.own.number, b.own.count, [&](const place &at) {
        float d[own_lines][64];
        for (int half = 0; half < deep; half++) {
            skip_lines(b, ring, g * own_lines);
            multiply_half<T, data>(b, half, ring, d);
            skip_lines(b, ring, (groups - 1 - g) * own_lines);
        }
        finish_products(d[0]);
        finish_products(d[1]);
        take_turn(g);
#pragma unroll
        for (int l = 0; l < own_lines; l++) {
            int line = deep_rows * at.at + g * own_lines + l;
            finish_line(finish, bias, d[l]);
            store_line<T, 0, 32>(y, b.own.channel, b.tile, g, at, line, d[l]);
            if (parts) add_moments(d[l], line < work.h ? work.w - at.x : 0, sums);
            store_line<T, 32, 32>(y, b.own.channel, b.tile, g, at, line, d[l]);
        }
        if (first) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        pass_turn(g);
    });
    if (g == 0) take_turn(g);
    if (first) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    if (parts) leave_moments(parts, b.own, work, g, sums);
}

#endif

template <class T, bool data>
__global__ void __launch_bounds__(128 * (groups + 1), 1)
    conv_narrow_deep_kernel(const __grid_constant__ images x, const __grid_constant__ CUtensorMap weight,
                            const __grid_constant__ images y, const work work, float *parts,
                            const finish finish)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t memory[];
    deep_block b(memory, work);
    block_begin(b, deep_held);
    int g = threadIdx.x / 128;
    if (g < groups) {
        take_registers<groups, true>();
        multiply_all_deep<T, data>(b, work, y, g, parts, finish);
    } else {
        take_registers<groups, false>();
        if (threadIdx.x % 128 == 0) load_deep<data>(b, work, x, &weight);
    }
#endif
}

/* ---- The weights' gradient ----
 *
 * A block has 64 filters and 64 channels: D [64 filters x 9 taps x 64 channels] is the sum over tiles, which
 * are lines of a strip, of A' B. A is the tile's d_y; B the pixels that a row of taps reads, those of its
 * three taps side by side: the same pixels, each one row later. Each of three warpgroups has a row of taps; a
 * fourth has the thread that loads. */

constexpr int rows = 3, lines_held = 6, tiles_held = 3; /* of taps; of the rings */

struct weight_barriers {
    uint64_t full[lines_held], empty[lines_held], tile_full[tiles_held], tile_empty[tiles_held];
};

constexpr size_t weights_shared = 8 * row_bytes + lines_held * line_pitch + tiles_held * pixels_bytes +
                                  sizeof(weight_barriers);

/* A block's filters and channels, by 64, and its part of those that have the same. */
struct share {
    int filters, channels;               /* of the whole */
    int parts;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct weight_block {
    uint8_t *lines, *tiles;
    weight_barriers *barrier;
    int filter, channel, part;
    __device__ weight_block(uint8_t *memory, const share &share)
    {
        int wide = share.channels / 64, pairs = wide * (share.filters / 64), pair = blockIdx.x % pairs;
        lines = memory + (-shared_address(memory) & (8 * row_bytes - 1));
        tiles = lines + lines_held * line_pitch;
        barrier = (weight_barriers *)(tiles + tiles_held * pixels_bytes);
        filter = pair / wide * 64;
        channel = pair % wide * 64;
        part = blockIdx.x / pairs;
    }
};

__device__ static void load_tiles(const weight_block &b, const work &work, int parts, const images &x,
                                  const images &d_y)
{
    ring line = {0, 1}, tile = {0, 1};
    each_tile(work, b.part, parts, [&](const place &at) {
        for (int r = at.begins ? 0 : 2; r < rows; r++, line.next(lines_held)) {
            uint64_t *full = &b.barrier->full[line.at];
            barrier_wait(&b.barrier->empty[line.at], line.phase);
            barrier_expect(full, line_bytes);
            load_pixels(b.lines + line.at * line_pitch, x, b.channel, at.x - 1, at.at + r - 1, at.n, full);
        }
        uint64_t *full = &b.barrier->tile_full[tile.at];
        barrier_wait(&b.barrier->tile_empty[tile.at], tile.phase);
        barrier_expect(full, pixels_bytes);
        load_pixels(b.tiles + tile.at * pixels_bytes, d_y, b.filter, at.x, at.at, at.n, full);
        tile.next(tiles_held);
    });
}

/* Adds the products of a tile with the lines from `line` on. */
template <class T>
__device__ static inline void multiply_pixels(const uint8_t *tile, const uint8_t *line, float (&d)[96])
{
    uint32_t a = shared_address(tile), b = shared_address(line);
    begin_products();
#pragma unroll
    for (int i = 0; i < across / 16; i++)
        multiply<false, true>(d, matrix_at(a + i * 16 * row_bytes, 16),
                              matrix_at(b + i * 16 * row_bytes, row_bytes), true, T());
    commit_products();
    finish_products(d);
}

template <class T>
__device__ static void multiply_tiles(const weight_block &b, const work &work, int parts, int row,
                                      float (&d)[96])
{
    ring line = {0, 0}, tile = {0, 0};
    bool leads = threadIdx.x % 32 == 0;
    each_tile(work, b.part, parts, [&](const place &at) {
        int held[rows];
        ring next = line;
        for (int r = 0; r < rows; r++, next.next(lines_held)) {
            held[r] = next.at;
            if (at.begins || r == 2) barrier_wait(&b.barrier->full[next.at], next.phase);
        }
        barrier_wait(&b.barrier->tile_full[tile.at], tile.phase);
        multiply_pixels<T>(b.tiles + tile.at * pixels_bytes, b.lines + held[row] * line_pitch, d);
        if (leads) barrier_arrive(&b.barrier->tile_empty[tile.at]);
        for (int r = 0; r < (at.ends ? rows : 1); r++) {
            if (leads) barrier_arrive(&b.barrier->empty[held[r]]);
            line.next(lines_held);
        }
        tile.next(tiles_held);
    });
}

#endif

template <class T>
__global__ void __launch_bounds__(128 * (rows + 1), 1)
    conv_narrow_weights_kernel(const __grid_constant__ images x, const __grid_constant__ images d_y,
                               const work work, const share share, float *parts)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint8_t memory[];
    weight_block b(memory, share);
    if (threadIdx.x == 0) {
        barriers_begin(b.barrier->full, b.barrier->empty, lines_held, 4 * rows);
        barriers_begin(b.barrier->tile_full, b.barrier->tile_empty, tiles_held, 4 * rows);
        show_barriers();
    }
    __syncthreads();
    int row = threadIdx.x / 128;
    if (row == rows && threadIdx.x % 128 == 0) load_tiles(b, work, share.parts, x, d_y);
    if (row == rows) return;
    float d[96] = {};
    corner c;
    multiply_tiles<T>(b, work, share.parts, row, d);
    int64_t line = (int64_t)taps * share.channels;
    float *to = parts + b.part * share.filters * line + b.channel;
#pragma unroll
    for (int i = 0; i < 96; i += 2) {
        int filter = b.filter + c.row + i / 2 % 2 * 8, tap = row * 3 + i / 32;
        int channel = i / 4 % 8 * 8 + c.pair * 2;
        *(float2 *)(to + filter * line + tap * share.channels + channel) = make_float2(d[i], d[i + 1]);
    }
#endif
}

static share share_of(const struct conv_call *p)
{
    int pairs = p->c / 64 * (p->k / 64);
    return {.filters = p->k, .channels = p->c,
            .parts = multiprocessors_of(p->call->device) / pairs};
}

static size_t weights_workspace(const struct conv_call *p)
{
    return (size_t)share_of(p).parts * p->k * taps * p->c * sizeof(float);
}

static enum status weights_run(const struct conv_call *p, bool trusted)
{
    const struct call *call = p->call;
    const struct share share = share_of(p);
    unsigned blocks = (unsigned)(share.parts * (p->c / 64) * (p->k / 64));
    images x, d_y;
    if (!map_x(&x, p, across + 2) || !map_y(&d_y, p, across)) return describe_fail(trusted);
    auto kernel = p->dtype == F16 ? conv_narrow_weights_kernel<__half>
                                  : conv_narrow_weights_kernel<__nv_bfloat16>;
    TRY(grant_shared(call, kernel));
    kernel<<<blocks, 128 * (rows + 1), weights_shared, stream_of(call)>>>(x, d_y, work_of(p, 1), share,
                                                                          (float *)call->workspace);
    TRY(launched(call));
    return columns_finish(call, {(float *)call->workspace, share.parts, 1, p->k * taps * p->c},
                          (float *)conv_weight(call));
}

/* ---- The algorithm ---- */

/* True if products add up twice 64 channels. */
static bool is_deep(const struct conv_call *p)
{
    return (p->phase == PHASE_BACKWARD_DATA ? p->k : p->c) == 64 * deep;
}

template <class T> static auto kernel_of(const struct conv_call *p)
{
    bool data = p->phase == PHASE_BACKWARD_DATA;
    if (is_deep(p)) return data ? conv_narrow_deep_kernel<T, true> : conv_narrow_deep_kernel<T, false>;
    return data ? conv_narrow_kernel<T, true> : conv_narrow_kernel<T, false>;
}

/* Calls work(kernel) with the one for the phase. */
template <class Work> static auto with_kernel(const struct conv_call *p, Work work)
{
    return p->dtype == F16 ? work(kernel_of<__half>(p)) : work(kernel_of<__nv_bfloat16>(p));
}

/* Strips that are mostly pixels of the image, and tiles that are counted in 31 bits. */
static bool has_tiles(const struct conv_call *p)
{
    return conv_fills_strips(p->out[1]) && (double)p->n * p->out[0] * p->out[1] < 2e9 && !conv_is_small(p);
}

static bool narrow_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    const struct conv_geometry g = conv_geometry((const struct conv_settings *)call->settings, p.c);
    const struct cuda_facts *facts = cuda_facts(call->device);
    bool forward = p.phase == PHASE_FORWARD, weights = p.phase == PHASE_BACKWARD_PARAMS;
    int summed = p.phase == PHASE_BACKWARD_DATA ? p.k : p.c, most = facts->multiprocessors;
    bool sized = p.c % 64 == 0 && p.k % 64 == 0 && p.c / 64 * (p.k / 64) <= most &&
                 (weights || summed <= 64 * deep);
    bool moments = conv_gives_moments(call), finished = conv_adds_bias(call) || conv_applies_relu(call);
    bool known = !forward || (call->epilogue_count == moments + conv_applies_relu(call) &&
                              !(moments && finished));
    return conv_is_usual(call) && conv_keeps_size(&g, 3) && dtype_bytes(p.dtype) == 2 && sized && known &&
           has_tiles(&p) && facts->capability == 90 &&
           with_kernel(&p, [](auto kernel) { return is_compiled(kernel); });
}

static bool narrow_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    bool moments = p.phase == PHASE_FORWARD && conv_gives_moments(call);
    if (p.phase == PHASE_BACKWARD_PARAMS) plan->workspace = weights_workspace(&p);
    else if (moments)
        plan->workspace = (size_t)multiprocessors_of(call->device) * groups * 2 * 64 * sizeof(float);
    if (moments) plan->epilogues = AS_BIT(EPILOGUE_MOMENTS);
    else if (p.phase == PHASE_FORWARD && conv_applies_relu(call)) plan->epilogues = AS_BIT(EPILOGUE_RELU);
    return true;
}

static work pixels_work(const struct conv_call *p)
{
    const struct call *call = p->call;
    work work = work_of(p, is_deep(p) ? deep_rows : groups);
    work.wanted = p->k;
    if (p->phase != PHASE_BACKWARD_DATA) return work;
    work.first = call->d_x[0].data ? 0 : (int)call->x[0].shape.c;
    work.wanted = p->c - work.first;
    if (call->x_count > 1 && !call->d_x[1].data) work.wanted -= (int)call->x[1].shape.c;
    return work;
}

static enum status pixels_run(const struct conv_call *p, bool trusted)
{
    const struct call *call = p->call;
    bool data = p->phase == PHASE_BACKWARD_DATA;
    float *sums = data ? NULL : (float *)call_data(call, OPERAND_Y_MOMENTS);
    float *parts = sums ? (float *)call->workspace : NULL;
    const struct finish finish = {conv_bias(call), !data && conv_applies_relu(call)};
    int blocks = multiprocessors_of(p->call->device), least = is_deep(p) ? across / 2 : across;
    const work work = pixels_work(p);
    blocks -= blocks % (work.wanted / 64);
    images x, y;
    CUtensorMap weight;
    if (!map_x(&x, p, data ? least : across + 2) || !map_y(&y, p, data ? across + 2 : least) ||
        !map_matrix(&weight, p->dtype, conv_weight(call), p->k, taps * p->c))
        return describe_fail(trusted);
    TRY(with_kernel(p, [&](auto kernel) {
        TRY(grant_shared(call, kernel));
        size_t shared = is_deep(p) ? deep_shared : pixels_shared;
        kernel<<<blocks, 128 * (groups + 1), shared, stream_of(call)>>>(data ? y : x, weight, data ? x : y,
                                                                        work, parts, finish);
        return launched(call);
    }));
    int rows = blocks / (work.wanted / 64) * groups;
    return parts ? columns_finish(call, {parts, rows, 2, work.wanted}, sums, sums + work.wanted) : OK;
}

static enum status narrow_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    bool weights = p.phase == PHASE_BACKWARD_PARAMS;
    return weights ? weights_run(&p, plan->trusted) : pixels_run(&p, plan->trusted);
}

const struct algorithm conv_by_narrow = {
    .name = "narrow", .supports = narrow_supports, .make = narrow_make, .run = narrow_run,
};
