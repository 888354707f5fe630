/* pool_maximum.cu: maxima over windows. The backward pass gathers: each input sums the gradients of the
 * windows that selected it. */
#include "kernels/support/columns.cuh"
#include "kernels/pool/pool_maxima.cuh"

/* Offers every input of the window to `best`. x is where the image's chunk of channels begins. */
template <class T, class Best>
__device__ static inline void walk(Best &best, const T *x, int64_t channels, const struct plane &p, int h,
                                   int w)
{
    struct span rows = inputs_of(p.h, h), columns = inputs_of(p.w, w);
    int step_h = p.h.adaptive ? 1 : p.h.dilation, step_w = p.w.adaptive ? 1 : p.w.dilation;
    best.start(rows.skipped * p.row_length + columns.skipped);
    for (int i = rows.first, row = rows.skipped; i < rows.end; i += step_h, row++)
        for (int j = columns.first, column = columns.skipped; j < columns.end; j += step_w, column++)
            best.take(*(const typename Best::input *)(x + ((int64_t)i * p.w.in + j) * channels),
                      row * p.row_length + column);
}

/* Walks kernels of a known size without dilation: all loads are under way at once. */
template <class T, int kernel, class Best>
__device__ static inline void walk_square(Best &best, const T *x, int64_t channels, const struct plane &p,
                                          int h, int w)
{
    int top = h * p.h.stride - p.h.pad, left = w * p.w.stride - p.w.pad;
    const T *corner = x + ((int64_t)top * p.w.in + left) * channels;
    int64_t pitch = p.w.in * channels;
    typename Best::input got[kernel * kernel];
#pragma unroll
    for (int i = 0; i < kernel * kernel; i++) {
        Best::outside(got[i]);
        if (within(top + i / kernel, p.h.in) && within(left + i % kernel, p.w.in))
            got[i] = *(const typename Best::input *)(corner + i / kernel * pitch + i % kernel * channels);
    }
    best.start(max(-top, 0) * kernel + max(-left, 0));
#pragma unroll
    for (int i = 0; i < kernel * kernel; i++) best.take(got[i], i);
}

/* Where one output's maxima and their numbers go; numbers may be NULL. */
template <class T, class N> struct maxima_output {
    T *y;
    N *numbers;
};

/* The slow code for windows that hold a NaN. */
template <class T, class N, int width>
__device__ __noinline__ static void search_with_nan(maxima_output<T, N> to, const T *x, int64_t channels,
                                                    const struct plane &p, int h, int w)
{
    maxima<T, N, width> best;
    walk<T>(best, x, channels, p, h, w);
    if (p.relu) best.relu();
    best.store(to.y, to.numbers);
}

/* kernel 0: any. */
template <class T, class N, int width, int kernel, class Best>
__global__ void __launch_bounds__(POOL_THREADS, 4)
pool_maximum_kernel(T *y, N *numbers, const T *x, const __grid_constant__ struct plane p,
                    const __grid_constant__ struct tiles t)
{
    int64_t channels = (int64_t)t.chunks * width;
    for_each(t, [&](int64_t n, int h, int w, int c) {
        const T *image = x + n * p.h.in * p.w.in * channels + c * width;
        int64_t at = ((n * t.h + h) * t.w + w) * channels + c * width;
        Best best;
        if constexpr (kernel > 0) walk_square<T, kernel>(best, image, channels, p, h, w);
        else walk<T>(best, image, channels, p, h, w);
        maxima_output<T, N> to = {y + at, numbers ? numbers + at : NULL};
        if (!best.sure()) {
            search_with_nan<T, N, width>(to, image, channels, p, h, w);
            return;
        }
        if (p.relu) best.relu();
        best.store(to.y, to.numbers);
    });
}

template <class T, class N, int width>
__global__ void __launch_bounds__(POOL_THREADS, 4)
pool_maximum_backward_kernel(T *d_x, const T *d_y, const N *numbers, const __grid_constant__ struct plane p,
                             const __grid_constant__ struct tiles t)
{
    int64_t channels = (int64_t)t.chunks * width;
    for_each(t, [&](int64_t n, int h, int w, int c) {
        struct span rows = outputs_of(p.h, h), columns = outputs_of(p.w, w);
        int64_t first = n * p.h.out * p.w.out * channels + c * width;
        float sum[width] = {};
        for (int i = rows.first; i < rows.end; i++)
            for (int j = columns.first; j < columns.end; j++) {
                int row = position_of(p.h, i, h), column = position_of(p.w, j, w);
                if (row < 0 || column < 0) continue;
                int64_t at = first + ((int64_t)i * p.w.out + j) * channels;
                positions<N, width> position;
                position.load(numbers + at);
                chunk<T, width> given = *(const chunk<T, width> *)(d_y + at);
#pragma unroll
                for (int e = 0; e < width; e++)
                    if (position.is(e, row * p.row_length + column)) sum[e] += to_float(given.at[e]);
            }
        chunk<T, width> result;
#pragma unroll
        for (int e = 0; e < width; e++) result.at[e] = from_float<T>(sum[e]);
        *(chunk<T, width> *)(d_x + ((n * t.h + h) * t.w + w) * channels + c * width) = result;
    });
}

/* Backward of kernels and strides of a known size without dilation. A thread makes a cell of stride x stride
 * inputs, of which the first is where a window begins: so the numbers in the windows over them are constants.
 * The windows are those of the cell's own output and of some before it, in both directions. Only with 16-bit
 * numbers does the compiler have to be held to registers for four blocks. */
template <class T, int width, int kernel, int stride>
__global__ void __launch_bounds__(POOL_THREADS, sizeof(T) == 4 ? 0 : 4)
pool_maximum_cells_kernel(T *d_x, const T *d_y, const uint8_t *numbers,
                          const __grid_constant__ struct plane p, const __grid_constant__ struct tiles t)
{
    constexpr int back = (kernel + stride - 1) / stride;
    int64_t channels = (int64_t)t.chunks * width;
    for_each(t, [&](int64_t n, int i, int j, int c) {
        positions<uint8_t, width> place[back][back];
        chunk<T, width> given[back][back];
        int64_t out_pitch = p.w.out * channels, in_pitch = p.w.in * channels;
        int64_t own = ((n * p.h.out + i) * p.w.out + j) * channels + c * width;
#pragma unroll
        for (int u = 0; u < back; u++)
#pragma unroll
            for (int v = 0; v < back; v++) {
                place[u][v].none();
                if (!within(i - u, p.h.out) || !within(j - v, p.w.out)) continue;
                int64_t at = own - u * out_pitch - v * channels;
                place[u][v].load(numbers + at);
                given[u][v] = *(const chunk<T, width> *)(d_y + at);
            }
        int top = i * stride - p.h.pad, left = j * stride - p.w.pad;
        int64_t corner = ((n * p.h.in + top) * p.w.in + left) * channels + c * width;
#pragma unroll
        for (int a = 0; a < stride; a++)
#pragma unroll
            for (int b = 0; b < stride; b++) {
                if (!within(top + a, p.h.in) || !within(left + b, p.w.in)) continue;
                float sum[width] = {};
#pragma unroll
                for (int u = back - 1; u >= 0; u--)
#pragma unroll
                    for (int v = back - 1; v >= 0; v--) {
                        if (a + u * stride >= kernel || b + v * stride >= kernel) continue;
#pragma unroll
                        for (int e = 0; e < width; e++)
                            if (place[u][v].is(e, (a + u * stride) * kernel + b + v * stride))
                                sum[e] += to_float(given[u][v].at[e]);
                    }
                chunk<T, width> result;
#pragma unroll
                for (int e = 0; e < width; e++) result.at[e] = from_float<T>(sum[e]);
                *(chunk<T, width> *)(d_x + corner + a * in_pitch + b * channels) = result;
            }
    });
}

/* How many cells of `stride` inputs cover an axis, the first beginning in the border. */
static int64_t cells_of(const struct pool_axis *axis)
{
    return div_up(axis->in + axis->pad, axis->stride);
}

/* The tensors of a call, with their types. */
template <class T, class N, int width> struct pooling {
    const struct call *call;
    const struct pool_plane *plane;

    template <int kernel> enum status forward() const
    {
        struct tiles t = tiles_of(call->y.shape, width);
        N *numbers = call->saved_count ? (N *)call->saved[0].data : NULL;
        auto launch = [&](auto best) {
            using Best = decltype(best);
            pool_maximum_kernel<T, N, width, kernel, Best><<<grid_of(t), POOL_THREADS, 0, stream_of(call)>>>(
                (T *)call->y.data, numbers, (const T *)call->x[0].data, plane_of(plane), t);
            return launched(call);
        };
        if constexpr (sizeof(T) == 2 && sizeof(N) == 1 && width > 1) return launch(paired_maxima<T>());
        else return launch(maxima<T, N, width>());
    }

    enum status backward() const
    {
        struct tiles t = tiles_of(call->d_x[0].shape, width);
        pool_maximum_backward_kernel<T, N, width><<<grid_of(t), POOL_THREADS, 0, stream_of(call)>>>(
            (T *)call->d_x[0].data, (const T *)call->d_y.data, (const N *)call->saved[0].data,
            plane_of(plane), t);
        return launched(call);
    }

    template <int kernel, int stride> enum status backward_cells() const
    {
        struct shape d_x = call->d_x[0].shape;
        struct tiles t = tiles_of(shape_nhwc(d_x.n, cells_of(&plane->h), cells_of(&plane->w), d_x.c), width);
        pool_maximum_cells_kernel<T, width, kernel, stride><<<grid_of(t), POOL_THREADS, 0, stream_of(call)>>>(
            (T *)call->d_x[0].data, (const T *)call->d_y.data, (const N *)call->saved[0].data,
            plane_of(plane), t);
        return launched(call);
    }
};

/* Calls work(pooling, known): numbers of bytes have code for known kernels. */
template <class Work>
static enum status with_pooling(const struct call *call, const struct pool_plane *plane, struct shape made,
                                Work work)
{
    TRY(plane_check(plane));
    if (shape_count(made) == 0) return OK;
    return with_chunk(call->d_y.data ? call->d_y.dtype : call->y.dtype, made.c, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        if (plane->h.adaptive) return work(pooling<T, int32_t, width>{call, plane}, constant<0>());
        return work(pooling<T, uint8_t, width>{call, plane}, constant<1>());
    });
}

enum status pool_maximum_cuda(const struct call *call, const struct pool_plane *plane)
{
    return with_pooling(call, plane, call->y.shape, [&](const auto &pooling, auto known) {
        if constexpr (decltype(known)::number) {
            if (known_kernel(plane) == 2) return pooling.template forward<2>();
            if (known_kernel(plane) == 3) return pooling.template forward<3>();
        }
        return pooling.template forward<0>();
    });
}

size_t pool_maximum_workspace_cuda(const struct call *call)
{
    return call_operand(call, OPERAND_D_X_SUMS) ? columns_workspace(&call->d_y, false) : 0;
}

/* The sums of d_x are those of d_y, as far as its maxima are anywhere. */
enum status pool_maximum_backward_cuda(const struct call *call, const struct pool_plane *plane)
{
    if (!call->d_x[0].data) return OK;
    float *sums = (float *)call_data(call, OPERAND_D_X_SUMS);
    if (sums)
        TRY(columns_sum_where(call, &call->d_y, sums, (const uint8_t *)call->saved[0].data, POOL_NOWHERE));
    return with_pooling(call, plane, call->d_x[0].shape, [&](const auto &pooling, auto known) {
        if constexpr (decltype(known)::number) {
            int kernel = known_kernel(plane), stride = (int)plane->h.stride;
            if (kernel == 2 && stride == 2) return pooling.template backward_cells<2, 2>();
            if (kernel == 3 && stride == 2) return pooling.template backward_cells<3, 2>();
            if (kernel == 3 && stride == 3) return pooling.template backward_cells<3, 3>();
        }
        return pooling.backward();
    });
}
