/* conv_stem.cu: the first layer of networks: 3 channels, kernel 3, or 7 with a stride of 2, in 16 bits and
 * in tf32.
 *
 * With so few channels, a pixel has only a few bytes, which cuDNN's engines for many channels read badly.
 * Here a block copies the patch of x under 16 x 16 outputs to shared memory, where the factors of one
 * kernel row are contiguous for every output, so that tensor cores read them from the patch as it is.
 * Kernel rows are padded to whole chunks of 8 products, with weights of zero. */
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

static int tile_count(const struct conv_sizes *p)
{
    return p->n * div_up(p->out[0], TILE) * div_up(p->out[1], TILE);
}

/* A warp loads every eighth row of a tile's patch; elements outside the image are zero. All loads are issued
 * before the first result is used. */
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
    int top = t.p * size::stride - g.pad[0], left = t.q * size::shift - g.pad[1] * CHANNELS;
    int wide = g.in[1] * CHANNELS;
#pragma unroll
    for (int k = 0; k < part.rows; k++) {
        int h = top + k * WARPS + threadIdx.x / 32;
        const T *from = x + (t.n * g.in[0] + h) * wide + left;
        bool inside = h >= 0 && h < g.in[0];
#pragma unroll
        for (int i = 0; i < part.steps; i++) {
            int at = i * 32 + threadIdx.x % 32;
            bool real = inside && at < size::line && left + at >= 0 && left + at < wide;
            part.value[k][i] = real ? __ldg(from + at) : from_float<T>(0.0f);
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
            if (row < size::side && at < size::pitch) put(row, at, part.value[k][i]);
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

/* Shared memory of the forward kernel: weights in the order of tensor cores, [turn][two groups of 8
 * filters][lane]; the patch, and, where pairs of elements are read but outputs are an odd number of elements
 * apart, a copy of it from its second element on, so that all pairs are aligned to four bytes; a staging area
 * for 16 outputs of each warp, whose lines spread over the banks. */
template <class T, class size, int filters> struct forward_memory {
    static constexpr int copies = sizeof(T) == 2 && size::shift % 2 ? 2 : 1;
    static constexpr int turns = size::template turns<T>;
    uint4 weight[turns][filters / 16][32];
    T patch[copies][(size::side * size::pitch + 7) / 8 * 8];
    T staged[WARPS][TILE][filters + pack<T>::count];
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
        int k = turn * 8 * each + lane % 4 * each, f = group * 16 + lane / 4;
        auto word = [&](int filter, int at) { return weight_word<T, size>(weight, filter, at); };
        memory->weight[turn][group][lane] =
            make_uint4(word(f, k), word(f, k + 4 * each), word(f + 8, k), word(f + 8, k + 4 * each));
    }
}

/* A warp computes two rows of 16 outputs for all of the block's filters. */
template <class T, class size, int filters>
__device__ static inline void multiply_rows(const forward_memory<T, size, filters> *memory,
                                            float sum[2][filters / 8][4])
{
    constexpr int each = at_once<T>;
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 2, first = lane / 4 * apart<T> * size::shift;
    int odd = first % memory->copies;
    const T *patch =
        memory->patch[odd] + row * size::stride * size::pitch + first - odd + lane % 4 * each;
#pragma unroll
    for (int turn = 0; turn < memory->turns; turn++) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int part = 0; part < 4; part++) {
                int product = size::offset(each * turn + part / 2 * (each - 1)) + part / 2 * (2 - each) * 4;
                a[i][part] = *(const uint32_t *)(patch + i * size::stride * size::pitch +
                                                 part % 2 * beyond<T> * size::shift + product);
            }
#pragma unroll
        for (int group = 0; group < filters / 16; group++) {
            uint4 w = memory->weight[turn][group][lane];
            uint32_t b[2][2] = {{w.x, w.y}, {w.z, w.w}};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                multiply(sum[i][2 * group], a[i], b[0][0], b[0][1], T());
                multiply(sum[i][2 * group + 1], a[i], b[1][0], b[1][1], T());
            }
        }
    }
}

/* The destination of a row of 16 outputs: `count` of them are inside the image, `k` numbers apart. */
template <class T> struct output_row {
    T *y;
    int count, k;
    const T *bias;             /* of these filters, or NULL */
    bool relu;                 /* after the bias */
    __device__ void put(T *to, float low, float high) const
    {
        *(chunk<T, 2> *)to = {from_float<T>(relu && low <= 0 ? 0 : low),
                              from_float<T>(relu && high <= 0 ? 0 : high)};
    }
};

/* Writes a warp's row of 16 outputs to memory in whole lines; with `summed`, adds the stored numbers to the
 * lane's sums. */
template <class T, int filters>
__device__ static inline void store_row(T (*staged)[filters + pack<T>::count],
                                        const float sum[filters / 8][4], const output_row<T> &row,
                                        float total[2][filters / 32], bool summed)
{
    constexpr int width = pack<T>::count, parts = filters / width;
    const T *bias = row.bias;
    int lane = threadIdx.x % 32, output = lane / 4 * apart<T>;
#pragma unroll
    for (int group = 0; group < filters / 8; group++) {
        int f = group * 8 + lane % 4 * 2;
        float low = bias ? to_float(bias[f]) : 0, high = bias ? to_float(bias[f + 1]) : 0;
        row.put(&staged[output][f], sum[group][0] + low, sum[group][1] + high);
        row.put(&staged[output + beyond<T>][f], sum[group][2] + low, sum[group][3] + high);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < TILE * parts / 32; i++) {
        int at = i * 32 + lane, pixel = at / parts, f = at % parts * width;
        if (pixel < row.count)
            *(uint4 *)(row.y + (int64_t)pixel * row.k + f) = *(const uint4 *)&staged[pixel][f];
    }
    for (int pixel = 0; summed && pixel < row.count; pixel++)
#pragma unroll
        for (int i = 0; i < filters / 32; i++) {
            float value = to_float(staged[pixel][i * 32 + lane]);
            total[0][i] += value;
            total[1][i] += value * value;
        }
    __syncwarp();
}

/* If `shares` is not NULL, each block writes its sums of y and of its squares there: [blockIdx.x][sums,
 * squares][k]. bias may be NULL. */
template <class T> struct stem_operands {
    T *y;
    const T *x, *weight, *bias;
    int tiles;
    float *shares;
    bool relu;
};

/* A block computes `filters` filters, from blockIdx.y * filters on, for every gridDim.x'th tile. */
template <class T, class size, int filters>
__global__ void __launch_bounds__(THREADS, 2)
    stem_forward_kernel(struct conv_sizes g, stem_operands<T> o)
{
    extern __shared__ uint4 shared[];
    auto *memory = (forward_memory<T, size, filters> *)shared;
    int first = blockIdx.y * filters, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float total[2][filters / 32] = {};
    load_weights<T, size, filters>(memory, o.weight + (int64_t)first * size::kernel * size::row);
    for (int index = blockIdx.x; index < o.tiles; index += gridDim.x) {
        struct tile t = tile_at(g, index);
        auto part = read_patch<T, size>(g, t, o.x);
        __syncthreads();
        write_patch<T, size>(part, [&](int row, int at, T value) {
            memory->patch[0][row * size::pitch + at] = factor_of(value);
            if (memory->copies > 1 && at > 0)
                memory->patch[memory->copies - 1][row * size::pitch + at - 1] = value;
        });
        __syncthreads();
        float sum[2][filters / 8][4] = {};
        multiply_rows<T, size, filters>(memory, sum);
        int count = g.out[1] - t.q < TILE ? g.out[1] - t.q : TILE;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int p = t.p + warp * 2 + i;
            if (p >= g.out[0]) continue;
            T *to = o.y + ((t.n * g.out[0] + p) * g.out[1] + t.q) * g.k + first;
            output_row<T> row = {to, count, g.k, o.bias ? o.bias + first : NULL, o.relu};
            store_row<T, filters>(memory->staged[warp], sum[i], row, total, o.shares != NULL);
        }
    }
    if (!o.shares) return;
    __syncthreads();
    float *sums = (float *)memory->patch;              /* [WARPS][2][filters] */
#pragma unroll
    for (int i = 0; i < filters / 32; i++) {
        sums[(warp * 2 + 0) * filters + i * 32 + lane] = total[0][i];
        sums[(warp * 2 + 1) * filters + i * 32 + lane] = total[1][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * filters; i += THREADS) {
        float all = 0;
        for (int w = 0; w < WARPS; w++) all += sums[w * 2 * filters + i];
        o.shares[((int64_t)blockIdx.x * 2 + i / filters) * g.k + first + i % filters] = all;
    }
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
                                 (const T *)conv_bias(call), tile_count(p), shares,
                                 conv_applies_relu(call)};
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
