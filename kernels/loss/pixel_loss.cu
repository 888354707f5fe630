/* pixel_loss.cu: a thread computes a pixel at a time, whose logits a block has brought to shared memory, so
 * that memory is read and written in order. Sums by class are added up by warps, blocks, and small kernels,
 * in an order that depends on the shapes only. */
#include "kernels/support/block.cuh"
#include "kernels/support/chunk.cuh"

extern "C" {
#include "kernels/loss/pixel_loss.h"
}

#define TILE_NUMBERS 8448    /* in shared memory: 256 pixels of 33 */
#define PARTS_MAX 64         /* blocks that share an image */
#define IN_FLIGHT 4          /* loads that a thread has begun before it waits for the first */
#define FINISH_CLASSES 32
#define FINISH_LANES 16
#define FINISH_THREADS 256

struct pixel_layout {
    int images, parts, classes;
    int64_t pixels;            /* of an image of logits */
    int w, label_w, stride;
    int64_t label_pixels;
};

struct pixel_tensors {
    const uint8_t *labels;
    const float *weights;
    float *y, *lse, *slopes;   /* the latter two may be NULL in forward */
    double *losses;            /* [images, parts] */
    float *parts;              /* [images, parts, 3, classes]: p, g, both */
    double *totals;            /* [3, classes] */
};

/* Threads of a block: as many as pixels fit into shared memory. */
static int threads_of(int64_t classes)
{
    int threads = 256;
    while (threads > 32 && threads * classes > TILE_NUMBERS) threads /= 2;
    return threads;
}

static struct pixel_layout layout_of(const struct call *call)
{
    struct shape x = call->x[0].shape, labels = call->x[PIXEL_INPUT_LABELS].shape;
    struct pixel_layout l = {.images = (int)x.n, .classes = (int)x.c, .pixels = x.h * x.w,
                             .w = (int)x.w, .label_w = (int)labels.w,
                             .stride = (int)pixel_loss_stride(labels.h, x.h),
                             .label_pixels = labels.h * labels.w};
    int64_t parts = l.pixels / (4 * threads_of(x.c));
    l.parts = (int)(parts < 1 ? 1 : parts < PARTS_MAX ? parts : PARTS_MAX);
    return l;
}

/* The function of pixel_loss.c. */
__device__ static inline int class_of(const pixel_layout &l, const pixel_loss &s, const uint8_t *labels,
                                      int64_t image, int64_t pixel)
{
    int64_t at = pixel;
    if (l.stride > 1) {
        int h = (int)pixel / l.w, w = (int)pixel - h * l.w;
        at = (int64_t)h * l.stride * l.label_w + w * l.stride;
    }
    int label = labels[image * l.label_pixels + at];
    return label == s.ignore ? -1 : label < l.classes ? label : -2;
}

template <class V> __device__ static inline void copy_numbers(V *to, const V *from, int count)
{
    int step = blockDim.x;
    for (int first = threadIdx.x; first < count; first += IN_FLIGHT * step) {
        V got[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++)
            got[j] = from[first + j * step < count ? first + j * step : first];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++)
            if (first + j * step < count) to[first + j * step] = got[j];
    }
}

/* Copies rows of logits between memory and the tile, 16 bytes at a time where an image begins at such. */
template <class T> __device__ static inline void copy_tile(T *to, const T *from, int count)
{
    const int width = sizeof(uint4) / sizeof(T);
    int vectors = ((uintptr_t)to | (uintptr_t)from) % sizeof(uint4) == 0 ? count / width : 0;
    copy_numbers((uint4 *)to, (const uint4 *)from, vectors);
    copy_numbers(to + vectors * width, from + vectors * width, count - vectors * width);
}

/* Rows of an odd number of 16-bit logits begin in the middle of words. Two of them make whole words, so that
 * a warp has every second of 64 pixels: their rows begin alike, and in different banks. */
template <class T> struct pixel_place {
    int pixel, step;           /* of the tile: the thread's, and from lane to lane */
    __device__ pixel_place(int classes)
        : pixel(threadIdx.x), step(sizeof(T) == 2 && classes % 2 && blockDim.x >= 64 ? 2 : 1)
    {
        if (step == 2) pixel = (pixel & ~63) + pixel % 32 * 2 + pixel / 32 % 2;
    }
};

/* exp(x) where a result below 2^-126 may be 0. */
__device__ static inline float exp_of(float x) { return exp2_of(x * 1.442695041f); }

/* Calls work(class, logit) for each of a row's, of which it reads whole words, and with `writes` puts the
 * results in their place. Rows of an even number of words begin in few banks, so lanes begin at different
 * words. */
template <bool writes, class T, class Work>
__device__ static inline void for_each_class(T *row, int classes, Work work)
{
    constexpr int width = sizeof(uint32_t) / sizeof(T);
    using word = chunk<T, width>;
    int head = (int)((uintptr_t)row / sizeof(T) % width), count = (classes - head) / width;
    word *words = (word *)(row + head);
    auto take = [&](auto &at, int c) {
        auto got = at;
#pragma unroll
        for (int e = 0; e < (int)(sizeof(at) / sizeof(T)); e++) {
            float y = work(c + e, to_float(got.at[e]));
            if (writes) got.at[e] = from_float<T>(y);
        }
        if (writes) at = got;
    };
    if (head) take(*(chunk<T, 1> *)row, 0);
    if (head + count * width < classes) take(*(chunk<T, 1> *)(row + classes - 1), classes - 1);
    if (classes % (2 * width)) {
#pragma unroll 4
        for (int i = 0; i < count; i++) take(words[i], head + i * width);
        return;
    }
    int i = threadIdx.x % 32 % count;
#pragma unroll 4
    for (int k = 0; k < count; k++) {
        take(words[i], head + i * width);
        i = i + 1 < count ? i + 1 : 0;
    }
}

/* Calls work(image, first, count) for the tiles of a block's part of an image. */
template <class Work> __device__ static inline void for_each_tile(const pixel_layout &l, Work work)
{
    int64_t image = blockIdx.x / l.parts, part = blockIdx.x - image * l.parts, step = blockDim.x;
    for (int64_t first = part * step; first < l.pixels; first += l.parts * step) {
        int64_t left = l.pixels - first;
        work(image, first, (int)(left < step ? left : step));
    }
}

__device__ static inline double block_total(double value)
{
    __shared__ double of_warp[8];
    value = warp_reduce(value, [](double a, double b) { return a + b; });
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; warp++) value += of_warp[warp];
    return value;
}

/* Adds what a warp's 32 pixels have, whose logits are in `rows`, each `pitch` further, to the sums of their
 * classes: a lane does it for a class. `own`: the class of the lane's pixel; less than 0: it does not
 * count. */
template <class T>
__device__ static inline void add_regions(const T *rows, int pitch, int own, float lse, float *sums,
                                          int classes)
{
    int lane = threadIdx.x % 32;
    for (int first = 0; first < classes; first += 32) {
        int c = first + lane;
        bool here = c < classes;
        float p = 0, g = 0, both = 0;
#pragma unroll 8
        for (int pixel = 0; pixel < 32; pixel++) {
            int of_pixel = __shfl_sync(~0u, own, pixel);
            float lse_of_pixel = __shfl_sync(~0u, lse, pixel);
            bool counts = here && of_pixel >= 0, is = of_pixel == c;
            float one = counts ? __expf(to_float(rows[pixel * pitch + c]) - lse_of_pixel) : 0;
            p += one, g += is, both += is ? one : 0;
        }
        if (here) sums[c] += p, sums[classes + c] += g, sums[2 * classes + c] += both;
    }
}

/* Blocks of 256 threads that a multiprocessor holds; `wanted` where it has 2048 threads. */
constexpr int blocks_held(int wanted)
{
#if __CUDA_ARCH__ == 750
    return wanted < 4 ? wanted : 4;
#elif (__CUDA_ARCH__ >= 860 && __CUDA_ARCH__ < 900) || __CUDA_ARCH__ >= 1100
    return wanted < 6 ? wanted : 6;
#else
    return wanted;
#endif
}

/* Registers for 8 blocks of a multiprocessor: all parts of 16 images, PARTS_MAX each, run at once on 128. */
template <class T, bool regions>
__global__ void __launch_bounds__(256, blocks_held(regions ? 5 : 8))
    pixel_loss_forward_kernel(const T *x, const __grid_constant__ pixel_layout l,
                              const __grid_constant__ pixel_tensors t, const __grid_constant__ pixel_loss s)
{
    extern __shared__ uint4 room[];
    T *tile = (T *)room;
    float *all = (float *)(tile + blockDim.x * l.classes);
    float *sums = all + threadIdx.x / 32 * 3 * l.classes;   /* of the warp */
    double loss = 0;
    pixel_place<T> place(l.classes);
    int lane = threadIdx.x % 32, pitch = place.step * l.classes;
    for (int c = lane; regions && c < 3 * l.classes; c += 32) sums[c] = 0;
    for_each_tile(l, [&](int64_t image, int64_t first, int count) {
        bool here = place.pixel < count;
        int own = here ? class_of(l, s, t.labels, image, first + place.pixel) : -1;
        __syncthreads();
        copy_tile(tile, x + (image * l.pixels + first) * l.classes, count * l.classes);
        __syncthreads();
        T *own_x = tile + place.pixel * l.classes;
        float max = -INFINITY, sum = 0;
        if (here) {
            for_each_class<false>(own_x, l.classes, [&](int, float x) { return max = fmaxf(max, x); });
            for_each_class<false>(own_x, l.classes, [&](int, float x) { return sum += exp_of(x - max); });
        }
        float log_sum = logf(sum);
        if (here && t.lse) t.lse[image * l.pixels + first + place.pixel] = max + log_sum;
        if (own == -2) loss = NAN;
        if (own >= 0 && pixel_loss_has_pixels(&s))
            loss += (double)t.weights[own] *
                    pixel_loss_value(&s, fmin((double)to_float(own_x[own]) - max - log_sum, 0.0));
        if constexpr (regions)
            add_regions(own_x - lane * pitch, pitch, own, max + log_sum, sums, l.classes);
    });
    loss = block_total(loss);
    if (threadIdx.x == 0) t.losses[blockIdx.x] = loss;
    if constexpr (regions) {
        for (int c = threadIdx.x; c < 3 * l.classes; c += blockDim.x) {
            float sum = 0;
            for (unsigned warp = 0; warp < blockDim.x / 32; warp++) sum += all[warp * 3 * l.classes + c];
            t.parts[(int64_t)blockIdx.x * 3 * l.classes + c] = sum;
        }
    }
}

/* Adds up the parts of all images, for 32 of the 3 * classes sums a block. */
__global__ void __launch_bounds__(FINISH_CLASSES *FINISH_LANES)
pixel_loss_totals_kernel(const __grid_constant__ pixel_layout l, const __grid_constant__ pixel_tensors t)
{
    __shared__ double room[FINISH_LANES][FINISH_CLASSES];
    int c = blockIdx.x * FINISH_CLASSES + threadIdx.x;
    double sum = 0;
    for (int i = threadIdx.y; c < 3 * l.classes && i < l.images * l.parts; i += FINISH_LANES)
        sum += t.parts[(int64_t)i * 3 * l.classes + c];
    room[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= 3 * l.classes) return;
    for (int lane = 1; lane < FINISH_LANES; lane++) sum += room[lane][threadIdx.x];
    t.totals[c] = sum;
}

/* One block: the loss of the regions with its derivatives, then that of each image. */
__global__ void __launch_bounds__(FINISH_THREADS)
pixel_loss_finish_kernel(const __grid_constant__ pixel_layout l, const __grid_constant__ pixel_tensors t,
                         const __grid_constant__ pixel_loss s)
{
    int c = threadIdx.x;                   /* there are at most as many classes as threads */
    bool counts = false;
    struct pixel_ratio ratio = {0, 0, 0};
    if (t.totals && c < l.classes && c >= (s.background ? 0 : 1)) {
        struct pixel_sums sums = {t.totals[c], t.totals[l.classes + c], t.totals[2 * l.classes + c]};
        counts = sums.g > 0;
        if (counts) ratio = pixel_loss_ratio(&s, sums);
    }
    int counted = __syncthreads_count(counts);
    double regions = counted > 0 ? 1 - block_sum<FINISH_THREADS>(ratio.value / counted) : 0;
    if (t.slopes && c < l.classes) {
        t.slopes[c] = counts ? (float)(-ratio.other / counted) : 0;
        t.slopes[l.classes + c] = counts ? (float)(-ratio.own / counted) : 0;
    }
    for (int image = threadIdx.x; image < l.images; image += FINISH_THREADS) {
        double loss = 0;
        for (int part = 0; part < l.parts; part++) loss += t.losses[image * l.parts + part];
        t.y[image] = (float)(s.weight * (loss + regions));
    }
}

template <class T, bool regions>
__global__ void __launch_bounds__(256, blocks_held(8))
    pixel_loss_backward_kernel(T *d_x, const T *x, const __grid_constant__ pixel_layout l,
                               const __grid_constant__ pixel_tensors t, const __grid_constant__ pixel_loss s,
                               const float *loss_scale, double loss_weight)
{
    extern __shared__ uint4 room[];
    T *tile = (T *)room;
    float factor = (float)(loss_weight * (double)*loss_scale);
    pixel_place<T> place(l.classes);
    for_each_tile(l, [&](int64_t image, int64_t first, int count) {
        int64_t at = (image * l.pixels + first) * l.classes;
        bool here = place.pixel < count;
        int own = here ? class_of(l, s, t.labels, image, first + place.pixel) : -1;
        float lse = here ? t.lse[image * l.pixels + first + place.pixel] : 0;
        __syncthreads();
        copy_tile(tile, x + at, count * l.classes);
        __syncthreads();
        if (here) {
            T *own_x = tile + place.pixel * l.classes;
            float slope = own == -2 ? NAN : 0, mean = 0, x_of_own = own >= 0 ? to_float(own_x[own]) : 0;
            if (own >= 0 && pixel_loss_has_pixels(&s))
                slope = (float)((double)t.weights[own] / l.images *
                                pixel_loss_slope(&s, fmin((double)x_of_own - lse, 0.0)));
            if (regions && own >= 0)
                for_each_class<false>(own_x, l.classes, [&](int c, float x) {
                    return mean = fmaf(exp_of(x - lse), t.slopes[(c == own) * l.classes + c], mean);
                });
            auto d_of = [&](int c, bool is_own, float x) {
                float p = exp_of(x - lse), d = slope * (is_own - p);
                if (regions && own >= 0) d = fmaf(p, t.slopes[is_own * l.classes + c] - mean, d);
                return own == -1 ? 0 : d * factor;
            };
            for_each_class<true>(own_x, l.classes, [&](int c, float x) { return d_of(c, false, x); });
            if (own >= 0) own_x[own] = from_float<T>(d_of(own, true, x_of_own));
        }
        __syncthreads();
        copy_tile(d_x + at, tile, count * l.classes);
    });
}

/* Divides the workspace of forward; returns its bytes. */
static size_t tensors_of(const struct call *call, const struct pixel_layout *l, struct pixel_tensors *t)
{
    const struct pixel_loss *s = (const struct pixel_loss *)call->settings;
    size_t used = 0, blocks = (size_t)l->images * (size_t)l->parts, classes = (size_t)l->classes;
    auto take = [&](size_t bytes) {
        void *at = (char *)call->workspace + used;
        used += workspace_align(bytes);
        return at;
    };
    *t = {};
    t->labels = (const uint8_t *)call->x[PIXEL_INPUT_LABELS].data;
    t->weights = (const float *)call->x[PIXEL_INPUT_WEIGHTS].data;
    t->y = (float *)call->y.data;
    if (call->saved_count > 0) {
        t->lse = (float *)call->saved[PIXEL_LSE].data;
        t->slopes = (float *)call->saved[PIXEL_SLOPES].data;
    }
    if (call->phase != PHASE_FORWARD) return 0;
    t->losses = (double *)take(blocks * sizeof(double));
    if (!pixel_loss_has_regions(s)) return used;
    t->parts = (float *)take(blocks * 3 * classes * sizeof(float));
    t->totals = (double *)take(3 * classes * sizeof(double));
    return used;
}

static size_t pixel_loss_workspace(const struct call *call)
{
    struct pixel_layout l = layout_of(call);
    struct pixel_tensors t;
    return tensors_of(call, &l, &t);
}

/* Calls work(T(), regions) with the type of the logits, and whether there are sums by class. */
template <class Work> static enum status with_regions(const struct call *call, Work work)
{
    bool regions = pixel_loss_has_regions((const struct pixel_loss *)call->settings);
    return with_type(call->x[0].dtype, [&](auto type) {
        return regions ? work(type, std::true_type()) : work(type, std::false_type());
    });
}

static enum status pixel_loss_forward(const struct call *call)
{
    const struct pixel_loss *s = (const struct pixel_loss *)call->settings;
    struct pixel_layout l = layout_of(call);
    struct pixel_tensors t;
    tensors_of(call, &l, &t);
    unsigned threads = (unsigned)threads_of(l.classes), blocks = (unsigned)(l.images * l.parts);
    cudaStream_t stream = stream_of(call);
    return with_regions(call, [&](auto type, auto regions) {
        using T = decltype(type);
        size_t sums = regions() ? threads / 32 * 3 * l.classes : 0;
        pixel_loss_forward_kernel<T, regions()>
            <<<blocks, threads, threads * l.classes * sizeof(T) + sums * sizeof(float), stream>>>(
                (const T *)call->x[0].data, l, t, *s);
        if (regions())
            pixel_loss_totals_kernel<<<div_up(3 * l.classes, FINISH_CLASSES),
                                       dim3(FINISH_CLASSES, FINISH_LANES), 0, stream>>>(l, t);
        pixel_loss_finish_kernel<<<1, FINISH_THREADS, 0, stream>>>(l, t, *s);
        return launched(call);
    });
}

static enum status pixel_loss_backward(const struct call *call)
{
    const struct pixel_loss *s = (const struct pixel_loss *)call->settings;
    if (!call->d_x[0].data) return OK;
    struct pixel_layout l = layout_of(call);
    struct pixel_tensors t;
    tensors_of(call, &l, &t);
    unsigned threads = (unsigned)threads_of(l.classes), blocks = (unsigned)(l.images * l.parts);
    return with_regions(call, [&](auto type, auto regions) {
        using T = decltype(type);
        pixel_loss_backward_kernel<T, regions()>
            <<<blocks, threads, threads * l.classes * sizeof(T), stream_of(call)>>>(
                (T *)call->d_x[0].data, (const T *)call->x[0].data, l, t, *s, call->loss_scale,
                (double)call->loss_weight * s->weight);
        return launched(call);
    });
}

const struct op_code pixel_loss_cuda = {
    .workspace = pixel_loss_workspace,
    .forward = pixel_loss_forward,
    .backward = pixel_loss_backward,
};
