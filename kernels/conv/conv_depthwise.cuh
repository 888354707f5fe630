/* conv_depthwise.cuh: convolution of each channel by itself (groups = c = k) on CUDA: how the work of a block
 * is laid out, and what its kernels share.
 *
 * A block has some channels and some columns of an image, and goes down the rows of its walks, one walk after
 * another. Its last threads, the stagers, only copy rows into a ring of shared memory, ahead of the others,
 * with zeros outside the image. Each other thread has a few adjacent channels and a strip of adjacent
 * columns: it reads a row once, and keeps what the row adds to those above and below, and the weights, in
 * registers. */
#pragma once

#include "kernels/support/chunk.cuh"
#include "kernels/conv/conv_cuda.cuh"

#define DEPTHWISE_SLOTS 8            /* at most, of a ring */

/* The sizes of a block's and a thread's work. */
struct depthwise_tile {
    int channels, columns;           /* of a thread */
    int across, down;                /* threads of a block: along channels, along columns */
    int slots;                       /* steps in the ring */
    int stagers;                     /* threads of a block, besides those that compute */
    int segments;                    /* parts of an image's rows, each a walk */
};

/* Walks are numbered [n][segment][tile] and go over `rows` rows of the tensor that is written, or of y for
 * gradients of weights; a tile is a block's share of the columns. */
struct depthwise_layout {
    int c, in[2], out[2];
    int across, down, slots, stagers;
    int piece;                       /* bytes of one copy */
    int tiles, segments, rows, walks;
};

/* `from` is convolved, or d_y for d_x; gradients of weights have x and d_y. `shares`: [blocks below one
 * another][sum, squares][channel] or [..][channel][tap], the latter followed by [..][channel] where d_x is
 * summed, too; NULL: none. */
struct depthwise_operands {
    void *to;
    const void *from, *d_y, *weight, *bias;
    bool turned;
    float *shares;
};

/* The launch bounds of kernels: threads of a block, including stagers, and blocks of that size for which a
 * multiprocessor has registers. */
static constexpr int depthwise_threads(int k, int channels, int columns)
{
    return k == 7 ? 256 : k == 5 || channels == 4 ? 384 : columns > 4 ? 512 : 320;
}
static constexpr int depthwise_blocks(int k, int channels, int columns)
{
    return k == 3 && channels * columns == 8 ? 2 : 1;
}

/* Arguments of the kernel that computes both gradients. */
static constexpr int depthwise_backward_threads(int columns) { return columns > 4 ? 384 : 256; }
static constexpr int depthwise_backward_blocks(int columns) { return columns > 4 ? 1 : 2; }

typedef void (*depthwise_kernel)(struct depthwise_layout, struct depthwise_operands);

/* The kernel of a problem and a tile's threads; NULL if there is none. */
depthwise_kernel depthwise_forward_kernel(const struct conv_call *p, const struct depthwise_tile *tile);
depthwise_kernel depthwise_data_kernel(const struct conv_call *p, const struct depthwise_tile *tile);
depthwise_kernel depthwise_weights_kernel(const struct conv_call *p, const struct depthwise_tile *tile);
depthwise_kernel depthwise_backward_kernel(const struct conv_call *p, const struct depthwise_tile *tile);

/* d_x from d_y at stride 2 is a kernel of its own. */
static inline bool depthwise_spreads(const struct conv_call *p)
{
    return p->phase == PHASE_BACKWARD_DATA && p->stride[0] == 2;
}

/* How a tile's kernel is launched. */
struct depthwise_plan {
    struct depthwise_layout layout;
    depthwise_kernel kernel;
    dim3 grid;
    int threads;                     /* of a block */
    size_t shared;                   /* bytes of a block */
};

/* False if there is no kernel for it. */
bool depthwise_plan_of(const struct conv_call *p, const struct cuda_facts *facts,
                       const struct depthwise_tile *tile, struct depthwise_plan *plan);

/* Tiles worth timing, the most promising first; how many. */
int depthwise_tiles(const struct conv_call *p, const struct cuda_facts *facts, int most,
                    struct depthwise_tile tiles[]);

/* The constants of a kernel. */
template <int k_, int stride_, int channels_, int columns_> struct depthwise_form {
    static constexpr int k = k_, stride = stride_, channels = channels_, columns = columns_;
    static constexpr int pad = k / 2, taps = k * k;
    static constexpr int active = (k - 1) / stride + 1;          /* rows of y that a step adds to */
    static constexpr int wide = (columns - 1) * stride + k;      /* pixels of x that a strip of y reads */
    static constexpr int threads = depthwise_threads(k, channels, columns);
    static constexpr int blocks = depthwise_blocks(k, channels, columns);
};

template <class T, int k, int stride, class Work>
static inline depthwise_kernel with_depthwise_strip(const struct depthwise_tile *tile, Work work)
{
    int strip = tile->channels * 100 + tile->columns;
    if (strip == 204) return work(T(), depthwise_form<k, stride, 2, 4>());
    if constexpr (k == 3 && sizeof(T) == 2) {
        if (strip == 207) return work(T(), depthwise_form<k, stride, 2, 7>());
        if (strip == 208) return work(T(), depthwise_form<k, stride, 2, 8>());
        if (strip == 404) return work(T(), depthwise_form<k, stride, 4, 4>());
    }
    return NULL;
}

template <class T, class Work>
static inline depthwise_kernel with_depthwise_size(const struct conv_call *p,
                                                   const struct depthwise_tile *tile, Work work)
{
    bool strided = p->stride[0] == 2;
    int k = p->kernel[0];
    if (k == 3 && strided) return with_depthwise_strip<T, 3, 2>(tile, work);
    if (k == 3) return with_depthwise_strip<T, 3, 1>(tile, work);
    if (k == 5 && strided) return with_depthwise_strip<T, 5, 2>(tile, work);
    if (k == 5) return with_depthwise_strip<T, 5, 1>(tile, work);
    return strided ? NULL : with_depthwise_strip<T, 7, 1>(tile, work);
}

/* Returns work(T(), form) for a problem and a tile's threads; NULL: there is no such form. */
template <class Work>
static inline depthwise_kernel with_depthwise_form(const struct conv_call *p,
                                                   const struct depthwise_tile *tile, Work work)
{
    if (p->dtype == F16) return with_depthwise_size<__half>(p, tile, work);
    if (p->dtype == BF16) return with_depthwise_size<__nv_bfloat16>(p, tile, work);
    return with_depthwise_size<float>(p, tile, work);
}

/* ---- Walks ---- */

/* Rows [first, last) and columns from `column` on. */
struct depthwise_walk {
    int n, first, last, column;
};

__device__ static inline depthwise_walk walk_at(const depthwise_layout &l, int index, int height, int columns)
{
    int rest = index / l.tiles, n = rest / l.segments;
    int first = (rest - n * l.segments) * l.rows, last = first + l.rows;
    return {n, first, last < height ? last : height, (index - rest * l.tiles) * l.down * columns};
}

/* Steps [first, end) of a walk. */
struct depthwise_steps {
    int first, end;
};

/* Step p of a walk over y takes rows row_of(p) to row_of(p) + stride - 1 of x, after which row p of y is
 * complete. */
template <class F> __device__ static inline int row_of(int p)
{
    return p * F::stride - F::pad + F::k - F::stride;
}

/* The steps of such a walk, without those whose rows are all outside the image. */
template <class F>
__device__ static inline depthwise_steps steps_inside(const depthwise_layout &l, const depthwise_walk &at)
{
    int first = at.first - (F::active - 1), above = -(F::pad / F::stride);
    int below = (l.in[0] - 1 + F::pad - F::k + F::stride) / F::stride + 1;
    return {first > above ? first : above, at.last < below ? at.last : below};
}

/* The share of a thread that computes. */
struct depthwise_thread {
    bool any;                        /* it has channels; otherwise it repeats the first's, without writing */
    int lane, strip, channel, pitch; /* pitch: from pixel to pixel in shared memory */
};

__device__ static inline bool is_stager(const depthwise_layout &l)
{
    return threadIdx.x >= blockDim.x - l.stagers;
}

template <class F> __device__ static inline depthwise_thread depthwise_thread_of(const depthwise_layout &l)
{
    int lane = threadIdx.x % l.across, strip = threadIdx.x / l.across, pitch = l.across * F::channels;
    int channel = blockIdx.x * pitch + lane * F::channels;
    if (strip < l.down && channel < l.c) return {!is_stager(l), lane, strip, channel, pitch};
    return {false, 0, 0, (int)blockIdx.x * pitch, pitch};
}

/* ---- The ring ---- */

/* Barriers of each slot: `full` when its copies have arrived, `empty` when every warp has read it. */
struct depthwise_ring {
    uint64_t full[DEPTHWISE_SLOTS], empty[DEPTHWISE_SLOTS];
};

/* A thread's position in the ring. Stagers begin with parity 1, since all slots are empty. */
struct depthwise_place {
    int slot;
    unsigned parity;
};

__device__ static inline unsigned shared_at(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }

#if __CUDA_ARCH__ >= 800

__device__ static inline void barrier_init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_at(barrier)), "r"(count) : "memory");
}

__device__ static inline void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_at(barrier)) : "memory");
}

/* Arrives once this thread's copies have. */
__device__ static inline void barrier_arrive_copied(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_at(barrier)) : "memory");
}

#if __CUDA_ARCH__ >= 900
#define WAIT "try_wait"                  /* it sleeps for a while */
#else
#define WAIT "test_wait"
#endif

__device__ static inline void barrier_wait(uint64_t *barrier, unsigned parity)
{
    unsigned done;
    do
        asm volatile("{ .reg .pred p; mbarrier." WAIT
                     ".parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_at(barrier)), "r"(parity)
                     : "memory");
    while (!done);
}

template <int bytes> __device__ static inline void copy_async(void *to, const void *from, bool inside)
{
    unsigned at = shared_at(to);
    int read = inside ? bytes : 0;                     /* the rest becomes zero */
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(read)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(bytes),
                     "r"(read)
                     : "memory");
}

#else      /* neither such barriers nor such copies: the number of arrivals and, above it, those of a phase */

__device__ static inline void barrier_init(uint64_t *barrier, int count) { *barrier = (uint64_t)count << 32; }

__device__ static inline void barrier_arrive(uint64_t *barrier)
{
    __threadfence_block();
    atomicAdd((unsigned *)barrier, 1u);
}

__device__ static inline void barrier_arrive_copied(uint64_t *barrier) { barrier_arrive(barrier); }

__device__ static inline void barrier_wait(uint64_t *barrier, unsigned parity)
{
    unsigned each = (unsigned)(*barrier >> 32);
    while ((*(volatile unsigned *)barrier / each & 1) == parity) {}
    __threadfence_block();
}

template <int bytes> __device__ static inline void copy_async(void *to, const void *from, bool inside)
{
    using part = chunk<unsigned, bytes / 4>;
    *(part *)to = inside ? *(const part *)from : part{};
}

#endif

__device__ static inline void ring_open(const depthwise_layout &l, depthwise_ring *ring)
{
    if (threadIdx.x < l.slots) {
        barrier_init(&ring->full[threadIdx.x], l.stagers);
        barrier_init(&ring->empty[threadIdx.x], (blockDim.x - l.stagers) / 32);
    }
    __syncthreads();
}

__device__ static inline void place_next(depthwise_place *at, int slots)
{
    if (++at->slot == slots) *at = {0, at->parity ^ 1};
}

/* Called when a warp has read its slot. */
__device__ static inline void ring_release(depthwise_ring *ring, depthwise_place *at, int slots)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(&ring->empty[at->slot]);
    place_next(at, slots);
}

/* Called when a stager has issued all its copies to a slot. */
__device__ static inline void ring_staged(depthwise_ring *ring, depthwise_place *at, int slots)
{
    barrier_arrive_copied(&ring->full[at->slot]);
    place_next(at, slots);
}

/* ---- Staging ---- */

/* A stager's share of every row: a piece of every step'th pixel. */
struct depthwise_stager {
    int byte, pixel, step;           /* step: 0 if it has nothing to do */
};

template <class T, class F> __device__ static inline depthwise_stager stager_of(const depthwise_layout &l)
{
    int thread = threadIdx.x - (blockDim.x - l.stagers);
    int row = l.across * F::channels * (int)sizeof(T), pieces = row / l.piece;
    depthwise_stager s = {thread % pieces * l.piece, thread / pieces, l.stagers / pieces};
    if (s.step == 0) s = {thread * l.piece, 0, 1};
    return s;
}

/* `wide` pixels from `column` on of a row of `width` pixels at `at`, zeros where they are outside. */
template <class T> struct depthwise_row {
    const T *at;
    int column, width, wide;
};

/* Copies the block's channels of a row. */
template <int piece, class T, class F>
__device__ static inline void stage_pieces(const depthwise_layout &l, const depthwise_stager &s, T *to,
                                           const depthwise_row<T> &row)
{
    int size = l.across * F::channels * (int)sizeof(T), pitch = l.c * (int)sizeof(T);
    int first = blockIdx.x * size;
    for (int byte = s.byte; byte < size; byte += l.stagers * piece) {
        char *at = (char *)to + s.pixel * size + byte;
        const char *from = (const char *)row.at + (int64_t)(row.column + s.pixel) * pitch + first + byte;
        if (first + byte >= pitch || s.pixel >= s.step) continue;
#pragma unroll 4
        for (int i = s.pixel; i < row.wide; i += s.step) {
            copy_async<piece>(at, from, (unsigned)(row.column + i) < (unsigned)row.width);
            at += s.step * size;
            from += (int64_t)s.step * pitch;
        }
    }
}

template <class T, class F>
__device__ static inline void stage_row(const depthwise_layout &l, const depthwise_stager &s, T *to,
                                        const depthwise_row<T> &row)
{
    if (l.piece == 16) stage_pieces<16, T, F>(l, s, to, row);
    else if (l.piece == 8) stage_pieces<8, T, F>(l, s, to, row);
    else stage_pieces<4, T, F>(l, s, to, row);
}

/* The work of stagers: copies steps(l, at) of each of the block's walks over `height` rows to slots of `size`
 * numbers. stage(l, stager, at, o, p, to) copies the rows of step p. */
template <class T, class F, auto steps, auto stage>
__device__ static inline void stage_walks(const depthwise_layout &l, const depthwise_operands &o, int height,
                                          int size, T *memory, depthwise_ring *ring)
{
    depthwise_stager stager = stager_of<T, F>(l);
    depthwise_place place = {0, 1};
    for (int index = blockIdx.y; index < l.walks; index += gridDim.y) {
        depthwise_walk at = walk_at(l, index, height, F::columns);
        depthwise_steps all = steps(l, at);
        for (int p = all.first; p < all.end; p++) {
            barrier_wait(&ring->empty[place.slot], place.parity);
            stage(l, stager, at, o, p, memory + place.slot * size);
            ring_staged(ring, &place, l.slots);
        }
    }
}

/* ---- Strips ---- */

/* At most 6; NaN stays NaN. */
__device__ static inline void clip_pair(__half *pair)
{
    *(__half2 *)pair = __hmin2_nan(*(const __half2 *)pair, __float2half2_rn(6));
}

__device__ static inline void clip_pair(__nv_bfloat16 *pair)
{
    *(__nv_bfloat162 *)pair = __hmin2_nan(*(const __nv_bfloat162 *)pair, __float2bfloat162_rn(6));
}

template <class T, class F, int count, bool clips = false>
__device__ static inline void read_pixels(float to[count][F::channels], const T *from, int pitch)
{
#pragma unroll
    for (int i = 0; i < count; i++) {
        chunk<T, F::channels> got = *(const chunk<T, F::channels> *)(from + i * pitch);
        if constexpr (clips)
#pragma unroll
            for (int v = 0; v < F::channels; v += 2) clip_pair(&got.at[v]);
#pragma unroll
        for (int v = 0; v < F::channels; v++) to[i][v] = to_float(got.at[v]);
    }
}

template <class T, class F>
__device__ static inline void load_weights(float to[F::taps][F::channels], const T *weight, int channel,
                                           bool turned)
{
#pragma unroll
    for (int v = 0; v < F::channels; v++)
#pragma unroll
        for (int tap = 0; tap < F::taps; tap++)
            to[tap][v] = to_float(weight[(channel + v) * F::taps + (turned ? F::taps - 1 - tap : tap)]);
}

/* Writes a pixel of a strip; adds the stored numbers to the thread's sums if `total` is not NULL. */
template <class T, class F>
__device__ static inline void store_pixel(T *to, const float value[F::channels], float total[2][F::channels])
{
    chunk<T, F::channels> out;
#pragma unroll
    for (int v = 0; v < F::channels; v++) out.at[v] = from_float<T>(value[v]);
    *(chunk<T, F::channels> *)to = out;
#pragma unroll
    for (int v = 0; total && v < F::channels; v++) {
        float stored = to_float(out.at[v]);
        total[0][v] += stored;
        total[1][v] += stored * stored;
    }
}

/* Overload for a strip that begins at `column` of a row of `width`. */
template <class T, class F>
__device__ static inline void store_strip(T *to, int c, int column, int width,
                                          const float value[F::columns][F::channels],
                                          float total[2][F::channels])
{
    if (column + F::columns <= width) {
#pragma unroll
        for (int i = 0; i < F::columns; i++) store_pixel<T, F>(to + i * c, value[i], total);
        return;
    }
#pragma unroll
    for (int i = 0; i < F::columns - 1; i++)
        if (column + i < width) store_pixel<T, F>(to + i * c, value[i], total);
}

template <class F>
__device__ static inline void add_product(float sum[F::channels], const float a[F::channels],
                                          const float b[F::channels])
{
#pragma unroll
    for (int v = 0; v < F::channels; v++) sum[v] = fmaf(a[v], b[v], sum[v]);
}

/* Moves rows of strips up by `by`, the last ones become `fill`. */
template <class F, int rows, int by>
__device__ static inline void move_up(float strips[rows][F::columns][F::channels],
                                      const float fill[F::channels])
{
#pragma unroll
    for (int a = 0; a < rows; a++)
#pragma unroll
        for (int i = 0; i < F::columns; i++)
#pragma unroll
            for (int v = 0; v < F::channels; v++)
                strips[a][i][v] = a + by < rows ? strips[a + by][i][v] : fill[v];
}

/* Sums one number per channel over the block's threads into to[channel * pitch]; `scratch` is shared memory
 * for a number of each thread and channel. */
template <class F>
__device__ static inline void write_share(const depthwise_layout &l, const float value[F::channels],
                                          float *scratch, float *to, int pitch)
{
    int wide = l.across * F::channels;
    __syncthreads();
    if ((int)threadIdx.x < l.across * l.down)
#pragma unroll
        for (int v = 0; v < F::channels; v++) scratch[threadIdx.x * F::channels + v] = value[v];
    __syncthreads();
    for (int i = threadIdx.x; i < wide; i += blockDim.x) {
        int channel = blockIdx.x * wide + i;
        float total = 0;
        for (int strip = 0; strip < l.down; strip++) total += scratch[strip * wide + i];
        if (channel < l.c) to[(int64_t)channel * pitch] = total;
    }
}
