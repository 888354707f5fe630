/* conv_stem.cu: the first layer of networks: 3 channels, kernel 3, or 7 with a stride of 2, in 16 bits.
 *
 * With so few channels the images are read at a pixel's two or six bytes a step, which engines made for many
 * channels do badly. Here a block copies the patch of x under 16 x 16 outputs into shared memory. There the
 * products of one kernel row are neighbours in memory for every output, so that tensor cores are fed from the
 * patch as it is. Kernel rows are padded to whole chunks of 8 products, with weights of zero. */
#include "kernels/conv_cuda.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define CHANNELS 3
#define TILE 16                          /* outputs along h and w of a block's tile */

/* Sizes for one kernel size and stride. */
template <int kernel_size, int pixels> struct geometry {
    static constexpr int kernel = kernel_size, stride = pixels;
    static constexpr int row = kernel * CHANNELS;                      /* products of a kernel row */
    static constexpr int shift = stride * CHANNELS;                    /* elements of x between outputs */
    static constexpr int row_chunks = (row + 7) / 8;                   /* chunks of them */
    static constexpr int chunks = (row_chunks * kernel + 1) / 2 * 2;   /* of all rows, in pairs */
    static constexpr int steps = chunks / 2;                           /* of 16 products */
    static constexpr int side = (TILE - 1) * stride + kernel;          /* pixels along h and w of a patch */
    static constexpr int line = side * CHANNELS;                       /* elements in one row of a patch */
    static constexpr int pitch =
        (shift * (TILE - 1) + row_chunks * 8 + 1) / 2 * 2; /* with what chunks read beyond */
    /* Where a chunk's products begin in the patch of the first output. What pads the last pair reads the
     * first chunk again, for weights of zero. */
    static __host__ __device__ constexpr int offset(int chunk)
    {
        return chunk < row_chunks * kernel ? chunk / row_chunks * pitch + chunk % row_chunks * 8 : 0;
    }
};

/* The patch of x and the outputs that a tile is about. */
struct tile {
    int64_t n;
    int p, q;
};

__device__ static inline struct tile tile_at(const struct conv_problem &g, int index)
{
    int across = (g.out[1] + TILE - 1) / TILE, down = (g.out[0] + TILE - 1) / TILE;
    return {index / (across * down), index / across % down * TILE, index % across * TILE};
}

static int tile_count(const struct conv_problem *p)
{
    return p->n * div_up(p->out[0], TILE) * div_up(p->out[1], TILE);
}

/* A warp reads every eighth row of a tile's patch; outside the image elements are zero. All of it is asked
 * for before the first is waited for. */
template <class T, class size> struct patch_part {
    static constexpr int rows = (size::side + WARPS - 1) / WARPS;
    static constexpr int steps = (size::pitch + 31) / 32;
    T value[rows][steps];
};

template <class T, class size>
__device__ static inline patch_part<T, size> read_patch(const struct conv_problem &g, const struct tile &t,
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

/* Calls put(row, place in the row, element) for what the warp has read. */
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

/* d += a * b for 16 x 16 by 16 x 8 elements of two bytes, each warp. */
template <class T>
__device__ static inline void multiply(float d[4], const uint32_t a[4], const uint32_t b[2]);

template <> __device__ inline void multiply<__half>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

template <>
__device__ inline void multiply<__nv_bfloat16>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

template <class T> __device__ static inline uint32_t both(T low, T high)
{
    uint16_t bits[2];
    memcpy(&bits[0], &low, 2);
    memcpy(&bits[1], &high, 2);
    return bits[0] | (uint32_t)bits[1] << 16;
}

/* Product `k` of filter `f`, as chunks count products. */
template <class T, class size> __device__ static inline T weight_of(const T *weight, int f, int k)
{
    int r = k / (8 * size::row_chunks), at = k % (8 * size::row_chunks);
    bool real = r < size::kernel && at < size::row;
    return real ? weight[(f * size::kernel + r) * size::row + at] : from_float<T>(0.0f);
}

/* Shared memory of the forward kernel: weights as tensor cores take them, [step][two groups of 8
 * filters][lane]; the patch, and where outputs are an odd number of elements apart, once more from its second
 * element on, so that pairs of elements are read at multiples of four bytes; a staging place for 16 outputs of
 * each warp, with lines that spread over the banks. */
template <class T, class size, int filters> struct forward_memory {
    uint4 weight[size::steps][filters / 16][32];
    T patch[size::shift % 2 + 1][(size::side * size::pitch + 7) / 8 * 8];
    T staged[WARPS][TILE][filters + 8];
};

template <class T, class size, int filters>
__device__ static inline void load_weights(forward_memory<T, size, filters> *memory, const T *weight)
{
    constexpr int groups = filters / 16, count = size::steps * groups * 32;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        int lane = i % 32, group = i / 32 % groups, step = i / 32 / groups;
        int k = step * 16 + lane % 4 * 2, f = group * 16 + lane / 4;
        auto pair = [&](int filter, int at) {
            return both(weight_of<T, size>(weight, filter, at),
                        weight_of<T, size>(weight, filter, at + 1));
        };
        memory->weight[step][group][lane] =
            make_uint4(pair(f, k), pair(f, k + 8), pair(f + 8, k), pair(f + 8, k + 8));
    }
}

/* A warp multiplies two rows of 16 outputs with all the block's filters. */
template <class T, class size, int filters>
__device__ static inline void multiply_rows(const forward_memory<T, size, filters> *memory,
                                            float sum[2][filters / 8][4])
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 2;
    int odd = lane / 4 * size::shift % 2;
    const T *patch = memory->patch[odd] + row * size::stride * size::pitch + lane / 4 * size::shift - odd +
                     lane % 4 * 2;
#pragma unroll
    for (int step = 0; step < size::steps; step++) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int part = 0; part < 4; part++)
                a[i][part] = *(const uint32_t *)(patch + i * size::stride * size::pitch +
                                                 part % 2 * 8 * size::shift +
                                                 size::offset(2 * step + part / 2));
#pragma unroll
        for (int group = 0; group < filters / 16; group++) {
            uint4 w = memory->weight[step][group][lane];
            uint32_t b[2][2] = {{w.x, w.y}, {w.z, w.w}};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                multiply<T>(sum[i][2 * group], a[i], b[0]);
                multiply<T>(sum[i][2 * group + 1], a[i], b[1]);
            }
        }
    }
}

/* Where one row of 16 outputs goes: `count` of them lie inside the image, `k` numbers apart. */
template <class T> struct output_row {
    T *y;
    int count, k;
    const T *bias;             /* of these filters, or NULL */
    bool relu;                 /* behind the bias */
    __device__ uint32_t pair(float low, float high) const
    {
        return both(from_float<T>(relu && low <= 0 ? 0 : low), from_float<T>(relu && high <= 0 ? 0 : high));
    }
};

/* One row of 16 outputs of a warp to memory, in whole lines; with `summed`, adds the stored numbers to the
 * lane's sums. */
template <class T, int filters>
__device__ static inline void store_row(T (*staged)[filters + 8], const float sum[filters / 8][4],
                                        const output_row<T> &row, float total[2][filters / 32], bool summed)
{
    const T *bias = row.bias;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int group = 0; group < filters / 8; group++) {
        int f = group * 8 + lane % 4 * 2;
        float low = bias ? to_float(bias[f]) : 0, high = bias ? to_float(bias[f + 1]) : 0;
        *(uint32_t *)&staged[lane / 4][f] = row.pair(sum[group][0] + low, sum[group][1] + high);
        *(uint32_t *)&staged[lane / 4 + 8][f] = row.pair(sum[group][2] + low, sum[group][3] + high);
    }
    __syncwarp();
    constexpr int parts = filters / 8;
#pragma unroll
    for (int i = 0; i < TILE * parts / 32; i++) {
        int at = i * 32 + lane, pixel = at / parts, part = at % parts;
        if (pixel < row.count)
            *(uint4 *)(row.y + (int64_t)pixel * row.k + part * 8) = *(const uint4 *)&staged[pixel][part * 8];
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

/* Where `shares` is not NULL it gets each block's sums of y and of its squares, [blockIdx.x][sums,
 * squares][k]. bias may be NULL. */
template <class T> struct stem_operands {
    T *y;
    const T *x, *weight, *bias;
    int tiles;
    float *shares;
};

/* Blocks take `filters` filters from blockIdx.y * filters on, and tiles in turn. */
template <class T, class size, int filters>
__global__ void __launch_bounds__(THREADS, 2)
    stem_forward_kernel(struct conv_problem g, stem_operands<T> o)
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
            memory->patch[0][row * size::pitch + at] = value;
            if (size::shift % 2 && at > 0) memory->patch[size::shift % 2][row * size::pitch + at - 1] = value;
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
            output_row<T> row = {to, count, g.k, o.bias ? o.bias + first : NULL, g.relu};
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

/* Shared memory of the weights' gradient: pairs[i] is the patch's elements i and i + size::shift, which two
 * neighbouring outputs multiply with the same weight; and d_y of the tile. */
template <class T, class size, int filters> struct params_memory {
    uint32_t pairs[(size::side * size::pitch + 3) / 4 * 4];
    T d_y[TILE * TILE][filters + 8];
};

/* A thread's share of a tile of d_y, in parts of 16 bytes. */
template <int filters> struct d_y_part {
    static constexpr int parts = filters / 8, steps = TILE * TILE * parts / THREADS;
    uint4 value[steps];
};

template <class T, int filters>
__device__ static inline d_y_part<filters> read_d_y(const struct conv_problem &g, const struct tile &t,
                                                    const T *d_y)
{
    d_y_part<filters> part;
#pragma unroll
    for (int i = 0; i < part.steps; i++) {
        int at = i * THREADS + threadIdx.x, pixel = at / part.parts, f = at % part.parts * 8;
        int p = t.p + pixel / TILE, q = t.q + pixel % TILE;
        bool inside = p < g.out[0] && q < g.out[1];
        part.value[i] = {};
        if (inside)
            part.value[i] = __ldg((const uint4 *)(d_y + ((t.n * g.out[0] + p) * g.out[1] + q) * g.k + f));
    }
    return part;
}

template <class T, int filters>
__device__ static inline void write_d_y(const d_y_part<filters> &part, T (*to)[filters + 8])
{
#pragma unroll
    for (int i = 0; i < part.steps; i++) {
        int at = i * THREADS + threadIdx.x;
        *(uint4 *)&to[at / part.parts][at % part.parts * 8] = part.value[i];
    }
}

/* Four 8 x 8 matrices of two bytes, transposed; each lane names one of their lines. */
__device__ static inline void load_transposed(uint32_t to[4], const void *line)
{
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned)__cvta_generic_to_shared(line)));
#endif
}

/* d_weight = patches (products x outputs) * d_y (outputs x filters). Warps split products in 4 and filters in
 * 2, and each goes over all outputs of a tile, a row of 16 at a step. Which output is which index of the sum
 * does not matter as long as both sides agree: lane quarter j takes outputs 4j .. 4j + 3, so that the lanes'
 * addresses in `pairs` fall into different banks. shares[blockIdx.x][k][kernel][kernel][channel]. */
template <class T, class size, int filters>
__global__ void __launch_bounds__(THREADS, 2)
    stem_params_kernel(struct conv_problem g, float *shares, const T *x, const T *d_y, int tiles)
{
    constexpr int parts = (size::steps + 3) / 4, groups = filters / 16;
    extern __shared__ uint4 shared[];
    auto *memory = (params_memory<T, size, filters> *)shared;
    int first = blockIdx.y * filters, lane = threadIdx.x % 32, split = threadIdx.x / 32 % 4,
        half = threadIdx.x / 128;
    float sum[parts][groups][4] = {};
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
        struct tile t = tile_at(g, index);
        auto part = read_patch<T, size>(g, t, x);
        auto rows = read_d_y<T, filters>(g, t, d_y + first);
        __syncthreads();
        T *patch = (T *)memory->pairs;
        write_patch<T, size>(part, [&](int row, int at, T value) {
            T *line = patch + 2 * row * size::pitch;
            line[2 * at] = value;
            if (at >= size::shift) line[2 * (at - size::shift) + 1] = value;
            else line[2 * (size::pitch - size::shift + at) + 1] = from_float<T>(0.0f);
        });
        write_d_y<T, filters>(rows, memory->d_y);
        __syncthreads();
#pragma unroll 2
        for (int row = 0; row < TILE; row++) {
            uint32_t b[groups][2];
#pragma unroll
            for (int group = 0; group < groups; group += 2) {
                /* Lines of the four matrices: lower and upper outputs, of filters f and of f + 8. */
                int which = lane / 8, index = lane % 8, upper = which % 2;
                int output = index / 2 * 4 + index % 2 + 2 * upper;
                int f = half * (filters / 2) + group * 8 + which / 2 * 8;
                uint32_t got[4];
                load_transposed(got, &memory->d_y[row * TILE + output][f]);
                b[group][0] = got[0];
                b[group][1] = got[1];
                b[group + 1][0] = got[2];
                b[group + 1][1] = got[3];
            }
            const uint32_t *line =
                memory->pairs + row * size::stride * size::pitch + lane / 4 + lane % 4 * 4 * size::shift;
#pragma unroll
            for (int part = 0; part < parts; part++) {
                int step = split * parts + part;
                if (step >= size::steps) continue;
                int low = size::offset(2 * step), high = size::offset(2 * step + 1);
                uint32_t a[4] = {line[low], line[high], line[low + 2 * size::shift],
                                 line[high + 2 * size::shift]};
#pragma unroll
                for (int group = 0; group < groups; group++) multiply<T>(sum[part][group], a, b[group]);
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

static bool is_ours(const struct conv_problem *p)
{
    int kernel = p->kernel[0], stride = p->stride[0];
    if (p->dtype == F32 || p->c != CHANNELS || p->groups != 1 || p->k % 32 != 0 ||
        p->phase == PHASE_BACKWARD_DATA)
        return false;
    if (kernel == 3 ? stride != 1 && stride != 2 : kernel != 7 || stride != 2) return false;
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != kernel || p->stride[i] != stride || p->dilation[i] != 1) return false;
    return true;
}

/* Filters of one block. */
static int block_filters(const struct conv_problem *p)
{
    return p->k % 64 == 0 ? 64 : 32;
}

/* Two blocks share a multiprocessor, and take tiles in turn. */
static unsigned blocks_across(const struct conv_problem *p, int multiprocessors)
{
    int tiles = tile_count(p), most = 2 * multiprocessors;
    return (unsigned)(tiles < most ? tiles : most);
}

static size_t share_bytes(const struct conv_problem *p)
{
    if (p->phase == PHASE_BACKWARD_PARAMS)
        return (size_t)p->k * p->kernel[0] * p->kernel[1] * CHANNELS * sizeof(float);
    return p->sums ? (size_t)p->k * 2 * sizeof(float) : 0;
}

template <class Kernel> static enum status allow_memory(const struct call *call, Kernel kernel, size_t bytes)
{
    return cuda_status(call->device,
                       cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                       "asking for shared memory");
}

template <class T, class size, int filters>
static enum status stem_run_forward(const struct conv_problem *p, const struct call *call, dim3 grid)
{
    struct conv_operands at = conv_operands(call);
    size_t bytes = sizeof(forward_memory<T, size, filters>);
    float *shares = p->sums ? (float *)call->workspace : NULL;
    auto code = stem_forward_kernel<T, size, filters>;
    TRY(allow_memory(call, code, bytes));
    stem_operands<T> operands = {(T *)at.y, (const T *)at.x, (const T *)at.weight,
                                 p->bias ? (const T *)at.bias : NULL, tile_count(p), shares};
    code<<<grid, THREADS, bytes, stream_of(call)>>>(*p, operands);
    TRY(launched(call));
    return p->sums ? conv_sum_shares(call, (float *)call->sums.data, shares, (int)grid.x, 2 * p->k) : OK;
}

template <class T, class size, int filters>
static enum status stem_run_params(const struct conv_problem *p, const struct call *call, dim3 grid)
{
    struct conv_operands at = conv_operands(call);
    size_t bytes = sizeof(params_memory<T, size, filters>);
    float *shares = (float *)call->workspace;
    auto code = stem_params_kernel<T, size, filters>;
    TRY(allow_memory(call, code, bytes));
    code<<<grid, THREADS, bytes, stream_of(call)>>>(*p, shares, (const T *)at.x, (const T *)at.y,
                                                    tile_count(p));
    TRY(launched(call));
    return conv_sum_shares(call, (float *)at.weight, shares, (int)grid.x, p->k * size::kernel * size::row);
}

template <class T, class size>
static enum status stem_run_phase(const struct conv_problem *p, const struct call *call)
{
    int filters = block_filters(p);
    dim3 grid(blocks_across(p, cuda_facts(call->device)->multiprocessors), (unsigned)(p->k / filters));
    if (p->phase == PHASE_FORWARD)
        return filters == 64 ? stem_run_forward<T, size, 64>(p, call, grid)
                             : stem_run_forward<T, size, 32>(p, call, grid);
    return filters == 64 ? stem_run_params<T, size, 64>(p, call, grid)
                         : stem_run_params<T, size, 32>(p, call, grid);
}

template <class T> static enum status stem_run_type(const struct conv_problem *p, const struct call *call)
{
    if (p->kernel[0] == 7) return stem_run_phase<T, geometry<7, 2>>(p, call);
    return p->stride[0] == 1 ? stem_run_phase<T, geometry<3, 1>>(p, call)
                             : stem_run_phase<T, geometry<3, 2>>(p, call);
}

static enum status stem_run(const struct conv_plan *plan, const struct call *call,
                            const struct conv_tools *tools)
{
    (void)tools;
    const struct conv_problem *p = &plan->problem;
    return p->dtype == F16 ? stem_run_type<__half>(p, call) : stem_run_type<__nv_bfloat16>(p, call);
}

#define CAPABILITY 80                    /* that these products take */

static int stem_candidates(const struct conv_problem *problem, const struct conv_tools *tools, int most,
                           char names[][CANDIDATE_NAME])
{
    if (most < 1 || !is_ours(problem) || cuda_facts(tools->device)->capability < CAPABILITY) return 0;
    snprintf(names[0], CANDIDATE_NAME, "stem");
    return 1;
}

static bool stem_make(struct conv_plan *plan, const struct conv_tools *tools)
{
    const struct conv_problem *p = &plan->problem;
    const struct cuda_facts *facts = cuda_facts(tools->device);
    if (!is_ours(p) || facts->capability < CAPABILITY) return false;
    plan->workspace = blocks_across(p, facts->multiprocessors) * share_bytes(p);
    plan->gives_sums = p->sums;
    plan->applies_relu = p->relu;
    return true;
}

static void stem_release(struct conv_plan *plan)
{
    (void)plan;
}

const struct conv_algorithm conv_by_stem = {
    .name = "stem",
    .candidates = stem_candidates,
    .make = stem_make,
    .release = stem_release,
    .run = stem_run,
};
