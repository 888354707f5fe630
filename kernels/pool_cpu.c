/* pool_cpu.c: averages and maxima over windows, a block of channels at a time, threads over rows. Backward
 * gathers: each input adds up what the windows over it give, in one order, so that no two threads write one. */
#include <math.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/pool.h"

EVERY_MACHINE static void add_scaled(const float *x, float scale, float *sum, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] += scale * x[i];
}

EVERY_MACHINE static void multiply(float *values, float factor, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) values[i] *= factor;
}

/* Channels c .. c + count - 1 of one output pixel. */
static void average_pixel(const struct call *call, const struct pool_plane *plane, int64_t n, int64_t h,
                          int64_t w, int64_t c, int64_t count)
{
    float buffer[BLOCK], sum[BLOCK];
    struct pool_span rows = pool_inputs(&plane->h, h), columns = pool_inputs(&plane->w, w);
    memset(sum, 0, (size_t)count * sizeof *sum);
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = columns.first; j < columns.end; j++)
            add_scaled(block_load(&call->x[0], tensor_at(&call->x[0], n, i, j, c), count, buffer), 1, sum, count);
    multiply(sum, (float)(1 / pool_divisor(plane, h, w)), count);
    dtype_convert(call->y.dtype, block_address(&call->y, tensor_at(&call->y, n, h, w, c)), F32, sum, (size_t)count);
}

/* Row `row` of all rows of all outputs. */
static void average_row(const struct call *call, const struct pool_plane *plane, int64_t row)
{
    struct shape y = call->y.shape;
    for (int64_t w = 0; w < y.w; w++)
        for (int64_t c = 0; c < y.c; c += BLOCK)
            average_pixel(call, plane, row / y.h, row % y.h, w, c, min_count(BLOCK, y.c - c));
}

enum status pool_average_cpu(const struct call *call, const struct pool_plane *plane)
{
    int64_t rows = call->y.shape.n * call->y.shape.h;
#pragma omp parallel for schedule(static) if (shape_count(call->x[0].shape) > PARALLEL)
    for (int64_t row = 0; row < rows; row++) average_row(call, plane, row);
    return OK;
}

static void spread_pixel(const struct call *call, const struct pool_plane *plane, int64_t n, int64_t h,
                         int64_t w, int64_t c, int64_t count)
{
    float buffer[BLOCK], sum[BLOCK];
    struct pool_span rows = pool_outputs(&plane->h, h), columns = pool_outputs(&plane->w, w);
    memset(sum, 0, (size_t)count * sizeof *sum);
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = columns.first; j < columns.end; j++)
            add_scaled(block_load(&call->d_y, tensor_at(&call->d_y, n, i, j, c), count, buffer),
                       (float)(1 / pool_divisor(plane, i, j)), sum, count);
    dtype_convert(call->d_x[0].dtype, block_address(&call->d_x[0], tensor_at(&call->d_x[0], n, h, w, c)), F32,
                  sum, (size_t)count);
}

static void spread_row(const struct call *call, const struct pool_plane *plane, int64_t row)
{
    struct shape x = call->d_x[0].shape;
    for (int64_t w = 0; w < x.w; w++)
        for (int64_t c = 0; c < x.c; c += BLOCK)
            spread_pixel(call, plane, row / x.h, row % x.h, w, c, min_count(BLOCK, x.c - c));
}

enum status pool_average_backward_cpu(const struct call *call, const struct pool_plane *plane)
{
    if (!call->d_x[0].data) return OK;
    int64_t rows = call->d_x[0].shape.n * call->d_x[0].shape.h;
#pragma omp parallel for schedule(static) if (shape_count(call->d_x[0].shape) > PARALLEL)
    for (int64_t row = 0; row < rows; row++) spread_row(call, plane, row);
    return OK;
}

/* A NaN takes over, the last of several, as in torch. */
EVERY_MACHINE static void take_greater(const float *x, int32_t number, float *best, int32_t *numbers, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        int take = (x[i] > best[i]) | (x[i] != x[i]);
        best[i] = take ? x[i] : best[i];
        numbers[i] = take ? number : numbers[i];
    }
}

EVERY_MACHINE static void narrow(const int32_t *numbers, uint8_t *bytes, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) bytes[i] = (uint8_t)numbers[i];
}

EVERY_MACHINE static void add_where_byte(const float *d_y, const uint8_t *numbers, uint8_t number, float *sum,
                                         int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] += numbers[i] == number ? d_y[i] : 0;
}

EVERY_MACHINE static void add_where(const float *d_y, const int32_t *numbers, int32_t number, float *sum,
                                    int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] += numbers[i] == number ? d_y[i] : 0;
}

static void save_numbers(const struct tensor *saved, int64_t first, const int32_t *numbers, int64_t count)
{
    if (saved->dtype == U8) narrow(numbers, (uint8_t *)saved->data + first, count);
    else memcpy((int32_t *)saved->data + first, numbers, (size_t)count * sizeof *numbers);
}

static void maximum_pixel(const struct call *call, const struct pool_plane *plane, int64_t n, int64_t h,
                          int64_t w, int64_t c, int64_t count)
{
    float buffer[BLOCK], best[BLOCK];
    int32_t numbers[BLOCK];
    struct pool_span rows = pool_inputs(&plane->h, h), columns = pool_inputs(&plane->w, w);
    int32_t number = (int32_t)pool_number(plane, h, w, rows.first, columns.first);
    for (int64_t k = 0; k < count; k++) best[k] = -INFINITY;
    for (int64_t k = 0; k < count; k++) numbers[k] = number;
    for (int64_t i = rows.first; i < rows.end; i += rows.step)
        for (int64_t j = columns.first; j < columns.end; j += columns.step) {
            const float *x = block_load(&call->x[0], tensor_at(&call->x[0], n, i, j, c), count, buffer);
            take_greater(x, (int32_t)pool_number(plane, h, w, i, j), best, numbers, count);
        }
    int64_t at = tensor_at(&call->y, n, h, w, c);
    dtype_convert(call->y.dtype, block_address(&call->y, at), F32, best, (size_t)count);
    if (call->saved_count) save_numbers(&call->saved[0], at, numbers, count);
}

static void maximum_row(const struct call *call, const struct pool_plane *plane, int64_t row)
{
    struct shape y = call->y.shape;
    for (int64_t w = 0; w < y.w; w++)
        for (int64_t c = 0; c < y.c; c += BLOCK)
            maximum_pixel(call, plane, row / y.h, row % y.h, w, c, min_count(BLOCK, y.c - c));
}

enum status pool_maximum_cpu(const struct call *call, const struct pool_plane *plane)
{
    int64_t rows = call->y.shape.n * call->y.shape.h;
#pragma omp parallel for schedule(static) if (shape_count(call->x[0].shape) > PARALLEL)
    for (int64_t row = 0; row < rows; row++) maximum_row(call, plane, row);
    return OK;
}

static void collect_pixel(const struct call *call, const struct pool_plane *plane, int64_t n, int64_t h,
                          int64_t w, int64_t c, int64_t count)
{
    float buffer[BLOCK], sum[BLOCK];
    const struct tensor *saved = &call->saved[0];
    struct pool_span rows = pool_outputs(&plane->h, h), columns = pool_outputs(&plane->w, w);
    memset(sum, 0, (size_t)count * sizeof *sum);
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = columns.first; j < columns.end; j++) {
            int64_t number = pool_number(plane, i, j, h, w), at = tensor_at(&call->d_y, n, i, j, c);
            if (number < 0) continue;
            const float *d_y = block_load(&call->d_y, at, count, buffer);
            if (saved->dtype == U8)
                add_where_byte(d_y, (const uint8_t *)saved->data + at, (uint8_t)number, sum, count);
            else add_where(d_y, (const int32_t *)saved->data + at, (int32_t)number, sum, count);
        }
    dtype_convert(call->d_x[0].dtype, block_address(&call->d_x[0], tensor_at(&call->d_x[0], n, h, w, c)), F32,
                  sum, (size_t)count);
}

static void collect_row(const struct call *call, const struct pool_plane *plane, int64_t row)
{
    struct shape x = call->d_x[0].shape;
    for (int64_t w = 0; w < x.w; w++)
        for (int64_t c = 0; c < x.c; c += BLOCK)
            collect_pixel(call, plane, row / x.h, row % x.h, w, c, min_count(BLOCK, x.c - c));
}

enum status pool_maximum_backward_cpu(const struct call *call, const struct pool_plane *plane)
{
    if (!call->d_x[0].data) return OK;
    int64_t rows = call->d_x[0].shape.n * call->d_x[0].shape.h;
#pragma omp parallel for schedule(static) if (shape_count(call->d_x[0].shape) > PARALLEL)
    for (int64_t row = 0; row < rows; row++) collect_row(call, plane, row);
    return OK;
}
