/* tokens.cu: prepend, position, token_pool and patch_merge: a thread moves one chunk of channels of a token
 * at a time. */
#include "kernels/support/copy.cuh"
#include "kernels/support/columns.cuh"

extern "C" {
#include "kernels/tokens/tokens.h"
}

#define THREADS 256

/* Tensors of `images` * `tokens` * `columns`; the columns are counted in chunks. */
struct token_layout {
    int64_t count;             /* of chunks */
    int tokens, columns;
    int first, end;            /* tokens that are learned, or that count */
    float factor;
};

static struct token_layout token_layout(struct shape shape, int width)
{
    return {.count = shape_count(shape) / width, .tokens = (int)token_count(shape),
            .columns = (int)(shape.c / width)};
}

template <class T, int width> __device__ static inline chunk<T, width> round_chunk(const float *from)
{
    chunk<T, width> to;
#pragma unroll
    for (int e = 0; e < width; e++) to.at[e] = from_float<T>(from[e]);
    return to;
}

/* Calls work(index, image, token, column) for every chunk. */
template <class Work> __device__ static inline void each_chunk(const struct token_layout &l, Work work)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < l.count;
         i += (int64_t)gridDim.x * THREADS) {
        int64_t row = i / l.columns, image = row / l.tokens;
        work(i, image, (int)(row - image * l.tokens), (int)(i - row * l.columns));
    }
}

/* Queues a kernel over all chunks of `tensor`. */
#define EACH_CHUNK(kernel, call, l, ...)                                                                  \
    (kernel<T, width><<<grid_of(call, (l).count, THREADS, 4), THREADS, 0, stream_of(call)>>>(__VA_ARGS__), \
     launched(call))

/* ---- Sums over images ---- */

/* to[column] = sum over images of from[image * pitch + column]. */
template <class T, int width> __global__ void __launch_bounds__(THREADS)
sum_images_kernel(float *to, const T *from, int images, int64_t columns, int64_t pitch)
{
    __shared__ merge_room<column_sums<1, width>, THREADS> room;
    int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * width;
    column_sums<1, width> sum = {};
    if (column < columns) {
#pragma unroll 4
        for (int image = threadIdx.y; image < images; image += blockDim.y) {
            chunk<T, width> got = *(const chunk<T, width> *)(from + image * pitch + column);
#pragma unroll
            for (int e = 0; e < width; e++) sum.at[0][e] += to_float(got.at[e]);
        }
    }
    merge_lanes<merge_sums>(sum, threadIdx.y, threadIdx.x, blockDim.x, blockDim.y, room);
    if (threadIdx.y > 0 || column >= columns) return;
#pragma unroll
    for (int e = 0; e < width; e++) to[column + e] = sum.at[0][e];
}

/* Sums the first elements of each image, as tokens_sum_images does. */
static enum status sum_images(const struct call *call, const struct tensor *from, const struct tensor *to)
{
    int64_t images = from->shape.n, pitch = shape_count(from->shape) / images;
    int64_t columns = shape_count(to->shape);
    return with_chunk(from->dtype, from->shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        dim3 threads(8, THREADS / 8);
        unsigned blocks = (unsigned)div_up(columns / width, (int64_t)threads.x);
        sum_images_kernel<T, width><<<blocks, threads, 0, stream_of(call)>>>(
            (float *)to->data, (const T *)from->data, (int)images, columns, pitch);
        return launched(call);
    });
}

/* ---- prepend ---- */

template <class T, int width> __global__ void __launch_bounds__(THREADS)
prepend_kernel(T *y, const T *x, const float *learned, struct token_layout l)
{
    each_chunk(l, [&](int64_t i, int64_t image, int token, int column) {
        int64_t skipped = (image + 1) * l.end * l.columns;
        chunk<T, width> value;
        if (token < l.end)
            value = round_chunk<T, width>(learned + ((int64_t)token * l.columns + column) * width);
        else
            value = ((const chunk<T, width> *)x)[i - skipped];
        ((chunk<T, width> *)y)[i] = value;
    });
}

template <class T, int width> __global__ void __launch_bounds__(THREADS)
prepend_backward_kernel(T *d_x, const T *d_y, struct token_layout l)
{
    each_chunk(l, [&](int64_t i, int64_t image, int token, int column) {
        if (token < l.end) return;
        int64_t skipped = (image + 1) * l.end * l.columns;
        ((chunk<T, width> *)d_x)[i - skipped] = ((const chunk<T, width> *)d_y)[i];
    });
}

static enum status prepend_forward(const struct call *call)
{
    const struct prepend *s = (const struct prepend *)call->settings;
    return with_chunk(call->y.dtype, call->y.shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct token_layout l = token_layout(call->y.shape, width);
        l.end = (int)s->count;
        return EACH_CHUNK(prepend_kernel, call, l, (T *)call->y.data, (const T *)call->x[0].data,
                          (const float *)call->params[0].data, l);
    });
}

static enum status prepend_backward(const struct call *call)
{
    const struct prepend *s = (const struct prepend *)call->settings;
    if (call->d_params[0].data) TRY(sum_images(call, &call->d_y, &call->d_params[0]));
    if (!call->d_x[0].data) return OK;
    return with_chunk(call->d_y.dtype, call->d_y.shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct token_layout l = token_layout(call->d_y.shape, width);
        l.end = (int)s->count;
        return EACH_CHUNK(prepend_backward_kernel, call, l, (T *)call->d_x[0].data,
                          (const T *)call->d_y.data, l);
    });
}

const struct op_code prepend_cuda = {
    .forward = prepend_forward,
    .backward = prepend_backward,
};

/* ---- position ---- */

/* y may be x. */
template <class T, int width> __global__ void __launch_bounds__(THREADS)
position_kernel(T *y, const T *x, const float *position, struct token_layout l)
{
    each_chunk(l, [&](int64_t i, int64_t image, int token, int column) {
        chunk<T, width> value = ((const chunk<T, width> *)x)[i];
        const float *add = position + ((int64_t)token * l.columns + column) * width;
#pragma unroll
        for (int e = 0; e < width; e++) value.at[e] = from_float<T>(to_float(value.at[e]) + add[e]);
        ((chunk<T, width> *)y)[i] = value;
    });
}

static enum status position_forward(const struct call *call)
{
    return with_chunk(call->y.dtype, call->y.shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct token_layout l = token_layout(call->y.shape, width);
        return EACH_CHUNK(position_kernel, call, l, (T *)call->y.data, (const T *)call->x[0].data,
                          (const float *)call->params[0].data, l);
    });
}

static enum status position_backward(const struct call *call)
{
    if (call->d_params[0].data) TRY(sum_images(call, &call->d_y, &call->d_params[0]));
    return call->d_x[0].data ? copy_tensor(call, &call->d_x[0], &call->d_y) : OK;
}

const struct op_code position_cuda = {
    .forward = position_forward,
    .backward = position_backward,
};

/* ---- token_pool ---- */

template <class T, int width> __global__ void __launch_bounds__(THREADS)
token_pool_kernel(T *y, const T *x, struct token_layout l)
{
    __shared__ merge_room<column_sums<1, width>, THREADS> room;
    int column = (blockIdx.x % div_up(l.columns, (int)blockDim.x)) * blockDim.x + threadIdx.x;
    int64_t image = blockIdx.x / div_up(l.columns, (int)blockDim.x);
    column_sums<1, width> sum = {};
    if (column < l.columns) {
#pragma unroll 4
        for (int token = l.first + threadIdx.y; token < l.end; token += blockDim.y) {
            int64_t row = image * l.tokens + token;
            chunk<T, width> got = ((const chunk<T, width> *)x)[row * l.columns + column];
#pragma unroll
            for (int e = 0; e < width; e++) sum.at[0][e] += to_float(got.at[e]);
        }
    }
    merge_lanes<merge_sums>(sum, threadIdx.y, threadIdx.x, blockDim.x, blockDim.y, room);
    if (threadIdx.y > 0 || column >= l.columns) return;
    chunk<T, width> result;
#pragma unroll
    for (int e = 0; e < width; e++) result.at[e] = from_float<T>(sum.at[0][e] * l.factor);
    ((chunk<T, width> *)y)[image * l.columns + column] = result;
}

template <class T, int width> __global__ void __launch_bounds__(THREADS)
token_pool_backward_kernel(T *d_x, const T *d_y, struct token_layout l)
{
    each_chunk(l, [&](int64_t i, int64_t image, int token, int column) {
        chunk<T, width> value = {};
        if (token >= l.first && token < l.end) {
            value = ((const chunk<T, width> *)d_y)[image * l.columns + column];
#pragma unroll
            for (int e = 0; e < width; e++) value.at[e] = from_float<T>(to_float(value.at[e]) * l.factor);
        }
        ((chunk<T, width> *)d_x)[i] = value;
    });
}

static struct token_layout pooled_layout(const struct call *call, struct shape x, int width)
{
    const struct token_pool *s = (const struct token_pool *)call->settings;
    struct token_layout l = token_layout(x, width);
    bool mean = s->mode == TOKEN_POOL_MEAN;
    l.first = mean ? (int)s->prefix : 0;
    l.end = mean ? l.tokens : 1;
    l.factor = 1 / (float)(l.end - l.first);
    return l;
}

static enum status token_pool_forward(const struct call *call)
{
    struct shape x = call->x[0].shape;
    return with_chunk(call->y.dtype, x.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct token_layout l = pooled_layout(call, x, width);
        int across = power_up(l.columns, 32), down = l.end - l.first > 1 ? THREADS / across : 1;
        unsigned blocks = (unsigned)(x.n * div_up(l.columns, across));
        token_pool_kernel<T, width><<<blocks, dim3(across, down), 0, stream_of(call)>>>(
            (T *)call->y.data, (const T *)call->x[0].data, l);
        return launched(call);
    });
}

static enum status token_pool_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    return with_chunk(call->d_y.dtype, call->d_y.shape.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct token_layout l = pooled_layout(call, call->d_x[0].shape, width);
        return EACH_CHUNK(token_pool_backward_kernel, call, l, (T *)call->d_x[0].data,
                          (const T *)call->d_y.data, l);
    });
}

const struct op_code token_pool_cuda = {
    .forward = token_pool_forward,
    .backward = token_pool_backward,
};

/* ---- patch_merge ---- */

/* `words` of a pixel of x. */
struct merge_layout {
    int64_t count;
    int h, w, merged_h, merged_w, words;
};

/* Copies between x and y, either of which may be what is written. */
template <class W, bool back> __global__ void __launch_bounds__(THREADS)
patch_merge_kernel(W *x, W *y, struct merge_layout l)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < l.count;
         i += (int64_t)gridDim.x * THREADS) {
        int64_t quarter = i / l.words, pixel = quarter / 4, row = pixel / l.merged_w;
        int q = (int)(quarter % 4), word = (int)(i - quarter * l.words);
        int h = 2 * (int)(row % l.merged_h) + q % 2, w = 2 * (int)(pixel - row * l.merged_w) + q / 2;
        bool inside = h < l.h && w < l.w;
        W *at = x + ((row / l.merged_h * l.h + h) * l.w + w) * l.words + word;
        if (back && inside) *at = y[i];
        if (!back) y[i] = inside ? *at : W{};
    }
}

static enum status patch_merge_run(const struct call *call, const struct tensor *x, const struct tensor *y,
                                   bool back)
{
    struct shape from = x->shape, to = y->shape;
    size_t bytes = (size_t)from.c * dtype_bytes(x->dtype);
    return with_word(bytes, [&](auto word) {
        using W = decltype(word);
        struct merge_layout l = {.h = (int)from.h, .w = (int)from.w, .merged_h = (int)to.h,
                                 .merged_w = (int)to.w, .words = (int)(bytes / sizeof(W))};
        l.count = to.n * to.h * to.w * 4 * l.words;
        unsigned blocks = grid_of(call, l.count, THREADS, 4);
        auto kernel = back ? patch_merge_kernel<W, true> : patch_merge_kernel<W, false>;
        kernel<<<blocks, THREADS, 0, stream_of(call)>>>((W *)x->data, (W *)y->data, l);
        return launched(call);
    });
}

static enum status patch_merge_forward(const struct call *call)
{
    return patch_merge_run(call, &call->x[0], &call->y, false);
}

static enum status patch_merge_backward(const struct call *call)
{
    return call->d_x[0].data ? patch_merge_run(call, &call->d_x[0], &call->d_y, true) : OK;
}

const struct op_code patch_merge_cuda = {
    .forward = patch_merge_forward,
    .backward = patch_merge_backward,
};
