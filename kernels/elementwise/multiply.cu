#include "kernels/elementwise/elementwise.cuh"
#include "kernels/support/rows.cuh"

extern "C" {
#include "kernels/elementwise/multiply.h"
}

/* y = x * factor: the layout of spread_rows_kernel. y may be x. */
template <class T, int width>
__global__ void __launch_bounds__(SPREAD_THREADS)
multiply_rows_kernel(T *y, const T *x, const T *factor, struct rows_layout l, unsigned groups)
{
    unsigned tile = blockIdx.x % (unsigned)l.tiles, rest = blockIdx.x / (unsigned)l.tiles;
    unsigned group = rest % groups, image = rest / groups;
    int64_t column = ((int64_t)tile * l.across + threadIdx.x) * width;
    if (column >= l.columns) return;
    chunk<T, width> by = *(const chunk<T, width> *)(factor + image * l.columns + column), in[SPREAD_ROWS];
    int64_t first = (int64_t)group * SPREAD_ROWS * l.down + threadIdx.y;
    int64_t start = image * l.rows * l.columns + column;
#pragma unroll
    for (int i = 0; i < SPREAD_ROWS; i++) {
        int64_t row = first + (int64_t)i * l.down;
        if (row < l.rows) in[i] = *(const chunk<T, width> *)(x + start + row * l.columns);
    }
#pragma unroll
    for (int i = 0; i < SPREAD_ROWS; i++) {
        int64_t row = first + (int64_t)i * l.down;
        if (row >= l.rows) return;
#pragma unroll
        for (int e = 0; e < width; e++)
            in[i].at[e] = from_float<T>(to_float(in[i].at[e]) * to_float(by.at[e]));
        *(chunk<T, width> *)(y + start + row * l.columns) = in[i];
    }
}

static enum status multiply_rows(const struct call *call, const struct tensor *y, const struct tensor *x)
{
    struct multiply_extent e = multiply_extent(x->shape, call->x[1].shape);
    if (e.images * e.rows * e.columns == 0) return OK;
    return with_chunk(y->dtype, e.columns, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        int64_t groups;
        struct rows_layout l = spread_layout({e.images, e.rows, e.columns, 1}, width, &groups);
        multiply_rows_kernel<T, width>
            <<<(unsigned)(e.images * groups * l.tiles), dim3(l.across, l.down), 0, stream_of(call)>>>(
                (T *)y->data, (const T *)x->data, (const T *)call->x[1].data, l, (unsigned)groups);
        return launched(call);
    });
}

static bool same_shapes(const struct call *call) { return shape_equal(call->x[0].shape, call->x[1].shape); }

static enum status multiply_forward(const struct call *call)
{
    if (!same_shapes(call)) return multiply_rows(call, &call->y, &call->x[0]);
    return map_tensors(call, &call->y, &call->x[0], &call->x[1],
                       [] __device__(float a, float b) { return a * b; });
}

/* Both gradients of an image's columns; d_x may be d_y, or NULL. The layout of sum_rows_kernel. */
template <class T> struct multiply_gradients {
    const T *x, *factor, *d_y;
    T *d_x, *d_factor;
};

template <class T, int width>
__global__ void __launch_bounds__(ROWS_THREADS)
multiply_backward_kernel(struct multiply_gradients<T> g, struct rows_layout l)
{
    extern __shared__ float room[];
    unsigned image = blockIdx.x / (unsigned)l.tiles, tile = blockIdx.x % (unsigned)l.tiles;
    int64_t column = ((int64_t)tile * l.across + threadIdx.x) * width;
    column_sums<1, width> sum = {};
    if (column < l.columns) {
        chunk<T, width> by = *(const chunk<T, width> *)(g.factor + image * l.columns + column);
        int64_t start = image * l.rows * l.columns + column;
#pragma unroll 4
        for (int64_t row = threadIdx.y; row < l.rows; row += l.down) {
            chunk<T, width> d = *(const chunk<T, width> *)(g.d_y + start + row * l.columns);
            chunk<T, width> x = *(const chunk<T, width> *)(g.x + start + row * l.columns);
#pragma unroll
            for (int e = 0; e < width; e++) {
                sum.at[0][e] = fmaf(to_float(d.at[e]), to_float(x.at[e]), sum.at[0][e]);
                d.at[e] = from_float<T>(to_float(d.at[e]) * to_float(by.at[e]));
            }
            if (g.d_x) *(chunk<T, width> *)(g.d_x + start + row * l.columns) = d;
        }
    }
    merge_lanes<merge_sums>(sum, threadIdx.y, threadIdx.x, l.across, l.down, room);
    if (threadIdx.y > 0 || column >= l.columns) return;
    chunk<T, width> result;
#pragma unroll
    for (int e = 0; e < width; e++) result.at[e] = from_float<T>(sum.at[0][e]);
    *(chunk<T, width> *)(g.d_factor + image * l.columns + column) = result;
}

static enum status multiply_backward_rows(const struct call *call)
{
    struct multiply_extent e = multiply_extent(call->x[0].shape, call->x[1].shape);
    if (e.images * e.columns == 0) return OK;
    return with_chunk(call->d_y.dtype, e.columns, [&](auto type, auto wide) {
        using T = decltype(type);
        constexpr int width = decltype(wide)::number;
        struct rows_layout l = rows_layout(call, {e.images, e.rows, e.columns, 1}, width);
        struct multiply_gradients<T> g = {(const T *)call->x[0].data, (const T *)call->x[1].data,
                                          (const T *)call->d_y.data, (T *)call->d_x[0].data,
                                          (T *)call->d_x[1].data};
        dim3 threads(l.across, l.down);
        multiply_backward_kernel<T, width>
            <<<(unsigned)(l.images * l.tiles), threads, merge_bytes(l, width), stream_of(call)>>>(g, l);
        return launched(call);
    });
}

/* d_x[0] may lie over d_y, so it comes last. */
static enum status multiply_backward(const struct call *call)
{
    auto product = [] __device__(float a, float b) { return a * b; };
    if (!same_shapes(call) && call->d_x[1].data) return multiply_backward_rows(call);
    if (call->d_x[1].data) TRY(map_tensors(call, &call->d_x[1], &call->d_y, &call->x[0], product));
    if (!call->d_x[0].data) return OK;
    if (!same_shapes(call)) return multiply_rows(call, &call->d_x[0], &call->d_y);
    return map_tensors(call, &call->d_x[0], &call->d_y, &call->x[1], product);
}

const struct op_code multiply_cuda = {.forward = multiply_forward, .backward = multiply_backward};
