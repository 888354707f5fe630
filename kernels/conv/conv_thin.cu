/* conv_thin.cu: "thin": the gradient of the weights of 1x1 convolutions to few filters, in which networks
 * end that label pixels: d_y' x, in 16 bits. The rows of d_y are of any length, such as 21 numbers, which
 * libraries copy to a wider tensor, or read badly.
 *
 * A block takes tiles of 64 pixels in turn, and loads the next one while it multiplies; each of its warps
 * multiplies 16 of the pixels on tensor cores. What all blocks have is added up in a fixed order. */
#include "kernels/conv/conv_cuda.cuh"
#include "kernels/linear/matrices.cuh"

#define WARPS 4
#define THREADS (32 * WARPS)
#define PIXELS (16 * WARPS)              /* of a tile */
#define FILTERS 32                       /* at most */

using namespace matrices;

/* Tiles of x and d_y, two of each. The sums of all warps take their place. */
template <class T, int columns> struct thin_memory {
    union {
        struct {
            uint4 x[2][PIXELS * pitch<columns>()];
            uint4 y[2][PIXELS * FILTERS / 8];
        };
        float sums[FILTERS][columns];
    };
};

template <class T> struct thin_operands {
    const T *x, *d_y;                    /* [pixels, c], [pixels, k] */
    float *shares;                       /* [blocks, k, c] */
    int64_t pixels;
    int c, k;
};

template <class T, int columns>
__device__ static inline void load_tile(thin_memory<T, columns> &memory, int stage,
                                        const thin_operands<T> &p, int64_t first)
{
    constexpr int units = columns / 8;
    for (int i = threadIdx.x; i < PIXELS * units; i += THREADS) {
        bool here = first + i / units < p.pixels;
        const T *from = p.x + (here ? (first + i / units) * p.c + blockIdx.y * columns + i % units * 8 : 0);
        copy_unit(&memory.x[stage][unit_of<columns>(i / units, i % units)], from, here);
    }
    for (int i = threadIdx.x; i < PIXELS * p.k / 8; i += THREADS) {
        int64_t at = first * p.k + i * 8;
        bool here = at < p.pixels * p.k;
        copy_unit(&memory.y[stage][i], p.d_y + (here ? at : 0), here);
    }
}

/* The numbers of a filter for two pixels, which lie k apart. Those of filters beyond k are any. */
template <class T> __device__ static inline uint32_t two_pixels(const T *at, int k)
{
    uint16_t low, high;
    memcpy(&low, at, 2);
    memcpy(&high, at + k, 2);
    return low | (uint32_t)high << 16;
}

template <class T, int columns>
__device__ static inline void multiply_tile(const thin_memory<T, columns> &memory, int stage, int k,
                                            float (&d)[FILTERS / 16][columns / 8][4])
{
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    const T *y = (const T *)memory.y[stage] + (row + lane % 4 * 2) * k + lane / 4;
    uint32_t a[FILTERS / 16][4];
#pragma unroll
    for (int half = 0; half < FILTERS / 16; half++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[half][i] = two_pixels(y + i / 2 * 8 * k + half * 16 + i % 2 * 8, k);
#pragma unroll
    for (int pair = 0; pair < columns / 16; pair++) {
        uint32_t b[4];
        load_turned(b, address_of(&memory.x[stage][unit_of<columns>(row + lane % 16, pair * 2 + lane / 16)]));
#pragma unroll
        for (int half = 0; half < FILTERS / 16; half++) {
            multiply(d[half][2 * pair], a[half], b[0], b[1], T());
            multiply(d[half][2 * pair + 1], a[half], b[2], b[3], T());
        }
    }
}

/* Adds up what the warps have, one after another, and leaves it as the block's share. */
template <class T, int columns>
__device__ static inline void leave_share(thin_memory<T, columns> &memory, const thin_operands<T> &p,
                                          const float (&d)[FILTERS / 16][columns / 8][4])
{
    int lane = threadIdx.x % 32;
    for (int warp = 0; warp < WARPS; warp++) {
        __syncthreads();
        if (threadIdx.x / 32 != warp) continue;
#pragma unroll
        for (int i = 0; i < FILTERS / 16 * columns / 8 * 4; i++) {
            int half = i / (columns / 2), group = i / 4 % (columns / 8), part = i % 4;
            int row = half * 16 + part / 2 * 8 + lane / 4, column = group * 8 + lane % 4 * 2 + part % 2;
            memory.sums[row][column] = d[half][group][part] + (warp > 0 ? memory.sums[row][column] : 0);
        }
    }
    __syncthreads();
    float *share = p.shares + (int64_t)blockIdx.x * p.k * p.c + blockIdx.y * columns;
    for (int i = threadIdx.x; i < p.k * columns; i += THREADS)
        share[(int64_t)(i / columns) * p.c + i % columns] = memory.sums[i / columns][i % columns];
}

template <class T, int columns>
__global__ void __launch_bounds__(THREADS) conv_thin_kernel(const thin_operands<T> p)
{
    __shared__ thin_memory<T, columns> memory;
    float d[FILTERS / 16][columns / 8][4] = {};
    int64_t first = (int64_t)blockIdx.x * PIXELS, step = (int64_t)gridDim.x * PIXELS;
    int stage = 0;
    load_tile(memory, stage, p, first);
    for (; first < p.pixels; first += step, stage ^= 1) {
        copies_wait();
        __syncthreads();
        if (first + step < p.pixels) load_tile(memory, stage ^ 1, p, first + step);
        multiply_tile(memory, stage, p.k, d);
    }
    leave_share(memory, p, d);
}

static int64_t pixels_of(const struct conv_call *p)
{
    return (int64_t)p->n * p->in[0] * p->in[1];
}

static int blocks_of(const struct conv_call *p)
{
    int64_t tiles = div_up(pixels_of(p), (int64_t)PIXELS);
    int64_t most = 4 * cuda_facts(p->call->device)->multiprocessors;
    return (int)(tiles < most ? tiles : most);
}

template <class T, int columns> static enum status thin_run_columns(const struct conv_call *p)
{
    const struct call *call = p->call;
    const thin_operands<T> operands = {(const T *)conv_x(call), (const T *)conv_y(call),
                                         (float *)call->workspace, pixels_of(p), p->c, p->k};
    dim3 grid((unsigned)blocks_of(p), (unsigned)(p->c / columns));
    conv_thin_kernel<T, columns><<<grid, THREADS, 0, stream_of(call)>>>(operands);
    TRY(launched(call));
    return channel_sum_shares(call, (float *)conv_weight(call), operands.shares, blocks_of(p), p->k * p->c);
}

template <class T> static enum status thin_run_type(const struct conv_call *p)
{
    return p->c % 64 == 0 ? thin_run_columns<T, 64>(p) : thin_run_columns<T, 32>(p);
}

static enum status thin_run(const struct call *call, const struct kernel_plan *plan)
{
    (void)plan;
    const struct conv_call p = conv_call_of(call);
    return p.dtype == F16 ? thin_run_type<__half>(&p) : thin_run_type<__nv_bfloat16>(&p);
}

#define CAPABILITY 80                    /* that these instructions require */

static bool thin_supports(const struct call *call)
{
    const struct conv_call p = conv_call_of(call);
    bool product = p.groups == 1, thin = p.k <= FILTERS && p.c % 32 == 0 && pixels_of(&p) % 8 == 0;
    for (int i = 0; i < 2; i++) product = product && p.kernel[i] == 1 && p.stride[i] == 1 && p.pad[i] == 0;
    return call->phase == PHASE_BACKWARD_PARAMS && product && thin && (p.dtype == F16 || p.dtype == BF16) &&
           cuda_facts(call->device)->capability >= CAPABILITY;
}

static bool thin_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    plan->workspace = (size_t)blocks_of(&p) * p.k * p.c * sizeof(float);
    return true;
}

const struct algorithm conv_by_thin = {
    .name = "thin", .supports = thin_supports, .make = thin_make, .run = thin_run,
};
