/* multiply_cpu.c: multiplication in blocks of fp32 of a row; one thread computes the sums of an image. */
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/elementwise/multiply.h"
#include "kernels/support/pixels_cpu.h"

/* Columns first .. first + count - 1 of an image: to = from * factor, all rows. */
static void multiply_stripe(const struct tensor *to, const struct tensor *from, const float *factor,
                            const struct multiply_extent *e, int64_t begin, int64_t count)
{
    ALIGNED float in[BLOCK], out[BLOCK];
    for (int64_t row = 0; row < e->rows; row++) {
        int64_t at = begin + row * e->columns;
        float *y = block_open(to, at, out);
        pixels_multiply(block_load(from, at, count, in), factor, y, count);
        block_store(to, at, count, y);
    }
}

/* Sums the same columns of the factor's gradient. */
static void sum_stripe(const struct call *call, const struct multiply_extent *e, int64_t begin,
                       int64_t factor, int64_t count)
{
    ALIGNED float a[BLOCK], b[BLOCK], sum[BLOCK];
    memset(sum, 0, sizeof sum);
    for (int64_t row = 0; row < e->rows; row++) {
        int64_t at = begin + row * e->columns;
        pixels_add_products(block_load(&call->x[0], at, count, a), block_load(&call->d_y, at, count, b), sum,
                            count);
    }
    dtype_convert(call->d_x[1].dtype, block_address(&call->d_x[1], factor), F32, sum, (size_t)count);
}

/* Calls of the two above for columns from `column` on of an image. */
static void multiply_piece(const struct call *call, const struct multiply_extent *e, int64_t image,
                           int64_t column)
{
    ALIGNED float factors[BLOCK];
    int64_t count = min_count(BLOCK, e->columns - column), at = image * e->columns + column;
    int64_t begin = image * e->rows * e->columns + column;
    const float *factor = block_load(&call->x[1], at, count, factors);
    if (call->phase == PHASE_FORWARD) {
        multiply_stripe(&call->y, &call->x[0], factor, e, begin, count);
        return;
    }
    if (call->d_x[1].data) sum_stripe(call, e, begin, at, count);
    if (call->d_x[0].data) multiply_stripe(&call->d_x[0], &call->d_y, factor, e, begin, count);
}

static enum status multiply_cpu_run(const struct call *call)
{
    struct multiply_extent e = multiply_extent(call->x[0].shape, call->x[1].shape);
    int64_t across = pieces(e.columns, BLOCK);
#pragma omp parallel for schedule(static) if (e.images * e.rows * e.columns > PARALLEL)
    for (int64_t i = 0; i < e.images * across; i++) multiply_piece(call, &e, i / across, i % across * BLOCK);
    return OK;
}

const struct op_code multiply_cpu = {.forward = multiply_cpu_run, .backward = multiply_cpu_run};
