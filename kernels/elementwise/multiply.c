/* multiply: y = x[0] * x[1], where the second may be n, 1, 1, c: a factor for each channel of an image, as in
 * squeeze and excitation (Hu, Shen, Sun 2018).
 *
 *   d_x[0] = d_y * x[1],   d_x[1] = d_y * x[0], summed over h and w where it is 1x1. */
#include "kernels/elementwise/multiply.h"

#include "kernels/codes_cuda.h"
#include "kernels/elementwise/elementwise.h"

static bool multiply_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                           struct reason *reason)
{
    char first[SHAPE_TEXT], second[SHAPE_TEXT];
    if (!shape_equal(x[0], x[1]) && !shape_equal(shape_nhwc(x[0].n, 1, 1, x[0].c), x[1]))
        return because(reason, "the second input is %s, neither %s as the first nor 1x1 with its channels",
                       shape_text(x[1], second), shape_text(x[0], first));
    *y = x[0];
    return true;
}

static enum status multiply_forward(const struct call *call)
{
    struct multiply_extent e = multiply_extent(call->x[0].shape, call->x[1].shape);
    for (int64_t i = 0; i < shape_count(call->y.shape); i++) {
        int64_t factor = i / (e.rows * e.columns) * e.columns + i % e.columns;
        tensor_set(&call->y, i, tensor_get(&call->x[0], i) * tensor_get(&call->x[1], factor));
    }
    return OK;
}

static double factor_gradient(const struct call *call, const struct multiply_extent *e, int64_t factor)
{
    int64_t first = factor / e->columns * e->rows * e->columns + factor % e->columns;
    double sum = 0;
    for (int64_t row = 0; row < e->rows; row++)
        sum += tensor_get(&call->d_y, first + row * e->columns) *
               tensor_get(&call->x[0], first + row * e->columns);
    return sum;
}

static enum status multiply_backward(const struct call *call)
{
    struct multiply_extent e = multiply_extent(call->x[0].shape, call->x[1].shape);
    for (int64_t i = 0; call->d_x[1].data && i < shape_count(call->x[1].shape); i++)
        tensor_set(&call->d_x[1], i, factor_gradient(call, &e, i));
    for (int64_t i = 0; call->d_x[0].data && i < shape_count(call->y.shape); i++) {
        int64_t factor = i / (e.rows * e.columns) * e.columns + i % e.columns;
        tensor_set(&call->d_x[0], i, tensor_get(&call->d_y, i) * tensor_get(&call->x[1], factor));
    }
    return OK;
}

static const struct op_code reference = {.forward = multiply_forward, .backward = multiply_backward};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 2, {SHAPE(3, 7, 7, 24), SHAPE(3, 1, 1, 24)}},
    {"", 2, {SHAPE(2, 5, 3, 5), SHAPE(2, 5, 3, 5)}},
    {"", 2, {SHAPE(1, 31, 7, 3), SHAPE(1, 1, 1, 3)}},
    {"", 2, {SHAPE(4, 1, 1, 16), SHAPE(4, 1, 1, 16)}},
    {"", 2, {SHAPE(2, 9, 9, 1160), SHAPE(2, 1, 1, 1160)}},
    {0},
};

const struct op multiply_op = {
    .name = "multiply",
    .help = "Elementwise product; the second input may be 1x1, a factor for each channel of an image.",
    .min_inputs = 2,
    .max_inputs = 2,
    .shape = multiply_shape,
    .reads = elementwise_reads_x,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &multiply_cpu,
    .cuda = ON_CUDA(multiply_cuda),
    .examples = examples,
};
