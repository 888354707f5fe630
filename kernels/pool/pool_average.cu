/* pool_average.cu: averages over windows; those over whole images are computed as sums of rows. The backward
 * pass gathers. */
#include "kernels/support/copy.cuh"
#include "kernels/pool/pool.cuh"
#include "kernels/support/rows.cuh"

template <class T, int width>
__device__ static inline void add(float sum[width], const chunk<T, width> &x, float share)
{
#pragma unroll
    for (int e = 0; e < width; e++) sum[e] += share * to_float(x.at[e]);
}

template <class T, int width> __device__ static inline void store(T *to, const float sum[width], float share)
{
    chunk<T, width> result;
#pragma unroll
    for (int e = 0; e < width; e++) result.at[e] = from_float<T>(sum[e] * share);
    *(chunk<T, width> *)to = result;
}

/* The rows and columns of an image that a window covers, or the windows that cover a pixel. */
struct extent {
    struct span rows, columns;
};

/* Adds up the chunks at these rows and columns, at most `most` of each: all loads are under way at once.
 * share_at(i, j) is the weight of a position's value. */
template <class T, int width, int most, class Share>
__device__ static inline void add_square(float sum[width], const T *image, int64_t channels, int pitch,
                                         struct extent over, Share share_at)
{
    struct span rows = over.rows, columns = over.columns;
    chunk<T, width> got[most * most];
#pragma unroll
    for (int k = 0; k < most * most; k++) {
        int i = rows.first + k / most, j = columns.first + k % most;
        if (i < rows.end && j < columns.end)
            got[k] = *(const chunk<T, width> *)(image + ((int64_t)i * pitch + j) * channels);
    }
#pragma unroll
    for (int k = 0; k < most * most; k++) {
        int i = rows.first + k / most, j = columns.first + k % most;
        if (i < rows.end && j < columns.end) add<T, width>(sum, got[k], share_at(i, j));
    }
}

template <class T, int width, class Share>
__device__ static inline void add_any(float sum[width], const T *image, int64_t channels, int pitch,
                                      struct extent over, Share share_at)
{
    struct span rows = over.rows, columns = over.columns;
    for (int i = rows.first; i < rows.end; i++)
        for (int j = columns.first; j < columns.end; j++) {
            chunk<T, width> got = *(const chunk<T, width> *)(image + ((int64_t)i * pitch + j) * channels);
            add<T, width>(sum, got, share_at(i, j));
        }
}

/* most: the most rows and columns of a window, if so few that there is code for them; 0: any number. */
template <class T, int width, int most>
__global__ void __launch_bounds__(POOL_THREADS)
pool_average_kernel(T *y, const T *x, const __grid_constant__ struct plane p,
                    const __grid_constant__ struct tiles t)
{
    int64_t channels = (int64_t)t.chunks * width;
    for_each(t, [&](int64_t n, int h, int w, int c) {
        struct extent over = {inputs_of(p.h, h), inputs_of(p.w, w)};
        const T *image = x + n * p.h.in * p.w.in * channels + c * width;
        float sum[width] = {};
        auto all = [](int, int) { return 1.0f; };
        if constexpr (most > 0) add_square<T, width, most>(sum, image, channels, p.w.in, over, all);
        else add_any<T, width>(sum, image, channels, p.w.in, over, all);
        store<T, width>(y + ((n * t.h + h) * t.w + w) * channels + c * width, sum, share_of(p, h, w));
    });
}

/* most: the most windows that hold a row or column, likewise. */
template <class T, int width, int most>
__global__ void __launch_bounds__(POOL_THREADS)
pool_average_backward_kernel(T *d_x, const T *d_y, const __grid_constant__ struct plane p,
                             const __grid_constant__ struct tiles t)
{
    int64_t channels = (int64_t)t.chunks * width;
    for_each(t, [&](int64_t n, int h, int w, int c) {
        struct extent over = {outputs_of(p.h, h), outputs_of(p.w, w)};
        const T *image = d_y + n * p.h.out * p.w.out * channels + c * width;
        int pitch = p.w.out;
        float sum[width] = {};
        auto share = [&](int i, int j) { return share_of(p, i, j); };
        if constexpr (most > 0) add_square<T, width, most>(sum, image, channels, pitch, over, share);
        else add_any<T, width>(sum, image, channels, pitch, over, share);
        store<T, width>(d_x + ((n * t.h + h) * t.w + w) * channels + c * width, sum, 1);
    });
}

static bool covers_all(const struct pool_axis *axis)
{
    struct pool_span span = pool_inputs(axis, 0);
    return axis->out == 1 && span.first == 0 && span.end == axis->in;
}

static bool is_global(const struct pool_plane *plane)
{
    return covers_all(&plane->h) && covers_all(&plane->w);
}

static bool is_identity(const struct pool_plane *plane)
{
    return plane->h.adaptive && plane->h.in == plane->h.out && plane->w.in == plane->w.out;
}

/* How many windows at most hold an input, along each axis; 0: there is no code for so many. */
static int known_covers(const struct pool_plane *plane)
{
    if (plane->h.adaptive) return 0;
    int64_t covers = div_up(plane->h.kernel, plane->h.stride);
    return covers <= 3 ? (int)covers : 0;
}

/* Calls work(most), a constant, with `known`. */
template <class Work> static enum status with_max_windows(int known, Work work)
{
    if (known == 1) return work(constant<1>());
    if (known == 2) return work(constant<2>());
    if (known == 3) return work(constant<3>());
    return work(constant<0>());
}

enum status pool_average_cuda(const struct call *call, const struct pool_plane *plane)
{
    struct shape x = call->x[0].shape;
    float share = (float)(1 / pool_divisor(plane, 0, 0));
    TRY(plane_check(plane));
    if (shape_count(call->y.shape) == 0) return OK;
    if (is_identity(plane)) return copy_tensor(call, &call->y, &call->x[0]);
    return with_chunk(call->y.dtype, x.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        T *to = (T *)call->y.data;
        const T *from = (const T *)call->x[0].data;
        if (is_global(plane))
            return sum_rows<T, T, width>(call, to, from, {x.n, x.h * x.w, x.c, share});
        return with_max_windows(known_kernel(plane), [&](auto most) {
            constexpr int number = decltype(most)::number;
            struct tiles t = tiles_of(call->y.shape, width);
            pool_average_kernel<T, width, number><<<grid_of(t), POOL_THREADS, 0, stream_of(call)>>>(
                to, from, plane_of(plane), t);
            return launched(call);
        });
    });
}

enum status pool_average_backward_cuda(const struct call *call, const struct pool_plane *plane)
{
    if (!call->d_x[0].data) return OK;
    struct shape x = call->d_x[0].shape;
    float share = (float)(1 / pool_divisor(plane, 0, 0));
    TRY(plane_check(plane));
    if (shape_count(x) == 0) return OK;
    if (is_identity(plane)) return copy_tensor(call, &call->d_x[0], &call->d_y);
    return with_chunk(call->d_y.dtype, x.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        T *to = (T *)call->d_x[0].data;
        const T *from = (const T *)call->d_y.data;
        if (is_global(plane))
            return spread_rows<T, width>(call, to, from, {x.n, x.h * x.w, x.c, share});
        return with_max_windows(known_covers(plane), [&](auto most) {
            constexpr int number = decltype(most)::number;
            struct tiles t = tiles_of(x, width);
            pool_average_backward_kernel<T, width, number><<<grid_of(t), POOL_THREADS, 0, stream_of(call)>>>(
                to, from, plane_of(plane), t);
            return launched(call);
        });
    });
}
