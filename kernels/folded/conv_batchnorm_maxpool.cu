/* conv_batchnorm_maxpool.cu: the first layers as one op, in 16 bits on Hopper (capability 9.0). Forward
 * stores the convolution's result x in the workspace, with its sums, for batchnorm_maxpool's code. Backward
 * computes the same bits of x again, tile by tile, makes d_x of it in registers and multiplies that by the
 * same patch of the image, so that neither is stored.
 *
 * A block is a warpgroup. In shared memory a pixel has four channels (the last is zero) and a kernel row
 * eight pixels (the first has weights of zero), so that neighbouring outputs, two pixels apart, are 16
 * bytes apart, and so are neighbouring groups of 8 products. So the patch of the image under a tile, as it
 * lies, is the matrix of products x outputs that wgmma wants: its 8 x 8 core matrices, of 128 consecutive
 * bytes, overlap. The product of weights (filters x products) and that matrix is x; a thread then has
 * neighbouring pairs of outputs of two filters, which, as d_x, are the factors that wgmma wants in
 * registers for d_x (filters x outputs) times the same matrix, transposed. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/norm/batchnorm.cuh"
#include "kernels/support/hopper.cuh"

extern "C" {
#include "kernels/folded/conv_batchnorm_maxpool.h"
}

using namespace hopper;

constexpr int threads = 128;
constexpr int filters = 64;                          /* of a block */
constexpr int channels = FIRST_CHANNELS, kernel = FIRST_KERNEL;
constexpr int pixel_bytes = 8, quad = 4;             /* pixels that a thread loads at once */
constexpr int steps = 2 * kernel;                    /* of 16 products: half a kernel row */

/* A tile of x, and the patch of the image under it, which begins one pixel in front of what x depends on. */
constexpr int rows = 14, columns = 8;
constexpr int patch_rows = 2 * rows + kernel - 2, patch_columns = 2 * columns + 8;
constexpr int pitch = patch_columns * pixel_bytes;
constexpr int patch_quads = patch_rows * patch_columns / quad;

struct first_problem {
    int n, in[2], out[2], pooled[2], k;  /* out: x's height and width */
    int tiles, across, down;
};

/* A tile's first output in image n. */
struct place {
    int n, row, column;
};

__device__ inline place place_of(const first_problem &g, int index)
{
    int each = g.across * g.down;
    return {index / each, index / g.across % g.down * rows, index % g.across * columns};
}

/* ---- The instructions ---- */

/* wgmma's descriptor of a matrix without swizzle. `leading` and `stride` are the distances of core matrices
 * along the products' sum and across it. */
__device__ inline uint64_t matrix_at(uint32_t address, int leading, int stride)
{
    return (uint64_t)(address >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

/* d = a b + (adds ? d : 0): 64 x 112 over 16, both in shared memory. */
#define MULTIPLY_112(type) \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %58, 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n112k16.f32." type "." type " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
                 "%48, %49, %50, %51, %52, %53, %54, %55}, %56, %57, adds, 1, 1, 0, 0;\n}" \
                 : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48) \
                 : "l"(a), "l"(b), "r"((int)adds))

__device__ inline void multiply(float (&d)[56], uint64_t a, uint64_t b, bool adds, __half)
{
    MULTIPLY_112("f16");
}
__device__ inline void multiply(float (&d)[56], uint64_t a, uint64_t b, bool adds, __nv_bfloat16)
{
    MULTIPLY_112("bf16");
}

/* d += a b: 64 x 32 over 16, a in registers, b transposed. */
#define MULTIPLY_32(type) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, " \
                 "{%16, %17, %18, %19}, %20, 1, 1, 1, 1;\n" \
                 : D8(0), D8(8) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

__device__ inline void multiply(float (&d)[16], const uint32_t *a, uint64_t b, __half)
{
    MULTIPLY_32("f16");
}
__device__ inline void multiply(float (&d)[16], const uint32_t *a, uint64_t b, __nv_bfloat16)
{
    MULTIPLY_32("bf16");
}

/* What threads have stored in shared memory becomes visible to wgmma, and to all threads. */
__device__ inline void stored()
{
    show_stored();
    __syncthreads();
}

/* Two numbers in a word, and one of them. */
template <class T> __device__ inline uint32_t pair_of(float low, float high)
{
    return batchnorm_parts::pack_two(T(), low, high);
}
__device__ inline float upper_of(uint32_t word, __half)
{
    return __half2float(__ushort_as_half((unsigned short)(word >> 16)));
}
__device__ inline float upper_of(uint32_t word, __nv_bfloat16)
{
    return __uint_as_float(word & 0xffff0000u);
}
template <class T> __device__ inline float upper(uint32_t word) { return upper_of(word, T()); }
template <class T> __device__ inline float lower(uint32_t word) { return upper_of(word << 16, T()); }

/* ---- A tile of x ---- */

/* Weights as core matrices, and the patch. */
struct tile_factors {
    uint4 weight[2 * steps][filters];
    uint8_t patch[patch_rows][pitch];
};

template <class T> __device__ inline void load_weights(uint4 (*to)[filters], const T *weight)
{
    for (int i = threadIdx.x; i < 2 * steps * filters; i += threads) {
        int chunk = i / filters, f = i % filters;
        alignas(16) T part[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int tap = chunk % 4 * 2 + e / 4 - 1, c = e % 4;
            const T *from = weight + ((f * kernel + chunk / 4) * kernel + tap) * channels + c;
            part[e] = tap >= 0 && c < channels ? *from : from_float<T>(0.0f);
        }
        to[chunk][f] = *(uint4 *)part;
    }
}

/* A thread's share of the patch under a tile, four neighbouring pixels each, on its way to shared memory. */
struct patch_part {
    static constexpr int turns = (patch_quads + threads - 1) / threads, across = patch_columns / quad;
    uint2 x[turns][3];

    template <class T> __device__ void load(const first_problem &g, const T *image, const place &at)
    {
        int top = FIRST_STRIDE * at.row - FIRST_PAD, left = FIRST_STRIDE * at.column - FIRST_PAD - 1;
#pragma unroll
        for (int i = 0; i < turns; i++) {
            int index = i * threads + threadIdx.x, h = top + index / across, w = left + index % across * quad;
            bool inside = index < patch_quads && (unsigned)h < (unsigned)g.in[0] &&
                          (unsigned)w < (unsigned)g.in[1];
            const uint2 *from =
                (const uint2 *)(image + (((int64_t)at.n * g.in[0] + h) * g.in[1] + w) * channels);
#pragma unroll
            for (int k = 0; k < 3; k++) {
                x[i][k] = {};
                if (inside) x[i][k] = from[k];
            }
        }
    }
    __device__ void store(uint8_t (*to)[pitch]) const
    {
#pragma unroll
        for (int i = 0; i < turns; i++) {
            int index = i * threads + threadIdx.x;
            if (index >= patch_quads) continue;
            const uint2 *p = x[i];
            uint4 *line = (uint4 *)(to[index / across] + index % across * quad * pixel_bytes);
            line[0] = make_uint4(p[0].x, p[0].y & 0xffff, __funnelshift_r(p[0].y, p[1].x, 16), p[1].x >> 16);
            line[1] = make_uint4(p[1].y, p[2].x & 0xffff, __funnelshift_r(p[2].x, p[2].y, 16), p[2].y >> 16);
        }
    }
};

/* Queues the products of a tile: x[4 r + 2 h + e] is row r, the thread's filter h and output e. */
template <class T>
__device__ inline void multiply_patch(float (&x)[4 * rows], const tile_factors *memory)
{
    uint32_t weight = shared_address(memory->weight), patch = shared_address(memory->patch);
#pragma unroll
    for (int k = 0; k < steps; k++)
        multiply(x, matrix_at(weight + 2 * k * filters * 16, filters * 16, 128),
                 matrix_at(patch + k / 2 * pitch + k % 2 * 32, 16, 2 * pitch), k > 0, T());
}

/* A thread's first filter of the block's, its second being 8 later, and its pair of 8 outputs. */
__device__ inline int own_filter() { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; }
__device__ inline int own_pair() { return threadIdx.x % 4; }

/* The bits of the thread's pair that are left of x's right edge. */
__device__ inline uint32_t columns_inside(const place &at, const first_problem &g)
{
    int column = at.column + 2 * own_pair();
    return (column < g.out[1] ? 0xffff : 0) | (column + 1 < g.out[1] ? 0xffff0000u : 0);
}

/* ---- Forward ---- */

struct forward_memory : tile_factors {
    uint4 staged[rows * columns][filters / 8 + 1];   /* x, whose lines spread over the banks */
};

/* Stores four 8 x 8 matrices of two bytes, transposed; each lane passes the address of one of their lines. */
__device__ inline void store_transposed(void *line, const uint32_t *from)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(line)),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}

/* Rounds a tile of x to T in words[2 r + h], and adds what lies inside of the image to the thread's sums. */
template <class T>
__device__ inline void round_tile(uint32_t (&words)[2 * rows], float (&total)[2][2],
                                  const float (&x)[4 * rows], const place &at, const first_problem &g)
{
    uint32_t wide = columns_inside(at, g);
#pragma unroll
    for (int i = 0; i < 2 * rows; i++) {
        words[i] = pair_of<T>(x[2 * i], x[2 * i + 1]);
        uint32_t inside = words[i] & (at.row + i / 2 < g.out[0] ? wide : 0);
        float low = lower<T>(inside), high = upper<T>(inside);
        total[0][i % 2] += low + high;
        total[1][i % 2] = fmaf(low, low, fmaf(high, high, total[1][i % 2]));
    }
}

/* Writes a rounded tile to memory, by way of shared memory, in whole lines. */
template <class T>
__device__ inline void store_tile(forward_memory *memory, const uint32_t (&words)[2 * rows], T *x,
                                  const place &at, const first_problem &g)
{
    constexpr int parts = filters / 8;
    int matrix = threadIdx.x % 32 / 8, line = threadIdx.x % 8, group = threadIdx.x / 32 * 2 + matrix % 2;
#pragma unroll
    for (int r = 0; r < rows; r += 2)
        store_transposed(&memory->staged[(r + matrix / 2) * columns + line][group], words + 2 * r);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < rows * columns * parts / threads; i++) {
        int index = i * threads + threadIdx.x, output = index / parts, part = index % parts;
        int row = at.row + output / columns, column = at.column + output % columns;
        if (row < g.out[0] && column < g.out[1])
            *(uint4 *)(x + (((int64_t)at.n * g.out[0] + row) * g.out[1] + column) * g.k + part * 8) =
                memory->staged[output][part];
    }
}

/* x, and, by channel, the sums of what is stored and of its squares: shares[blockIdx.x][sums, squares][k]. */
template <class T>
__global__ void __launch_bounds__(threads, 3)
    first_forward_kernel(const __grid_constant__ first_problem g, const T *image, const T *weight, T *to,
                         float *shares)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint4 shared[];
    auto *memory = (forward_memory *)shared;
    int first = blockIdx.y * filters;
    float total[2][2] = {};
    patch_part next;
    load_weights(memory->weight, weight + (int64_t)first * kernel * kernel * channels);
    next.load(g, image, place_of(g, blockIdx.x));
    for (int index = blockIdx.x; index < g.tiles; index += gridDim.x) {
        float x[4 * rows];
        uint32_t words[2 * rows];
        place at = place_of(g, index);
        __syncthreads();
        next.store(memory->patch);
        stored();
        begin_products();
        multiply_patch<T>(x, memory);
        commit_products();
        if (index + gridDim.x < g.tiles) next.load(g, image, place_of(g, index + gridDim.x));
        finish_products(x);
        round_tile<T>(words, total, x, at, g);
        store_tile(memory, words, to + first, at, g);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = total[i / 2][i % 2];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (own_pair() == 0)
            shares[((int64_t)blockIdx.x * 2 + i / 2) * g.k + first + own_filter() + 8 * (i % 2)] = sum;
    }
#endif
}

/* ---- Backward ---- */

/* Windows' gradients, in the upper halves of words, and the indices of the x that get them. */
struct gradient_memory : tile_factors {
    static constexpr int down = rows / 2 + 1, across = columns / 2 + 1;
    uint32_t window[down][across][filters + 8];
};

template <class T> struct first_gradients {
    const T *image, *weight, *d_y, *d_y_more;
    const uint8_t *number;
    float *shares;                       /* [blocks][k, r, s, c] */
};

/* A thread's share of the windows over a tile, of 8 channels each, on its way to shared memory. */
template <class T, bool two> struct window_part {
    static constexpr int parts = filters / 8;
    static constexpr int windows = gradient_memory::down * gradient_memory::across;
    static constexpr int turns = (windows * parts + threads - 1) / threads;
    uint4 d_y[turns], more[two ? turns : 1];
    uint2 number[turns];

    __device__ void load(const first_problem &g, const first_gradients<T> &from, const place &at, int first)
    {
#pragma unroll
        for (int i = 0; i < turns; i++) {
            int part = i * threads + threadIdx.x, window = part / parts;
            int row = at.row / 2 + window / gradient_memory::across;
            int column = at.column / 2 + window % gradient_memory::across;
            number[i] = {~0u, ~0u};
            d_y[i] = {};
            if (window >= windows || row >= g.pooled[0] || column >= g.pooled[1]) continue;
            int64_t k =
                (((int64_t)at.n * g.pooled[0] + row) * g.pooled[1] + column) * g.k + first + part % parts * 8;
            number[i] = *(const uint2 *)(from.number + k);
            d_y[i] = *(const uint4 *)(from.d_y + k);
            if constexpr (two) more[i] = *(const uint4 *)(from.d_y_more + k);
        }
    }
    __device__ void store(gradient_memory *to) const
    {
#pragma unroll
        for (int i = 0; i < turns; i++) {
            int part = i * threads + threadIdx.x, window = part / parts;
            if (window >= windows) continue;
            uint32_t pairs[4] = {d_y[i].x, d_y[i].y, d_y[i].z, d_y[i].w}, word[8];
            if constexpr (two) {
                uint32_t other[4] = {more[i].x, more[i].y, more[i].z, more[i].w};
#pragma unroll
                for (int p = 0; p < 4; p++)
                    pairs[p] = pair_of<T>(lower<T>(pairs[p]) + lower<T>(other[p]),
                                          upper<T>(pairs[p]) + upper<T>(other[p]));
            }
#pragma unroll
            for (int e = 0; e < 8; e++)
                word[e] = (e % 2 ? pairs[e / 2] & 0xffff0000u : pairs[e / 2] << 16) |
                          ((e < 4 ? number[i].x : number[i].y) >> e % 4 * 8 & 0xff);
            uint4 *line = (uint4 *)&to->window[window / to->across][window % to->across][part % parts * 8];
            line[0] = make_uint4(word[0], word[1], word[2], word[3]);
            line[1] = make_uint4(word[4], word[5], word[6], word[7]);
        }
    }
};

/* A window, for the thread's two filters. */
template <class T> struct given {
    float d_y[2];
    int number[2];
    __device__ void load(const uint32_t *from)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            d_y[h] = upper<T>(from[8 * h]);
            number[h] = from[8 * h] & 0xff;
        }
    }
    __device__ float to(int h, int index) const { return number[h] == index ? d_y[h] : 0.0f; }
};

/* d_x[2 r + h] from x of a tile, as forward rounded it: pairs of outputs, as wgmma reads them. A pair's
 * windows are that over both, which begins in front of it, and the next; an even row is in one row of
 * windows, an odd one in two. */
template <class T>
__device__ inline void make_d_x(uint32_t (&d_x)[2 * rows], const float (&x)[4 * rows],
                                const gradient_memory *memory,
                                const batchnorm_parts::backward_line (&line)[2], const place &at,
                                const first_problem &g)
{
    uint32_t wide = columns_inside(at, g);
    given<T> over[2][2];
    auto load = [&](int row) {
#pragma unroll
        for (int v = 0; v < 2; v++) over[row % 2][v].load(&memory->window[row][own_pair() + v][own_filter()]);
    };
    load(0);
#pragma unroll
    for (int r = 0; r < rows; r++) {
        const given<T>(&own)[2] = over[r / 2 % 2], (&next)[2] = over[(r / 2 + 1) % 2];
        if (r % 2 == 0) load(r / 2 + 1);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float low, high;
            if (r % 2 == 0) {
                low = own[0].to(h, 4);
                high = own[0].to(h, 5) + own[1].to(h, 3);
            } else {
                low = own[0].to(h, 7) + next[0].to(h, 1);
                high = own[0].to(h, 8) + own[1].to(h, 6) + next[0].to(h, 2) + next[1].to(h, 0);
            }
            const batchnorm_parts::backward_line &f = line[h];
            uint32_t rounded = pair_of<T>(x[4 * r + 2 * h], x[4 * r + 2 * h + 1]);
            low = fmaf(f.scale, low, fmaf(f.slope, lower<T>(rounded), f.rest));
            high = fmaf(f.scale, high, fmaf(f.slope, upper<T>(rounded), f.rest));
            d_x[2 * r + h] = pair_of<T>(low, high) & (at.row + r < g.out[0] ? wide : 0);
        }
    }
}

/* Adds d_x times the patch to the weights' gradients: sum[kernel row][4 chunk + ...]. */
template <class T>
__device__ inline void add_products(float (&sum)[kernel][16], const uint32_t (&d_x)[2 * rows],
                                    const gradient_memory *memory)
{
    uint32_t patch = shared_address(memory->patch);
#pragma unroll
    for (int row = 0; row < rows; row += 2)
#pragma unroll
        for (int r = 0; r < kernel; r++)
            multiply(sum[r], d_x + 2 * row,
                     matrix_at(patch + (FIRST_STRIDE * row + r) * pitch, 2 * pitch, 16), T());
}

template <class T, bool two>
__global__ void __launch_bounds__(threads, 2)
    first_backward_kernel(const __grid_constant__ first_problem g, first_gradients<T> from,
                          batchnorm_parts::channel_values values, const float *sums)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ uint4 shared[];
    auto *memory = (gradient_memory *)shared;
    int first = blockIdx.y * filters, own = first + own_filter();
    float sum[kernel][16] = {}, count = (float)g.n * (float)g.out[0] * (float)g.out[1];
    const batchnorm_parts::backward_line line[2] = {{values, sums, g.k, own, count},
                                                    {values, sums, g.k, own + 8, count}};
    patch_part patch;
    window_part<T, two> windows;
    load_weights(memory->weight, from.weight + (int64_t)first * kernel * kernel * channels);
    auto fetch = [&](int index) {
        place at = place_of(g, index);
        patch.load(g, from.image, at);
        windows.load(g, from, at, first);
    };
    fetch(blockIdx.x);
    for (int index = blockIdx.x; index < g.tiles; index += gridDim.x) {
        float x[4 * rows];
        uint32_t d_x[2 * rows];
        __syncthreads();
        patch.store(memory->patch);
        windows.store(memory);
        stored();
        begin_products();
        multiply_patch<T>(x, memory);
        commit_products();
        finish_products(x);
        make_d_x<T>(d_x, x, memory, line, place_of(g, index), g);
        if (index + gridDim.x < g.tiles) fetch(index + gridDim.x);
#pragma unroll
        for (int i = 0; i < 2 * rows; i++) asm volatile("" : "+r"(d_x[i])::"memory");
        begin_products();
        add_products<T>(sum, d_x, memory);
        commit_products();
#pragma unroll
        for (int r = 0; r < kernel; r++) finish_products(sum[r]);
    }
    float *to = from.shares + ((int64_t)blockIdx.x * g.k + own) * kernel * kernel * channels;
#pragma unroll
    for (int i = 0; i < kernel * 16; i++) {
        int r = i / 16, h = i / 2 % 2, product = i / 4 % 4 * 8 + own_pair() * 2 + i % 2;
        int tap = product / 4 - 1, c = product % 4;
        if (tap >= 0 && c < channels)
            to[((8 * h * kernel + r) * kernel + tap) * channels + c] = sum[r][i % 16];
    }
#endif
}

/* ---- Calls ---- */

static const struct conv_batchnorm_maxpool *settings_of(const struct call *call)
{
    return (const struct conv_batchnorm_maxpool *)call->settings;
}

static first_problem problem_of(const struct call *call)
{
    struct shape x = call->x[0].shape, between = conv_shape_of_first(settings_of(call), x);
    struct shape y = call->saved[SAVED_NUMBER].shape;
    first_problem g = {.n = (int)x.n, .in = {(int)x.h, (int)x.w}, .out = {(int)between.h, (int)between.w},
                       .pooled = {(int)y.h, (int)y.w}, .k = (int)between.c};
    g.down = div_up(g.out[0], rows);
    g.across = div_up(g.out[1], columns);
    g.tiles = g.n * g.down * g.across;
    return g;
}

static bool is_empty(const struct call *call) { return shape_count(call->x[0].shape) == 0; }

/* x, or its shape alone. */
static struct tensor between_of(const struct call *call, void *data)
{
    return {data, call->x[0].dtype, conv_shape_of_first(settings_of(call), call->x[0].shape)};
}

/* batchnorm_maxpool's call, which in backward writes no d_x and does not read x, either. */
static struct call pool_call(const struct call *call, const struct batchnorm_maxpool *settings,
                             struct tensor *between)
{
    struct call pool = *call;
    pool.settings = settings;
    pool.x = pool.d_x = between;
    return pool;
}

constexpr int blocks_most = 512;         /* that leave shares of sums */

/* Runs a kernel with as many blocks as there is room for; `blocks` is set to how many share the tiles. */
template <class Kernel, class... Arguments>
static enum status run(const struct call *call, Kernel code, size_t bytes, int *blocks,
                       const first_problem &g, Arguments... arguments)
{
    int room = 0;
    TRY(cuda_status(call->device,
                    cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                    "asking for shared memory"));
    TRY(cuda_status(call->device, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&room, code, threads, bytes),
                    "asking for room"));
    int most = room * cuda_facts(call->device)->multiprocessors;
    most = most < blocks_most ? most : blocks_most;
    *blocks = g.tiles < most ? g.tiles : most;
    code<<<dim3(*blocks, g.k / filters), threads, bytes, stream_of(call)>>>(g, arguments...);
    return launched(call);
}

/* The workspace: batchnorm_maxpool's, in backward with batch norm's sums in front; the shares of blocks; and
 * in forward the sums that they add up to, and x. */
struct room {
    size_t shares, sums, x, end;
};

static struct room room_of(const struct call *call)
{
    bool forward = call->phase == PHASE_FORWARD;
    struct batchnorm_maxpool settings = pool_of_first(settings_of(call));
    struct tensor between = between_of(call, NULL);
    struct call pool = pool_call(call, &settings, &between);
    size_t sums = 2 * settings_of(call)->filters * sizeof(float);
    size_t weights = settings_of(call)->filters * kernel * kernel * channels * sizeof(float);
    struct room room = {.shares = workspace_align(batchnorm_maxpool_cuda.workspace(&pool))};
    room.sums = room.shares + blocks_most * (forward ? sums : weights);
    room.x = room.sums + (forward ? workspace_align(sums) : 0);
    room.end = room.x + (forward ? tensor_bytes(&between) : 0);
    return room;
}

static size_t conv_batchnorm_maxpool_workspace(const struct call *call)
{
    return call->phase == PHASE_FORWARD || call->phase == PHASE_BACKWARD ? room_of(call).end : 0;
}

static void *room_at(const struct call *call, size_t offset) { return (char *)call->workspace + offset; }

static const struct tensor *weight_of(const struct call *call)
{
    return &call->params[conv_weight_of_first(settings_of(call))];
}

/* Calls work(T()) with the type of 16 bits that the image has. */
template <class Work> static enum status with_half(const struct call *call, Work work)
{
    return call->x[0].dtype == F16 ? work(__half()) : work(__nv_bfloat16());
}

static enum status conv_batchnorm_maxpool_forward(const struct call *call)
{
    struct batchnorm_maxpool settings = pool_of_first(settings_of(call));
    struct room room = room_of(call);
    struct tensor between = between_of(call, room_at(call, room.x));
    struct call pool = pool_call(call, &settings, &between);
    float *shares = (float *)room_at(call, room.shares), *sums = (float *)room_at(call, room.sums);
    first_problem g = problem_of(call);
    int blocks;
    if (is_empty(call)) return OK;
    TRY(with_half(call, [&](auto type) {
        using T = decltype(type);
        return run(call, first_forward_kernel<T>, sizeof(forward_memory), &blocks, g,
                   (const T *)call->x[0].data, (const T *)weight_of(call)->data, (T *)between.data, shares);
    }));
    TRY(conv_sum_shares(call, sums, shares, blocks, 2 * g.k));
    call_put(&pool, OPERAND_X_MOMENTS)->data = sums;
    return batchnorm_maxpool_cuda.forward(&pool);
}

static enum status conv_batchnorm_maxpool_recompute(const struct call *call)
{
    return batchnorm_maxpool_cuda.recompute(call);
}

static enum status conv_batchnorm_maxpool_backward(const struct call *call)
{
    struct batchnorm_maxpool settings = pool_of_first(settings_of(call));
    struct tensor between = between_of(call, NULL);
    struct call pool = pool_call(call, &settings, &between);
    float *d_weight = (float *)call->d_params[conv_weight_of_first(settings_of(call))].data;
    if (is_empty(call)) return OK;
    TRY(batchnorm_maxpool_cuda.backward(&pool));
    if (!d_weight) return OK;
    first_problem g = problem_of(call);
    const float *sums = (const float *)call->workspace;
    float *shares = (float *)room_at(call, room_of(call).shares);
    int blocks;
    TRY(with_half(call, [&](auto type) {
        using T = decltype(type);
        first_gradients<T> from = {(const T *)call->x[0].data, (const T *)weight_of(call)->data,
                                   (const T *)call->d_y.data, (const T *)call_data(call, OPERAND_D_Y_ADDEND),
                                   (const uint8_t *)call->saved[SAVED_NUMBER].data, shares};
        auto code = from.d_y_more ? first_backward_kernel<T, true> : first_backward_kernel<T, false>;
        return run(call, code, sizeof(gradient_memory), &blocks, g, from, batchnorm_parts::values_of(call),
                   sums);
    }));
    return conv_sum_shares(call, d_weight, shares, blocks, g.k * kernel * kernel * channels);
}

static bool conv_batchnorm_maxpool_supports(const struct call *call)
{
    const struct tensor *x = &call->x[0];
    bool fits = dtype_bytes(x->dtype) == 2 && x->shape.w % quad == 0 &&
                settings_of(call)->filters % filters == 0;
    if (!call_adds_gradients(call)) return false;
    if (!fits || !call->training || !call->device) return fits && call->training;
    return cuda_facts(call->device)->capability == 90 && is_compiled(first_forward_kernel<__half>);
}

const struct op_code conv_batchnorm_maxpool_cuda = {
    .channels_last = true,
    .supports = conv_batchnorm_maxpool_supports,
    .workspace = conv_batchnorm_maxpool_workspace,
    .forward = conv_batchnorm_maxpool_forward,
    .backward = conv_batchnorm_maxpool_backward,
    .update = batchnorm_update_cuda,
    .recompute = conv_batchnorm_maxpool_recompute,
};
