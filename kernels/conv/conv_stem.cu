/* conv_stem.cu: the first layer of networks: 3 channels, kernel 3, or 7 with a stride of 2, in 16 bits and
 * in tf32.
 *
 * With so few channels, a pixel has only a few bytes, which cuDNN's engines for many channels read badly.
 * Here a block copies the patch of x under 16 x 16 outputs to shared memory, where the factors of one
 * kernel row are contiguous for every output, so that tensor cores read them from the patch as it is.
 * Kernel rows are padded to whole chunks of 8 products, with weights of zero. */
#include <type_traits>

#include "kernels/support/chunk.cuh"
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/linear/matrices.cuh"
#include "kernels/support/tf32.cuh"

using matrices::address_of, matrices::copies_wait, matrices::copy_unit, matrices::load_turned,
    matrices::multiply;

#define THREADS 256
#define WARPS (THREADS / 32)
#define CHANNELS 3
#define TILE 16                          /* outputs along h and w of a block's tile */

/* Chunks of 8 products that one instruction sums. */
template <class T> constexpr int at_once = sizeof(T) == 2 ? 2 : 1;

/* Sizes for one kernel size and stride. */
template <int kernel_size, int pixels> struct geometry {
    static constexpr int kernel = kernel_size, stride = pixels;
    static constexpr int row = kernel * CHANNELS;                      /* products of a kernel row */
    static constexpr int shift = stride * CHANNELS;                    /* elements of x between outputs */
    static constexpr int row_chunks = (row + 7) / 8;                   /* chunks of them */
    static constexpr int chunks = (row_chunks * kernel + 1) / 2 * 2;   /* of all rows, in pairs */
    static constexpr int steps = chunks / 2;                           /* of 16 products */
    template <class T> static constexpr int turns = (row_chunks * kernel + at_once<T> - 1) / at_once<T>;
    static constexpr int side = (TILE - 1) * stride + kernel;          /* pixels along h and w of a patch */
    static constexpr int line = side * CHANNELS;                       /* elements in one row of a patch */
    static constexpr int pitch =
        (shift * (TILE - 1) + row_chunks * 8 + 1) / 2 * 2; /* with what chunks read beyond it */
    /* The offset of a chunk's factors in the patch, for the first output. The chunk that pads the last pair
     * reads the first chunk again, with weights of zero. */
    static __host__ __device__ constexpr int offset(int chunk)
    {
        return chunk < row_chunks * kernel ? chunk / row_chunks * pitch + chunk % row_chunks * 8 : 0;
    }
};

/* The outputs of a tile, and the patch of x that they depend on. */
struct tile {
    int64_t n;
    int p, q;
};

__device__ static inline struct tile tile_at(const struct conv_sizes &g, int index)
{
    int across = (g.out[1] + TILE - 1) / TILE, down = (g.out[0] + TILE - 1) / TILE;
    return {index / (across * down), index / across % down * TILE, index % across * TILE};
}

/* The tile that is `step` tiles behind `t`. */
__device__ static inline struct tile tile_behind(const struct conv_sizes &g, const struct tile &t,
                                                 const struct tile &step)
{
    int across = (g.out[1] + TILE - 1) / TILE * TILE, down = (g.out[0] + TILE - 1) / TILE * TILE;
    int q = t.q + step.q, p = t.p + step.p + (q >= across) * TILE;
    return {t.n + step.n + (p >= down), p - (p >= down) * down, q - (q >= across) * across};
}

static int tile_count(const struct conv_sizes *p)
{
    return p->n * div_up(p->out[0], TILE) * div_up(p->out[1], TILE);
}

/* A warp loads every eighth row of a tile's patch; elements outside the image are zero, as all are behind the
 * last tile. All loads are issued before the first result is used. */
template <class T, class size> struct patch_part {
    static constexpr int rows = (size::side + WARPS - 1) / WARPS;
    static constexpr int steps = (size::pitch + 31) / 32;
    T value[rows][steps];
};

template <class T, class size>
__device__ static inline patch_part<T, size> read_patch(const struct conv_sizes &g, const struct tile &t,
                                                          const T *x)
{
    patch_part<T, size> part;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wide = g.in[1] * CHANNELS;
    int top = t.p * size::stride - g.pad[0] + warp, left = t.q * size::shift - g.pad[1] * CHANNELS + lane;
    const T *from = x + (t.n * g.in[0] + top) * wide + left;
#pragma unroll
    for (int k = 0; k < part.rows; k++) {
        bool inside = t.n < g.n && (unsigned)(top + k * WARPS) < (unsigned)g.in[0];
#pragma unroll
        for (int i = 0; i < part.steps; i++) {
            bool real = inside && i * 32 + lane < size::line && (unsigned)(left + i * 32) < (unsigned)wide;
            part.value[k][i] = real ? __ldg(from + k * WARPS * wide + i * 32) : from_float<T>(0.0f);
        }
    }
    return part;
}

/* Calls put(row, index in the row, element) for the elements that the warp has loaded. */
template <class T, class size, class F>
__device__ static inline void write_patch(const patch_part<T, size> &part, F put)
{
#pragma unroll
    for (int k = 0; k < part.rows; k++) {
        int row = k * WARPS + threadIdx.x / 32;
#pragma unroll
        for (int i = 0; i < part.steps; i++) {
            int at = i * 32 + threadIdx.x % 32;
            if ((k + 1 < part.rows || row < size::side) && at < size::pitch) put(row, at, part.value[k][i]);
        }
    }
}

/* The bits of a number that tensor cores read. */
template <class T> __device__ static inline T factor_of(T value)
{
    return sizeof(T) == 2 ? value : factor_from_float<T>(to_float(value));
}

template <class T> __device__ static inline uint32_t both(T low, T high)
{
    uint16_t bits[2];
    memcpy(&bits[0], &low, 2);
    memcpy(&bits[1], &high, 2);
    return bits[0] | (uint32_t)bits[1] << 16;
}

/* The weight of filter `f` for product `k`, in the order of chunks. */
template <class T, class size> __device__ static inline T weight_of(const T *weight, int f, int k)
{
    int r = k / (8 * size::row_chunks), at = k % (8 * size::row_chunks);
    bool real = r < size::kernel && at < size::row;
    return real ? factor_of(weight[(f * size::kernel + r) * size::row + at]) : from_float<T>(0.0f);
}

/* The two of a row's 16 outputs that a lane has: lane / 4 * apart, and the one `beyond` that; so lanes read
 * the patch from different banks. */
template <class T> constexpr int apart = sizeof(T) == 2 ? 1 : 2;
template <class T> constexpr int beyond = sizeof(T) == 2 ? 8 : 1;

/* Warps divide a block's filters, 32 for each, and a tile's rows. */
template <int filters> constexpr int warps_across = filters / 32;
template <int filters> constexpr int warp_rows = TILE * warps_across<filters> / WARPS;

/* The filter in a column of the tensor cores' groups of 8, such that a lane's columns, two of each group, are
 * packs of neighbouring filters, and four lanes' packs are contiguous. */
template <class T> __device__ static inline int filter_of(int group, int column)
{
    constexpr int width = pack<T>::count;
    return group / (width / 2) * 4 * width + column / 2 * width + group % (width / 2) * 2 + column % 2;
}

/* Shared memory of the forward kernel: weights in the order of tensor cores, [turn][two groups of 8
 * filters][lane]; two patches in turn, and, where pairs of elements are read but outputs are an odd number of
 * elements apart, copies of them from their second element on, such that pairs are aligned to four bytes. */
template <class T, class size, int filters> struct forward_memory {
    static constexpr int copies = sizeof(T) == 2 && size::shift % 2 ? 2 : 1;
    static constexpr int turns = size::template turns<T>;
    using elements = T[copies][(size::side * size::pitch + 7) / 8 * 8];
    uint4 weight[turns][filters / 16][32];
    elements patch[2];
};

template <class T, class size>
__device__ static inline uint32_t weight_word(const T *weight, int f, int k)
{
    if constexpr (sizeof(T) == 4) return __float_as_uint(weight_of<T, size>(weight, f, k));
    else return both(weight_of<T, size>(weight, f, k), weight_of<T, size>(weight, f, k + 1));
}

template <class T, class size, int filters>
__device__ static inline void load_weights(forward_memory<T, size, filters> *memory, const T *weight)
{
    constexpr int groups = filters / 16, each = at_once<T>;
    for (int i = threadIdx.x; i < memory->turns * groups * 32; i += THREADS) {
        int lane = i % 32, group = i / 32 % groups, turn = i / 32 / groups;
        int k = turn * 8 * each + lane % 4 * each;
        int f = filter_of<T>(2 * group, lane / 4), second = filter_of<T>(2 * group + 1, lane / 4);
        auto word = [&](int filter, int at) { return weight_word<T, size>(weight, filter, at); };
        memory->weight[turn][group][lane] =
            make_uint4(word(f, k), word(f, k + 4 * each), word(second, k), word(second, k + 4 * each));
    }
}

/* Outputs of different rows have factors in common, for which there are registers in 16 bits only. */
template <class T, class size, int filters>
__device__ static inline void multiply_rows(const forward_memory<T, size, filters> *memory, int which,
                                            float sum[warp_rows<filters>][4][4])
{
    constexpr int each = at_once<T>, rows = warp_rows<filters>;
    using word = std::conditional_t<sizeof(T) == 4, volatile uint32_t, uint32_t>;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = lane / 4 * apart<T> * size::shift;
    int row = warp / warps_across<filters> * rows, odd = first % memory->copies;
    const T *patch =
        memory->patch[which][odd] + row * size::stride * size::pitch + first - odd + lane % 4 * each;
    const uint4 *weight = &memory->weight[0][warp % warps_across<filters> * 2][lane];
#pragma unroll
    for (int turn = 0; turn < memory->turns; turn++) {
        uint32_t a[rows][4];
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int part = 0; part < 4; part++) {
                int product = size::offset(each * turn + part / 2 * (each - 1)) + part / 2 * (2 - each) * 4;
                a[i][part] = *(const word *)(patch + i * size::stride * size::pitch +
                                             part % 2 * beyond<T> * size::shift + product);
            }
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            uint4 w = weight[(turn * (filters / 16) + pair) * 32];
#pragma unroll
            for (int i = 0; i < rows; i++) {
                multiply(sum[i][2 * pair], a[i], w.x, w.y, T());
                multiply(sum[i][2 * pair + 1], a[i], w.z, w.w, T());
            }
        }
    }
}

/* If `shares` is not NULL, each block writes its sums of y and of its squares there: [blockIdx.x][sums,
 * squares][k]. bias may be NULL. */
template <class T> struct stem_operands {
    T *y;
    const T *x, *weight, *bias;
    float *shares;
    bool relu;
};

/* True if a lane's output is inside the image: of two in each of the warp's rows, which begin at `t`. */
template <class T>
__device__ static inline bool is_inside(const struct conv_sizes &g, const struct tile &t, int row, int which)
{
    return t.p + row < g.out[0] && t.q + threadIdx.x % 32 / 4 * apart<T> + which * beyond<T> < g.out[1];
}

/* Adds the bias to a warp's sums, of filters from `first` on, and relu; outside the image they become 0. */
template <class T, int rows>
__device__ static inline void finish_rows(const struct conv_sizes &g, const stem_operands<T> &o,
                                          const struct tile &t, int first, float sum[rows][4][4])
{
    bool whole = t.p + rows <= g.out[0] && t.q + TILE <= g.out[1];
#pragma unroll
    for (int i = 0; o.bias && i < rows * 16; i++) {
        int filter = filter_of<T>(i / 4 % 4, threadIdx.x % 4 * 2 + i % 2);
        sum[i / 16][i / 4 % 4][i % 4] += to_float(o.bias[first + filter]);
    }
#pragma unroll
    for (int i = 0; o.relu && i < rows * 16; i++)
        if (sum[i / 16][i / 4 % 4][i % 4] <= 0) sum[i / 16][i / 4 % 4][i % 4] = 0;
#pragma unroll
    for (int i = 0; !whole && i < rows * 16; i++)
        if (!is_inside<T>(g, t, i / 16, i % 4 / 2)) sum[i / 16][i / 4 % 4][i % 4] = 0;
}

/* Writes a warp's rows to memory. */
template <class T, int rows>
__device__ static inline void store_rows(const struct conv_sizes &g, const struct tile &t, T *y, int first,
                                         const float sum[rows][4][4])
{
    constexpr int width = pack<T>::count;
    int lane = threadIdx.x % 32, q = t.q + lane / 4 * apart<T>;
    y += ((t.n * g.out[0] + t.p) * g.out[1] + q) * g.k + first + filter_of<T>(0, lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < rows * 16; i += width) {
        int row = i / 16, which = i / 8 % 2, f = i % 8;
        chunk<T, width> stored;
#pragma unroll
        for (int u = 0; u < width; u++)
            stored.at[u] = from_float<T>(sum[row][(f + u) / 2][which * 2 + u % 2]);
        T *to = y + (row * g.out[1] + which * beyond<T>) * g.k + filter_of<T>(f / 2, 0);
        if (is_inside<T>(g, t, row, which)) *(chunk<T, width> *)to = stored;
    }
}

/* Adds a warp's rows to a lane's sums of its 8 filters, and to those of squares. */
template <int rows>
__device__ static inline void add_rows(const float sum[rows][4][4], float total[2][8])
{
#pragma unroll
    for (int i = 0; i < rows * 16; i++) {
        float value = sum[i / 16][i / 4 % 4][i % 4];
        total[0][i / 4 % 4 * 2 + i % 2] += value;
        total[1][i / 4 % 4 * 2 + i % 2] += value * value;
    }
}

/* Leaves the block's sums in o.shares, by way of `sums` in shared memory: [WARPS][sums, squares][32]. */
template <class T, int filters>
__device__ static inline void leave_sums(const struct conv_sizes &g, const stem_operands<T> &o,
                                         const float total[2][8], float *sums)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float sum = total[i / 8][i % 8];
        for (int apart = 4; apart < 32; apart *= 2) sum += __shfl_xor_sync(0xffffffff, sum, apart);
        int f = filter_of<T>(i % 8 / 2, lane % 4 * 2 + i % 2);
        if (lane < 4) sums[(warp * 2 + i / 8) * 32 + f] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * filters; i += THREADS) {
        int f = i % filters, which = i / filters;
        float sum = 0;
        for (int w = f / 32; w < WARPS; w += warps_across<filters>)
            sum += sums[(w * 2 + which) * 32 + f % 32];
        o.shares[((int64_t)blockIdx.x * 2 + which) * g.k + blockIdx.y * filters + f] = sum;
    }
}

/* A block computes `filters` filters, from blockIdx.y * filters on, for every gridDim.x'th tile; it loads a
 * tile's patch before it stores the outputs of the one before. */
template <class T, class size, int filters>
__global__ void __launch_bounds__(THREADS, 2)
    stem_forward_kernel(struct conv_sizes g, stem_operands<T> o)
{
    constexpr int rows = warp_rows<filters>;
    extern __shared__ uint4 shared[];
    auto *memory = (forward_memory<T, size, filters> *)shared;
    int warp = threadIdx.x / 32, first = blockIdx.y * filters + warp % warps_across<filters> * 32;
    float total[2][8] = {};
    load_weights<T, size, filters>(memory,
                                   o.weight + (int64_t)blockIdx.y * filters * size::kernel * size::row);
    struct tile t = tile_at(g, blockIdx.x), step = tile_at(g, gridDim.x);
    auto part = read_patch<T, size>(g, t, o.x);
    for (int which = 0; t.n < g.n; which ^= 1) {
        auto &patch = memory->patch[which];
        write_patch<T, size>(part, [&](int row, int at, T value) {
            patch[0][row * size::pitch + at] = factor_of(value);
            if (memory->copies > 1 && at > 0) patch[memory->copies - 1][row * size::pitch + at - 1] = value;
        });
        __syncthreads();
        float sum[rows][4][4] = {};
        multiply_rows<T, size, filters>(memory, which, sum);
        struct tile next = tile_behind(g, t, step);
        part = read_patch<T, size>(g, next, o.x);
        t.p += warp / warps_across<filters> * rows;
        finish_rows<T, rows>(g, o, t, first, sum);
        store_rows<T, rows>(g, t, o.y, first, sum);
        if (o.shares) add_rows<rows>(sum, total);
        t = next;
    }
    if (o.shares) leave_sums<T, filters>(g, o, total, (float *)memory->patch);
}

/* Shared memory of the weights' gradient: d_y of the tile, and words[i], which is the patch's element i; in
 * 16 bits with element i + size::shift, which the next output multiplies by the same weight. */
template <class T, class size, int filters> struct params_memory {
    uint32_t words[(size::side * size::pitch + 3) / 4 * 4];
    T d_y[TILE * TILE][filters + (sizeof(T) == 2 ? 8 : 0)];
};

/* The index of filter `f` of an output in fp32, such that every fourth output is in other banks. */
__device__ static inline int swizzled(int output, int f) { return f ^ output / 4 % 4 * 8; }

template <class T, class size, int filters>
__device__ static inline void put_word(params_memory<T, size, filters> *memory, int row, int at, T value)
{
    if constexpr (sizeof(T) == 4) {
        memory->words[row * size::pitch + at] = __float_as_uint(factor_of(value));
    } else {
        T *line = (T *)(memory->words + row * size::pitch);
        line[2 * at] = value;
        if (at >= size::shift) line[2 * (at - size::shift) + 1] = value;
        else line[2 * (size::pitch - size::shift + at) + 1] = from_float<T>(0.0f);
    }
}

/* A thread's share of a tile of d_y, in parts of 16 bytes. */
template <class T, int filters> struct d_y_part {
    static constexpr int width = pack<T>::count, parts = filters / width;
    static constexpr int steps = TILE * TILE * parts / THREADS;
    uint4 value[steps];
};

/* Calls work(step, output, filter, address, whether it is inside the image) for this thread's parts. */
template <class T, int filters, class Work>
__device__ static inline void for_d_y(const struct conv_sizes &g, const struct tile &t, const T *d_y,
                                      Work work)
{
    using part = d_y_part<T, filters>;
#pragma unroll
    for (int i = 0; i < part::steps; i++) {
        unsigned at = i * THREADS + threadIdx.x, output = at / part::parts,
                 f = at % part::parts * part::width;
        int p = t.p + output / TILE, q = t.q + output % TILE;
        bool inside = p < g.out[0] && q < g.out[1];
        work(i, output, f, inside ? d_y + ((t.n * g.out[0] + p) * g.out[1] + q) * g.k + f : d_y, inside);
    }
}

/* Copies d_y of a tile to shared memory: in fp32 directly, in 16 bits through registers. */
template <class T, class size, int filters>
__device__ static inline void copy_d_y(params_memory<T, size, filters> *memory, const struct conv_sizes &g,
                                       const struct tile &t, const T *d_y)
{
    for_d_y<T, filters>(g, t, d_y, [&](int, int output, int f, const T *from, bool inside) {
        copy_unit((uint4 *)&memory->d_y[output][swizzled(output, f)], from, inside);
    });
}

template <class T, int filters>
__device__ static inline d_y_part<T, filters> read_d_y(const struct conv_sizes &g, const struct tile &t,
                                                       const T *d_y)
{
    d_y_part<T, filters> part;
    for_d_y<T, filters>(g, t, d_y, [&](int i, int, int, const T *from, bool inside) {
        part.value[i] = {};
        if (inside) part.value[i] = __ldg((const uint4 *)from);
    });
    return part;
}

template <class T, class size, int filters>
__device__ static inline void write_d_y(params_memory<T, size, filters> *memory,
                                        const d_y_part<T, filters> &part)
{
#pragma unroll
    for (int i = 0; i < part.steps; i++) {
        int at = i * THREADS + threadIdx.x;
        *(uint4 *)&memory->d_y[at / part.parts][at % part.parts * part.width] = part.value[i];
    }
}

/* Copies a tile's patch, and d_y of its outputs, to shared memory, once all warps have used the previous
 * tile's. */
template <class T, class size, int filters>
__device__ static inline void load_tile(params_memory<T, size, filters> *memory, const struct conv_sizes &g,
                                        int index, const T *x, const T *d_y)
{
    struct tile t = tile_at(g, index);
    auto part = read_patch<T, size>(g, t, x);
    if constexpr (sizeof(T) == 4) {
        __syncthreads();
        copy_d_y(memory, g, t, d_y);
    } else {
        auto rows = read_d_y<T, filters>(g, t, d_y);
        __syncthreads();
        write_d_y(memory, rows);
    }
    write_patch<T, size>(part, [&](int row, int at, T value) { put_word(memory, row, at, value); });
    copies_wait();
    __syncthreads();
}

/* Loads a row's outputs for the warps of one half of the filters, in groups of 8 filters: lane quarter j has
 * outputs 4j + 2 * turn and the next, in 16 bits all of 4j .. 4j + 3 at once. */
template <class T, class size, int filters>
__device__ static inline void load_outputs(const params_memory<T, size, filters> *memory, int row, int turn,
                                           uint32_t b[filters / 16][2])
{
    int lane = threadIdx.x % 32, first = threadIdx.x / 128 * (filters / 2);
#pragma unroll
    for (int group = 0; group < filters / 16; group++) {
        if constexpr (sizeof(T) == 4) {
            int output = row * TILE + lane % 4 * 4 + 2 * turn;
            int f = swizzled(output, first + group * 8 + lane / 4);
            b[group][0] = __float_as_uint(factor_of(memory->d_y[output][f]));
            b[group][1] = __float_as_uint(factor_of(memory->d_y[output + 1][f]));
        } else if (group % 2 == 0) {
            /* Lines of the four matrices: lower and upper outputs, of filters f and of f + 8. */
            int which = lane / 8, index = lane % 8, upper = which % 2;
            int output = row * TILE + index / 2 * 4 + index % 2 + 2 * upper;
            uint32_t got[4];
            load_turned(got, address_of(&memory->d_y[output][first + group * 8 + which / 2 * 8]));
            b[group][0] = got[0];
            b[group][1] = got[1];
            b[group + 1][0] = got[2];
            b[group + 1][1] = got[3];
        }
    }
}

/* d_weight = patches (products x outputs) * d_y (outputs x filters). Warps divide the products into 4 parts
 * and the filters into 2, and each processes all outputs of a tile, a row of 16 per step. Both factors may
 * have the outputs in any order, as long as it is the same: in that of load_outputs, lanes read `words` from
 * different banks. shares[blockIdx.x][k][kernel][kernel][channel]. */
template <class T, class size, int filters>
__global__ void __launch_bounds__(THREADS, 2)
    stem_params_kernel(struct conv_sizes g, float *shares, const T *x, const T *d_y, int tiles)
{
    constexpr int parts = (size::steps + 3) / 4, groups = filters / 16, next = at_once<T> * size::shift;
    extern __shared__ uint4 shared[];
    auto *memory = (params_memory<T, size, filters> *)shared;
    int first = blockIdx.y * filters, lane = threadIdx.x % 32, split = threadIdx.x / 32 % 4,
        half = threadIdx.x / 128;
    float sum[parts][groups][4] = {};
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
        load_tile(memory, g, index, x, d_y + first);
#pragma unroll 2
        for (int i = 0; i < TILE * 2 / at_once<T>; i++) {
            int row = i * at_once<T> / 2, turn = i % (2 / at_once<T>);
            uint32_t b[groups][2];
            load_outputs(memory, row, turn, b);
            const uint32_t *line = memory->words + row * size::stride * size::pitch + lane / 4 +
                                   (lane % 4 * 4 + 2 * turn) * size::shift;
#pragma unroll
            for (int part = 0; part < parts; part++) {
                int step = split * parts + part;
                if (step >= size::steps) continue;
                int low = size::offset(2 * step), high = size::offset(2 * step + 1);
                uint32_t a[4] = {line[low], line[high], line[low + next], line[high + next]};
#pragma unroll
                for (int group = 0; group < groups; group++)
                    multiply(sum[part][group], a, b[group][0], b[group][1], T());
            }
        }
    }
    float *to = shares + ((int64_t)blockIdx.x * g.k + first) * size::kernel * size::row;
#pragma unroll
    for (int part = 0; part < parts; part++)
#pragma unroll
        for (int i = 0; i < groups * 4; i++) {
            int product = (split * parts + part) * 16 + lane / 4 + i % 4 / 2 * 8;
            int f = half * (filters / 2) + i / 4 * 8 + lane % 4 * 2 + i % 2;
            int r = product / (8 * size::row_chunks), at = product % (8 * size::row_chunks);
            if (r < size::kernel && at < size::row)
                to[((int64_t)f * size::kernel + r) * size::row + at] = sum[part][i / 4][i % 4];
        }
}

static bool is_ours(const struct conv_call *p)
{
    int kernel = p->kernel[0], stride = p->stride[0];
    if ((p->dtype == F32 && !p->call->tf32) || p->c != CHANNELS || p->groups != 1 || p->k % 32 != 0 ||
        p->phase == PHASE_BACKWARD_DATA)
        return false;
    if (kernel == 3 ? stride != 1 && stride != 2 : kernel != 7 || stride != 2) return false;
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != kernel || p->stride[i] != stride || p->dilation[i] != 1) return false;
    return true;
}

/* Filters of one block. */
static int block_filters(const struct conv_call *p)
{
    return p->k % 64 == 0 ? 64 : 32;
}

/* Two blocks per multiprocessor, which divide the tiles. */
static unsigned blocks_across(const struct conv_call *p, int multiprocessors)
{
    int tiles = tile_count(p), most = 2 * multiprocessors;
    return (unsigned)(tiles < most ? tiles : most);
}

static size_t share_bytes(const struct conv_call *p)
{
    if (p->phase == PHASE_BACKWARD_PARAMS)
        return (size_t)p->k * p->kernel[0] * p->kernel[1] * CHANNELS * sizeof(float);
    return conv_gives_moments(p->call) ? (size_t)p->k * 2 * sizeof(float) : 0;
}

template <class Kernel> static enum status allow_memory(const struct call *call, Kernel kernel, size_t bytes)
{
    return cuda_status(call->device,
                       cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                       "asking for shared memory");
}

template <class T, class size, int filters>
static enum status stem_run_forward(const struct conv_call *p, dim3 grid)
{
    const struct call *call = p->call;
    size_t bytes = sizeof(forward_memory<T, size, filters>);
    float *shares = conv_gives_moments(p->call) ? (float *)call->workspace : NULL;
    auto code = stem_forward_kernel<T, size, filters>;
    TRY(allow_memory(call, code, bytes));
    stem_operands<T> operands = {(T *)conv_y(call), (const T *)conv_x(call), (const T *)conv_weight(call),
                                 (const T *)conv_bias(call), shares, conv_applies_relu(call)};
    code<<<grid, THREADS, bytes, stream_of(call)>>>(*p, operands);
    TRY(launched(call));
    if (!conv_gives_moments(p->call)) return OK;
    float *moments = (float *)call_data(call, OPERAND_Y_MOMENTS);
    return columns_finish(call, {shares, (int)grid.x, 1, 2 * p->k}, moments);
}

template <class T, class size, int filters>
static enum status stem_run_params(const struct conv_call *p, dim3 grid)
{
    const struct call *call = p->call;
    size_t bytes = sizeof(params_memory<T, size, filters>);
    float *shares = (float *)call->workspace;
    auto code = stem_params_kernel<T, size, filters>;
    TRY(allow_memory(call, code, bytes));
    code<<<grid, THREADS, bytes, stream_of(call)>>>(*p, shares, (const T *)conv_x(call),
                                                    (const T *)conv_y(call), tile_count(p));
    TRY(launched(call));
    return columns_finish(call, {shares, (int)grid.x, 1, p->k * size::kernel * size::row},
                          (float *)conv_weight(call));
}

template <class T, class size>
static enum status stem_run_phase(const struct conv_call *p)
{
    int filters = block_filters(p);
    dim3 grid(blocks_across(p, cuda_facts(p->call->device)->multiprocessors), (unsigned)(p->k / filters));
    if (p->phase == PHASE_FORWARD)
        return filters == 64 ? stem_run_forward<T, size, 64>(p, grid)
                             : stem_run_forward<T, size, 32>(p, grid);
    return filters == 64 ? stem_run_params<T, size, 64>(p, grid)
                         : stem_run_params<T, size, 32>(p, grid);
}

template <class T> static enum status stem_run_type(const struct conv_call *p)
{
    if (p->kernel[0] == 7) return stem_run_phase<T, geometry<7, 2>>(p);
    return p->stride[0] == 1 ? stem_run_phase<T, geometry<3, 1>>(p)
                             : stem_run_phase<T, geometry<3, 2>>(p);
}

static enum status stem_run(const struct call *call, const struct kernel_plan *plan)
{
    (void)plan;
    const struct conv_call p = conv_call_of(call);
    return with_type(p.dtype, [&](auto type) { return stem_run_type<decltype(type)>(&p); });
}

#define CAPABILITY 80                    /* that these instructions require */

static bool stem_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    return conv_is_usual(call) && is_ours(&p) && cuda_facts(call->device)->capability >= CAPABILITY;
}

static bool stem_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    plan->workspace = blocks_across(&p, cuda_facts(call->device)->multiprocessors) * share_bytes(&p);
    plan->epilogues = AS_BIT(EPILOGUE_MOMENTS) | AS_BIT(EPILOGUE_RELU);
    return true;
}

const struct algorithm conv_by_stem = {
    .name = "stem", .supports = stem_supports, .make = stem_make, .run = stem_run,
};
