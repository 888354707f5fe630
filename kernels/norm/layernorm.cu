/* layernorm.cu: each pixel is processed by a group of lanes of a warp, and is kept in registers. Blocks leave
 * their sums for the gradients of weight and bias in the workspace. Pixels that do not fit into registers, or
 * are not a whole number of chunks, are read again in each step. */
#include "kernels/support/block.cuh"
#include "kernels/support/columns.cuh"

extern "C" {
#include "kernels/norm/layernorm.h"
}

#define THREADS 256
#define WARPS (THREADS / 32)
#define BLOCKS_MAX 512       /* of backward */
#define PER_MAX 8            /* chunks of a lane */

struct layernorm_layout {
    int64_t pixels;
    int channels, lanes;       /* lanes that share a pixel: a power of two */
    int more_channels;         /* of what is added, the first of which are */
    float eps;
    bool measures;             /* statistics are computed, else they are known */
};

/* Statistics by pixel; NULL if not wanted. */
struct layernorm_statistics {
    float *mean, *invstd;
};

__device__ static inline float sum_lanes(float value, int lanes)
{
    return warp_reduce(value, [](float a, float b) { return a + b; }, lanes);
}

/* A lane's position: its first chunk of a pixel, and the first pixel of its warp. */
struct layernorm_place {
    int lane;
    int64_t pixel, step;
};

__device__ static inline layernorm_place place_of(const struct layernorm_layout &l)
{
    int of_warp = 32 / l.lanes, in_warp = threadIdx.x % 32;
    int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    return {in_warp % l.lanes, warp * of_warp + in_warp / l.lanes, (int64_t)gridDim.x * WARPS * of_warp};
}

/* The chunks of a lane: chunk k begins at channel at(k), if there is one. */
template <int width, int per> struct layernorm_lane {
    int lane, lanes, channels;
    __device__ int at(int k) const { return (lane + k * lanes) * width; }
    __device__ bool has(int k) const { return at(k) < channels; }
};

/* A pixel's chunks; zeros if it is not there. */
template <class T, int width, int per>
__device__ static inline void load_pixel(chunk<T, width> (&to)[per], const T *from, bool here,
                                         const layernorm_lane<width, per> &lane)
{
#pragma unroll
    for (int k = 0; k < per; k++)
        if (here && lane.has(k)) to[k] = *(const chunk<T, width> *)(from + lane.at(k));
        else to[k] = {};
}

template <class T, int width, int per>
__device__ static inline void widen(float (&to)[per][width], const chunk<T, width> (&from)[per])
{
#pragma unroll
    for (int k = 0; k < per; k++)
#pragma unroll
        for (int e = 0; e < width; e++) to[k][e] = to_float(from[k].at[e]);
}

/* An element of y: the same bits in forward, recompute and backward. */
template <class T>
__device__ static inline T normalised(T x, float mean, float invstd, float weight, float bias)
{
    return from_float<T>(fmaf(__fmul_rn(__fsub_rn(to_float(x), mean), invstd), weight, bias));
}

/* Where channel c lies in shared memory: words of 16 bytes that lanes read at once are neighbours. */
template <int width> __device__ static inline int place_in_room(int c, int lanes)
{
    constexpr int word = width % 4 == 0 ? 4 : 1;
    int chunk_of = c / width, part = c % width / word;
    return ((chunk_of / lanes * (width / word) + part) * lanes + chunk_of % lanes) * word + c % word;
}

template <int width, int per>
__device__ static inline chunk<float, width> load_room(const float *room, int k,
                                                       const layernorm_lane<width, per> &lane)
{
    constexpr int word = width % 4 == 0 ? 4 : 1, words = width / word;
    chunk<float, width> to;
#pragma unroll
    for (int part = 0; part < words; part++)
        *(chunk<float, word> *)(to.at + part * word) =
            *(const chunk<float, word> *)(room + ((k * words + part) * lane.lanes + lane.lane) * word);
    return to;
}

/* Blocks of a multiprocessor whose pixels fit into its registers. */
constexpr int forward_blocks(int numbers) { return numbers <= 16 ? 4 : numbers <= 24 ? 3 : 2; }

template <class T> struct layernorm_forward_tensors {
    T *y;                      /* may be x */
    const T *x;
    const float *weight, *bias;
    struct layernorm_statistics saved;
};

template <class T, int width, int per>
__global__ void __launch_bounds__(THREADS, forward_blocks(per * width))
layernorm_kernel(struct layernorm_forward_tensors<T> t, struct layernorm_layout l)
{
    layernorm_place place = place_of(l);
    layernorm_lane<width, per> lane = {place.lane, l.lanes, l.channels};
    __shared__ alignas(16) float weight[32 * per * width], bias[32 * per * width];
    float x[per][width];
    for (int c = threadIdx.x; c < l.channels; c += THREADS) {
        weight[place_in_room<width>(c, l.lanes)] = t.weight[c];
        bias[place_in_room<width>(c, l.lanes)] = t.bias[c];
    }
    __syncthreads();
    int64_t first = place.pixel - threadIdx.x % 32 / l.lanes;        /* the warp's: it stays together */
    chunk<T, width> next[per];
    load_pixel(next, t.x + place.pixel * l.channels, place.pixel < l.pixels, lane);
    for (; first < l.pixels; first += place.step, place.pixel += place.step) {
        bool here = place.pixel < l.pixels;
        int64_t following = place.pixel + place.step;
        widen(x, next);
        load_pixel(next, t.x + following * l.channels, following < l.pixels, lane);
        float mean, invstd;
        if (l.measures) {
            float sum = 0, squares = 0;
#pragma unroll
            for (int k = 0; k < per; k++)
#pragma unroll
                for (int e = 0; e < width; e++) sum += x[k][e];
            mean = sum_lanes(sum, l.lanes) / l.channels;
#pragma unroll
            for (int k = 0; k < per; k++)
#pragma unroll
                for (int e = 0; e < width; e++)
                    if (lane.has(k)) squares = fmaf(x[k][e] - mean, x[k][e] - mean, squares);
            invstd = 1 / sqrtf(sum_lanes(squares, l.lanes) / l.channels + l.eps);
        }
        if (!here) continue;
        if (!l.measures) mean = t.saved.mean[place.pixel], invstd = t.saved.invstd[place.pixel];
        else if (t.saved.mean && place.lane == 0)
            t.saved.mean[place.pixel] = mean, t.saved.invstd[place.pixel] = invstd;
#pragma unroll
        for (int k = 0; k < per; k++) {
            if (!lane.has(k)) continue;
            chunk<float, width> factor = load_room(weight, k, lane), shift = load_room(bias, k, lane);
            chunk<T, width> y;
#pragma unroll
            for (int e = 0; e < width; e++)
                y.at[e] = from_float<T>(normalised<float>(x[k][e], mean, invstd, factor.at[e], shift.at[e]));
            *(chunk<T, width> *)(t.y + place.pixel * l.channels + lane.at(k)) = y;
        }
    }
}

template <class T> struct layernorm_gradients {
    T *d_x;                    /* may be d_y, or NULL */
    T *again;                  /* y is written there; NULL: it is not */
    const T *x, *d_y, *more;   /* added to d_x; NULL: nothing */
    const float *weight, *bias, *mean, *invstd;
    float *parts;              /* [blocks, 2, channels]: d_weight and d_bias of each block's pixels */
};

/* Adds up the sums of the block's warps, and of the parts of each, by channel, in order. */
template <int width, int per>
__device__ static inline void leave_sums(float *to, float (&sum)[per][width],
                                         const layernorm_lane<width, per> &lane, float *room)
{
#pragma unroll
    for (int k = 0; k < per; k++)
#pragma unroll
        for (int e = 0; e < width; e++)
            for (int distance = lane.lanes; distance < 32; distance *= 2)
                sum[k][e] += __shfl_xor_sync(0xffffffffu, sum[k][e], distance);
    for (int warp = 0; warp < WARPS; warp++) {
        __syncthreads();
        if (threadIdx.x / 32 != warp || threadIdx.x % 32 >= lane.lanes) continue;
#pragma unroll
        for (int k = 0; k < per; k++)
#pragma unroll
            for (int e = 0; e < width; e++)
                if (lane.has(k)) room[lane.at(k) + e] = (warp ? room[lane.at(k) + e] : 0) + sum[k][e];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < lane.channels; c += THREADS) to[c] = room[c];
}

/* Copies 16 bytes to shared memory; a thread reads what it has copied itself after await_copies. */
__device__ static inline void begin_copy(uint4 *to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
    *to = *(const uint4 *)from;
#endif
}

/* Ends a group of copies; then waits for all groups but the last. */
__device__ static inline void await_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}
__device__ static inline void end_group()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Two pixels of each part of a warp: x, d_y and what is added to d_x, by thread. */
template <int per, bool adds> struct layernorm_ring {
    static constexpr int tensors = adds ? 3 : 2;
    static constexpr size_t bytes = (size_t)2 * tensors * per * THREADS * sizeof(uint4);
    uint4 *memory;
    __device__ uint4 *at(int stage, int tensor, int k) const
    {
        return memory + ((stage * tensors + tensor) * per + k) * THREADS + threadIdx.x;
    }
    template <class T, int width>
    __device__ void fetch(int stage, const layernorm_gradients<T> &g, const layernorm_layout &l,
                          int64_t pixel, const layernorm_lane<width, per> &lane) const
    {
#pragma unroll
        for (int k = 0; k < per; k++) {
            if (pixel >= l.pixels || !lane.has(k)) continue;
            begin_copy(at(stage, 0, k), g.x + pixel * l.channels + lane.at(k));
            begin_copy(at(stage, 1, k), g.d_y + pixel * l.channels + lane.at(k));
            if (adds) begin_copy(at(stage, 2, k), g.more + pixel * l.more_channels + lane.at(k));
        }
        end_group();
    }
    template <class T, int width> __device__ chunk<T, width> load(int stage, int tensor, int k) const
    {
        return *(const chunk<T, width> *)at(stage, tensor, k);
    }
};

/* Memory is read here and not before: chunks of which all are read at once do not fit into registers. */
__device__ static inline void in_order() { asm volatile("" ::: "memory"); }

/* Numbers that turn x into xhat, and d_y times the weight into d_x: the means of that product and of it times
 * xhat are subtracted. */
struct layernorm_pixel {
    float mean, invstd, scale, mean_d;
    __device__ layernorm_pixel(float mean, float invstd) : mean(mean), invstd(invstd) {}
    __device__ float xhat(float x) const { return (x - mean) * invstd; }
    __device__ void conclude(float mean_d_, float mean_product)
    {
        scale = -invstd * mean_product, mean_d = mean_d_;
    }
    __device__ float d_x(float x, float d_y, float weight) const
    {
        return invstd * fmaf(x - mean, scale, __fmul_rn(d_y, weight) - mean_d);
    }
};

/* to[0..1] = a and b as T, with more[0..1] added to what was rounded. */
template <bool adds>
__device__ static inline void store_two(__half *to, float a, float b, const __half *more)
{
    __half2 two = __floats2half2_rn(a, b);
    if constexpr (adds) two = __hadd2_rn(two, *(const __half2 *)more);
    *(__half2 *)to = two;
}
template <bool adds>
__device__ static inline void store_two(__nv_bfloat16 *to, float a, float b, const __nv_bfloat16 *more)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
    if constexpr (adds) two = __hadd2_rn(two, *(const __nv_bfloat162 *)more);
    *(__nv_bfloat162 *)to = two;
}
template <bool adds>
__device__ static inline void store_two(float *to, float a, float b, const float *more)
{
    to[0] = a + (adds ? more[0] : 0), to[1] = b + (adds ? more[1] : 0);
}

template <class T, int width, bool adds>
__device__ static inline chunk<T, width>
gradients_of(const layernorm_pixel &pixel, const chunk<T, width> &x, const chunk<T, width> &d_y,
             const chunk<float, width> &weight, const chunk<T, width> &more)
{
    chunk<T, width> out;
    auto d_x = [&](int e) { return pixel.d_x(to_float(x.at[e]), to_float(d_y.at[e]), weight.at[e]); };
    if constexpr (width == 1) {
        out.at[0] = from_float<T>(d_x(0));
        if constexpr (adds) out.at[0] = from_float<T>(to_float(out.at[0]) + to_float(more.at[0]));
    } else {
#pragma unroll
        for (int e = 0; e < width; e += 2) store_two<adds>(out.at + e, d_x(e), d_x(e + 1), more.at + e);
    }
    return out;
}

/* While a pixel is worked on, the next one's chunks are on their way to shared memory, if that is large
 * enough and they have 16 bytes. There they stay until the pixel's sums are known and are read again:
 * registers suffice for the sums of weight and bias. */
template <class T, int width, int per, bool adds, bool copies, bool again>
__global__ void __launch_bounds__(THREADS, per * width <= 32 ? 2 : 1)
layernorm_backward_kernel(struct layernorm_gradients<T> g, struct layernorm_layout l)
{
    extern __shared__ uint4 memory[];
    __shared__ float room[32 * per * width];
    __shared__ alignas(32) float weight[32 * per * width];       /* 0 behind the last channel */
    __shared__ alignas(32) float bias[again ? 32 * per * width : 8];
    layernorm_ring<per, adds> ring = {memory};
    layernorm_place place = place_of(l);
    layernorm_lane<width, per> lane = {place.lane, l.lanes, l.channels};
    float d_weight[per][width] = {}, d_bias[per][width] = {};
    if constexpr (copies) ring.fetch(0, g, l, place.pixel, lane);
    for (int c = threadIdx.x; c < l.lanes * per * width; c += THREADS) {
        weight[place_in_room<width>(c, l.lanes)] = c < l.channels ? g.weight[c] : 0;
        if (again) bias[place_in_room<width>(c, l.lanes)] = c < l.channels ? g.bias[c] : 0;
    }
    __syncthreads();
    int64_t first = place.pixel - threadIdx.x % 32 / l.lanes;
    float next_mean = place.pixel < l.pixels ? g.mean[place.pixel] : 0;
    float next_invstd = place.pixel < l.pixels ? g.invstd[place.pixel] : 0;
    for (int stage = 0; first < l.pixels; first += place.step, place.pixel += place.step, stage ^= 1) {
        bool here = place.pixel < l.pixels;
        int64_t following = place.pixel + place.step;
        float sum = 0, product = 0, mean = next_mean, invstd = next_invstd;
        layernorm_pixel pixel(mean, invstd);
        next_mean = following < l.pixels ? g.mean[following] : 0;
        next_invstd = following < l.pixels ? g.invstd[following] : 0;
        if constexpr (copies) {
            ring.fetch(stage ^ 1, g, l, following, lane);
            await_copies();
        }
        auto load = [&](int tensor, const T *from, int k) {
            if constexpr (copies) return ring.template load<T, width>(stage, tensor, k);
            else return *(const chunk<T, width> *)(from + lane.at(k));
        };
        const T *x_from = g.x + place.pixel * l.channels, *d_y_from = g.d_y + place.pixel * l.channels;
#pragma unroll
        for (int k = 0; k < per; k++) {
            if (!here || !lane.has(k)) continue;
            in_order();
            chunk<T, width> x = load(0, x_from, k), d_y = load(1, d_y_from, k);
            chunk<float, width> factor = load_room(weight, k, lane);
#pragma unroll
            for (int e = 0; e < width; e++) {
                float xhat = pixel.xhat(to_float(x.at[e])), d = to_float(d_y.at[e]);
                d_weight[k][e] = fmaf(d, xhat, d_weight[k][e]);
                d_bias[k][e] += d;
                d *= factor.at[e];
                sum += d;
                product = fmaf(d, xhat, product);
            }
        }
        sum = sum_lanes(sum, l.lanes) / l.channels;
        product = sum_lanes(product, l.lanes) / l.channels;
        pixel.conclude(sum, product);
        if (!here) continue;
#pragma unroll
        for (int k = 0; k < per; k++) {
            if (!lane.has(k)) continue;
            in_order();
            int64_t at = place.pixel * l.channels + lane.at(k);
            chunk<T, width> x = load(0, x_from, k);
            chunk<float, width> factor = load_room(weight, k, lane);
            if constexpr (again) {
                chunk<float, width> shift = load_room(bias, k, lane);
                chunk<T, width> y;
#pragma unroll
                for (int e = 0; e < width; e++)
                    y.at[e] = normalised<T>(x.at[e], mean, invstd, factor.at[e], shift.at[e]);
                *(chunk<T, width> *)(g.again + at) = y;
            }
            if (!g.d_x) continue;
            chunk<T, width> d_y = load(1, d_y_from, k), more = {};
            if constexpr (adds) more = load(2, g.more + place.pixel * l.more_channels, k);
            *(chunk<T, width> *)(g.d_x + at) = gradients_of<T, width, adds>(pixel, x, d_y, factor, more);
        }
    }
    float *parts = g.parts + (int64_t)blockIdx.x * 2 * l.channels;
    leave_sums(parts, d_weight, lane, room);
    __syncthreads();
    leave_sums(parts + l.channels, d_bias, lane, room);
}

template <class T, int width, int per, bool adds, bool again>
static enum status layernorm_backward_launch(const struct call *call, const layernorm_gradients<T> &g,
                                             const layernorm_layout &l, unsigned blocks)
{
    constexpr bool wide = sizeof(chunk<T, width>) == sizeof(uint4);
    auto kernel = layernorm_backward_kernel<T, width, per, adds, wide, again>;
    size_t bytes = wide ? layernorm_ring<per, adds>::bytes : 0;
    size_t fixed = (again ? 3 : 2) * 32 * per * width * sizeof(float);
    if (bytes + fixed > cuda_facts(call->device)->shared_bytes)
        kernel = layernorm_backward_kernel<T, width, per, adds, false, again>, bytes = 0;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    TRY(cuda_status(call->device, error, "layernorm: shared memory"));
    kernel<<<blocks, THREADS, bytes, stream_of(call)>>>(g, l);
    return OK;
}

/* Any number of channels, one by one; one warp per pixel. */
template <class T>
__global__ void __launch_bounds__(THREADS)
layernorm_any_kernel(struct layernorm_forward_tensors<T> t, struct layernorm_layout l)
{
    layernorm_place place = place_of(l);
    for (int64_t pixel = place.pixel; pixel < l.pixels; pixel += place.step) {
        const T *x = t.x + pixel * l.channels;
        float mean = 0, invstd = 0, sum = 0, squares = 0;
        if (l.measures) {
            for (int c = place.lane; c < l.channels; c += 32) sum += to_float(x[c]);
            mean = sum_lanes(sum, 32) / l.channels;
            for (int c = place.lane; c < l.channels; c += 32)
                squares = fmaf(to_float(x[c]) - mean, to_float(x[c]) - mean, squares);
            invstd = 1 / sqrtf(sum_lanes(squares, 32) / l.channels + l.eps);
            if (t.saved.mean && place.lane == 0) t.saved.mean[pixel] = mean, t.saved.invstd[pixel] = invstd;
        } else {
            mean = t.saved.mean[pixel], invstd = t.saved.invstd[pixel];
        }
        for (int c = place.lane; c < l.channels; c += 32)
            t.y[pixel * l.channels + c] = normalised<T>(x[c], mean, invstd, t.weight[c], t.bias[c]);
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS)
layernorm_any_backward_kernel(struct layernorm_gradients<T> g, struct layernorm_layout l)
{
    layernorm_place place = place_of(l);
    for (int64_t pixel = place.pixel; pixel < l.pixels; pixel += place.step) {
        const T *x = g.x + pixel * l.channels, *d_y = g.d_y + pixel * l.channels;
        float mean = g.mean[pixel], invstd = g.invstd[pixel], sum = 0, product = 0;
        for (int c = place.lane; c < l.channels; c += 32) {
            float d = to_float(d_y[c]) * g.weight[c];
            sum += d;
            product = fmaf(d, (to_float(x[c]) - mean) * invstd, product);
        }
        sum = sum_lanes(sum, 32) / l.channels;
        product = sum_lanes(product, 32) / l.channels;
        for (int c = place.lane; g.again && c < l.channels; c += 32)
            g.again[pixel * l.channels + c] = normalised<T>(x[c], mean, invstd, g.weight[c], g.bias[c]);
        for (int c = place.lane; g.d_x && c < l.channels; c += 32) {
            float d = to_float(d_y[c]) * g.weight[c], xhat = (to_float(x[c]) - mean) * invstd;
            T own = from_float<T>(invstd * (d - sum - xhat * product));
            if (g.more) own = from_float<T>(to_float(own) + to_float(g.more[pixel * l.more_channels + c]));
            g.d_x[pixel * l.channels + c] = own;
        }
    }
}

/* One thread per channel; each row of blocks has every nth pixel. */
template <class T>
__global__ void __launch_bounds__(THREADS)
layernorm_any_sums_kernel(struct layernorm_gradients<T> g, struct layernorm_layout l)
{
    int c = blockIdx.x * THREADS + threadIdx.x;
    if (c >= l.channels) return;
    float d_weight = 0, d_bias = 0;
#pragma unroll 4
    for (int64_t pixel = blockIdx.y; pixel < l.pixels; pixel += gridDim.y) {
        float d_y = to_float(g.d_y[pixel * l.channels + c]);
        float xhat = (to_float(g.x[pixel * l.channels + c]) - g.mean[pixel]) * g.invstd[pixel];
        d_weight = fmaf(d_y, xhat, d_weight);
        d_bias += d_y;
    }
    g.parts[(int64_t)blockIdx.y * 2 * l.channels + c] = d_weight;
    g.parts[((int64_t)blockIdx.y * 2 + 1) * l.channels + c] = d_bias;
}

/* Lanes of a pixel: as many as it has chunks, at most 32; or fewer with up to three chunks each, if fewer
 * places are empty then. */
static int layernorm_lanes(int64_t channels, int width)
{
    int64_t chunks = channels / width;
    int lanes = power_up(chunks, 32);
    for (int fewer = lanes / 2; width > 1 && fewer >= 4 && div_up(chunks, (int64_t)fewer) <= 3; fewer /= 2)
        if (fewer * div_up(chunks, (int64_t)fewer) < lanes * div_up(chunks, (int64_t)lanes)) lanes = fewer;
    return lanes;
}

static struct layernorm_layout layernorm_layout(const struct call *call, int width)
{
    const struct layernorm *s = (const struct layernorm *)call->settings;
    const struct tensor *addend = call_operand(call, OPERAND_D_X_ADDEND);
    struct shape shape = call->x[0].shape;
    return {.pixels = shape.n * shape.h * shape.w, .channels = (int)shape.c,
            .lanes = layernorm_lanes(shape.c, width), .more_channels = addend ? (int)addend->shape.c : 0,
            .eps = (float)s->eps,
            .measures = call->phase == PHASE_FORWARD};
}

/* Blocks: as many as have a pixel for each part of their warps, up to a maximum. */
static unsigned layernorm_blocks(const struct layernorm_layout *l, int64_t most)
{
    int64_t blocks = div_up(l->pixels, (int64_t)WARPS * (32 / l->lanes));
    return (unsigned)(blocks < most ? blocks : most);
}

/* Calls work with the constant of a choice. */
template <class Work> static enum status with_choice(bool choice, Work work)
{
    return choice ? work(std::true_type()) : work(std::false_type());
}

/* Calls work(T(), width, per): per is 0 if pixels do not fit into registers. */
template <class Work> static enum status with_pixels(const struct call *call, Work work)
{
    int64_t channels = call->x[0].shape.c;
    return with_chunk(call->x[0].dtype, channels, [&](auto type, auto wide) {
        constexpr int width = decltype(wide)::number;
        int64_t per = div_up(channels / width, (int64_t)layernorm_lanes(channels, width));
        if (per == 1) return work(type, wide, constant<1>());
        if constexpr (width > 1) {
            if (per == 2) return work(type, wide, constant<2>());
            if (per == 3) return work(type, wide, constant<3>());
            if (per == 4) return work(type, wide, constant<4>());
            if (per <= 6) return work(type, wide, constant<6>());
            if (per <= PER_MAX) return work(type, wide, constant<PER_MAX>());
        }
        return work(type, constant<1>(), constant<0>());
    });
}

static enum status layernorm_normalise(const struct call *call)
{
    if (shape_count(call->y.shape) == 0) return OK;
    return with_pixels(call, [&](auto type, auto wide, auto each) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number, per = decltype(each)::number;
        struct layernorm_layout l = layernorm_layout(call, width);
        bool saves = call->saved_count > 0;
        struct layernorm_forward_tensors<T> t = {
            (T *)call->y.data, (const T *)call->x[0].data, (const float *)call->params[0].data,
            (const float *)call->params[1].data,
            {saves ? (float *)call->saved[LAYERNORM_MEAN].data : NULL,
             saves ? (float *)call->saved[LAYERNORM_INVSTD].data : NULL}};
        int fitting = per > 0 ? forward_blocks(per * width) : 4;
        unsigned blocks = layernorm_blocks(&l, cuda_facts(call->device)->multiprocessors * fitting);
        if constexpr (per > 0)
            layernorm_kernel<T, width, per><<<blocks, THREADS, 0, stream_of(call)>>>(t, l);
        else
            layernorm_any_kernel<T><<<blocks, THREADS, 0, stream_of(call)>>>(t, l);
        return launched(call);
    });
}

/* Launches the first kernel's blocks below one another, for any number of channels. */
static enum status layernorm_backward(const struct call *call)
{
    int64_t channels = call->x[0].shape.c;
    if (shape_count(call->d_y.shape) == 0) return OK;
    return with_pixels(call, [&](auto type, auto wide, auto each) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number, per = decltype(each)::number;
        struct layernorm_layout l = layernorm_layout(call, width);
        const T *more = call->d_x[0].data ? (const T *)call_data(call, OPERAND_D_X_ADDEND) : NULL;
        struct layernorm_gradients<T> g = {
            (T *)call->d_x[0].data, (T *)call_data(call, OPERAND_Y_RECOMPUTED), (const T *)call->x[0].data,
            (const T *)call->d_y.data, more, (const float *)call->params[0].data,
            (const float *)call->params[1].data, (const float *)call->saved[LAYERNORM_MEAN].data,
            (const float *)call->saved[LAYERNORM_INVSTD].data, (float *)call->workspace};
        int64_t most = 2 * cuda_facts(call->device)->multiprocessors;
        unsigned blocks = layernorm_blocks(&l, most < BLOCKS_MAX ? most : BLOCKS_MAX);
        if constexpr (per > 0) {
            TRY(with_choice(more != NULL, [&](auto adds) {
                return with_choice(g.again != NULL, [&](auto again) {
                    return layernorm_backward_launch<T, width, per, decltype(adds)::value,
                                                     decltype(again)::value>(call, g, l, blocks);
                });
            }));
        } else {
            dim3 grid((unsigned)div_up(channels, (int64_t)THREADS), blocks);
            layernorm_any_sums_kernel<T><<<grid, THREADS, 0, stream_of(call)>>>(g, l);
            if (g.d_x || g.again)
                layernorm_any_backward_kernel<T><<<blocks, THREADS, 0, stream_of(call)>>>(g, l);
        }
        TRY(launched(call));
        return columns_finish(call, {g.parts, (int)blocks, 2, (int)channels},
                              (float *)call->d_params[0].data, (float *)call->d_params[1].data);
    });
}

static size_t layernorm_workspace(const struct call *call)
{
    return call->phase == PHASE_BACKWARD ? (size_t)(2 * BLOCKS_MAX * call->x[0].shape.c) * sizeof(float) : 0;
}

const struct op_code layernorm_cuda = {
    .supports = call_adds_to_gradient,
    .workspace = layernorm_workspace,
    .forward = layernorm_normalise,
    .backward = layernorm_backward,
    .recompute = layernorm_normalise,
};
