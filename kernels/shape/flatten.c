/* flatten: n, h, w, c to n, 1, 1, c * h * w in torch's order, channel by channel, so that weights
 * of a linear layer behind it mean the same. Nothing moves when h * w or c is 1. */
#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/op.h"

static bool flatten_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                          struct reason *reason)
{
    *y = shape_nhwc(x[0].n, 1, 1, x[0].c * x[0].h * x[0].w);
    return true;
}

static bool in_order(const struct shape *x)
{
    return x->c == 1 || x->h * x->w == 1;
}

static bool in_place(const void *settings, enum phase phase, int x_count, const struct shape *x)
{
    return in_order(&x[0]);
}

static bool passes_gradient(const void *settings, int x_count, const struct shape *x)
{
    return in_order(&x[0]);
}

/* to[column][row] = from[row][column]. */
#define TRANSPOSE(type)                                                                                  \
    for (int64_t i = 0; i < columns; i++)                                                                \
        for (int64_t j = 0; j < rows; j++)                                                               \
            ((type *)to->data + first)[i * rows + j] = ((const type *)from->data + first)[j * columns + i];

static void transpose(const struct tensor *to, const struct tensor *from, int64_t first, int64_t rows,
                      int64_t columns)
{
    switch (dtype_bytes(to->dtype)) {
    case 2: TRANSPOSE(uint16_t) return;
    case 4: TRANSPOSE(float) return;
    default: TRANSPOSE(double)
    }
}

static void flatten_convert(const struct tensor *to, const struct tensor *from)
{
    if (to->data != from->data)
        dtype_convert(to->dtype, to->data, from->dtype, from->data, (size_t)shape_count(to->shape));
}

static enum status flatten_forward(const struct call *call)
{
    struct shape x = call->x[0].shape;
    int64_t image = x.h * x.w * x.c;
    if (in_order(&x)) {
        flatten_convert(&call->y, &call->x[0]);
        return OK;
    }
#pragma omp parallel for schedule(static) if (x.n * image > PARALLEL)
    for (int64_t n = 0; n < x.n; n++) transpose(&call->y, &call->x[0], n * image, x.h * x.w, x.c);
    return OK;
}

static enum status flatten_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct shape x = call->d_x[0].shape;
    int64_t image = x.h * x.w * x.c;
    if (in_order(&x)) {
        flatten_convert(&call->d_x[0], &call->d_y);
        return OK;
    }
#pragma omp parallel for schedule(static) if (x.n * image > PARALLEL)
    for (int64_t n = 0; n < x.n; n++) transpose(&call->d_x[0], &call->d_y, n * image, x.c, x.h * x.w);
    return OK;
}

static const struct op_code reference = {.forward = flatten_forward, .backward = flatten_backward};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 1, {SHAPE(3, 7, 5, 24)}},
    {"", 1, {SHAPE(3, 1, 1, 5)}},
    {"", 1, {SHAPE(1, 31, 7, 1)}},
    {"", 1, {SHAPE(1, 7, 7, 3)}},
    {0},
};

const struct op flatten_op = {
    .name = "flatten",
    .help = "Flattens each image to a vector in PyTorch's order.",
    .shape = flatten_shape,
    .in_place = in_place,
    .passes_gradient = passes_gradient,
    .reference = &reference,
    .cuda = ON_CUDA(flatten_cuda),
    .examples = examples,
};
