#include "kernels/support/chunk.cuh"

extern "C" {
#include "kernels/norm/lrn.h"
}

#define THREADS 256
#define SHARED_MAX cudaFuncAttributeMaxDynamicSharedMemorySize
#define TILE_MAX 512           /* channels of a pixel that a block computes */
#define FLOATS_ENOUGH 4096     /* in shared memory: with more, fewer blocks run at the same time */

/* Blocks compute `tile` channels of as many pixels as fit. The window of c is [c - before, c + after]. Shared
 * memory has, for each pixel, `room` elements of x and, in backward, `terms` terms of its gradient's sum and
 * `tile` of its other terms. */
struct layout {
    int64_t pixels;
    int channels, tile, stripes;
    int before, after, room, terms;
    float scale, k, beta, factor;
};

/* The part of a pixel that this thread's block computes: channels first .. first + count - 1 at `pixel`. */
struct lrn_position {
    int64_t pixel;
    int first, count;
    bool inside;
};

__device__ static inline struct lrn_position lrn_position_of(const struct layout &l)
{
    unsigned stripe = blockIdx.x % (unsigned)l.stripes;
    int64_t pixel = (int64_t)(blockIdx.x / (unsigned)l.stripes) * blockDim.y + threadIdx.y;
    int first = stripe * l.tile;
    return {pixel * l.channels, first, min(l.tile, l.channels - first), pixel < l.pixels};
}

/* d to the power of -beta, of the channel whose window begins at x[0]; *divisor gets d. */
__device__ static inline float power_of(const struct layout &l, const float *x, float *divisor)
{
    float sum = 0;
#pragma unroll 5
    for (int i = 0; i <= l.before + l.after; i++) sum += x[i] * x[i];
    *divisor = l.k + l.scale * sum;
    return exp2f(-l.beta * log2f(*divisor));
}

/* Channels first .. first + count - 1 of a pixel; those outside are 0. */
template <class T>
__device__ static inline void load(float *to, const T *x, int first, int count, const struct layout &l,
                                   bool inside)
{
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        to[i] = inside && first + i >= 0 && first + i < l.channels ? to_float(x[first + i]) : 0;
}

template <class T> __global__ void __launch_bounds__(THREADS)
lrn_forward_kernel(T *y, const T *x, struct layout l)
{
    extern __shared__ float shared[];
    struct lrn_position at = lrn_position_of(l);
    float *held = shared + threadIdx.y * l.room, divisor;
    load(held, x + at.pixel, at.first - l.before, l.room, l, at.inside);
    __syncthreads();
    if (!at.inside) return;
    for (int i = threadIdx.x; i < at.count; i += blockDim.x)
        y[at.pixel + at.first + i] = from_float<T>(held[l.before + i] * power_of(l, held + i, &divisor));
}

/* terms[t] belongs to channel first - after + t, whose window begins at held[t]. */
template <class T>
__global__ void __launch_bounds__(THREADS)
lrn_backward_kernel(T *d_x, const T *d_y, const T *x, struct layout l)
{
    extern __shared__ float shared[];
    struct lrn_position at = lrn_position_of(l);
    float *held = shared + threadIdx.y * (l.room + l.terms + l.tile);
    float *terms = held + l.room, *powers = terms + l.terms;
    int reach = l.before + l.after, first_term = at.first - l.after;
    load(held, x + at.pixel, at.first - reach, l.room, l, at.inside);
    load(terms, d_y + at.pixel, first_term, l.terms, l, at.inside);
    __syncthreads();
    for (int i = threadIdx.x; i < l.terms; i += blockDim.x) {
        float divisor, power = power_of(l, held + i, &divisor);
        if (i >= l.after && i < l.after + l.tile) powers[i - l.after] = power * terms[i];
        terms[i] *= held[i + l.before] * power / divisor;
    }
    __syncthreads();
    if (!at.inside) return;
    for (int i = threadIdx.x; i < at.count; i += blockDim.x) {
        float sum = 0;
#pragma unroll 5
        for (int t = 0; t <= reach; t++) sum += terms[i + t];
        d_x[at.pixel + at.first + i] = from_float<T>(powers[i] - l.factor * held[reach + i] * sum);
    }
}

/* Windows are limited to the number of channels. */
static struct layout layout_of(const struct call *call, struct shape x, bool backward)
{
    const struct lrn *s = (const struct lrn *)call->settings;
    struct layout l = {.pixels = x.n * x.h * x.w, .channels = (int)x.c};
    l.tile = l.channels < TILE_MAX ? l.channels : TILE_MAX;
    l.stripes = div_up(l.channels, l.tile);
    l.before = (int)(s->size / 2 < x.c ? s->size / 2 : x.c);
    l.after = (int)((s->size - 1) / 2 < x.c ? (s->size - 1) / 2 : x.c);
    l.terms = backward ? l.tile + l.before + l.after : 0;
    l.room = l.tile + (backward ? 2 : 1) * (l.before + l.after);
    l.scale = (float)(s->alpha / (double)s->size);
    l.k = (float)s->k;
    l.beta = (float)s->beta;
    l.factor = (float)(2 * s->alpha * s->beta / (double)s->size);
    return l;
}

/* Very wide windows need more shared memory than a kernel has by default. */
template <class Kernel, class... Arguments>
static enum status launch(const struct call *call, Kernel kernel, const struct layout &l, int floats,
                          Arguments... arguments)
{
    if (l.pixels == 0) return OK;
    int across = power_up(l.tile, 32), least = power_up(l.tile, THREADS);
    while (across < least && floats * (THREADS / across) > FLOATS_ENOUGH) across *= 2;
    int down = THREADS / across;
    size_t shared = (size_t)floats * down * sizeof(float);
    if (shared > 48 << 10)
        TRY(cuda_status(call->device, cudaFuncSetAttribute(kernel, SHARED_MAX, (int)shared),
                        "asking for shared memory"));
    unsigned blocks = (unsigned)(div_up(l.pixels, (int64_t)down) * l.stripes);
    kernel<<<blocks, dim3(across, down), shared, stream_of(call)>>>(arguments..., l);
    return launched(call);
}

static enum status lrn_forward(const struct call *call)
{
    struct layout l = layout_of(call, call->y.shape, false);
    return with_type(call->y.dtype, [&](auto type) {
        using T = decltype(type);
        return launch(call, lrn_forward_kernel<T>, l, l.room, (T *)call->y.data, (const T *)call->x[0].data);
    });
}

static enum status lrn_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct layout l = layout_of(call, call->d_y.shape, true);
    return with_type(call->d_y.dtype, [&](auto type) {
        using T = decltype(type);
        return launch(call, lrn_backward_kernel<T>, l, l.room + l.terms + l.tile, (T *)call->d_x[0].data,
                      (const T *)call->d_y.data, (const T *)call->x[0].data);
    });
}

const struct op_code lrn_cuda = {.forward = lrn_forward, .backward = lrn_backward};
