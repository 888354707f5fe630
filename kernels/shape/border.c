#include "kernels/shape/border.h"

#include <string.h>

/* The pixel of x for h, w of y, or -1 in the border. */
static int64_t pixel_of_x(const struct border *b, struct shape x, int64_t n, int64_t h, int64_t w)
{
    int64_t i = (h - b->top) * b->stride, j = (w - b->left) * b->stride;
    if (i < 0 || i >= x.h || j < 0 || j >= x.w) return -1;
    return (n * x.h + i) * x.w + j;
}

/* The pixel of y for h, w of x, or -1 if the stride skips it. */
static int64_t pixel_of_y(const struct border *b, struct shape y, int64_t n, int64_t h, int64_t w)
{
    if (h % b->stride || w % b->stride) return -1;
    return (n * y.h + b->top + h / b->stride) * y.w + b->left + w / b->stride;
}

static void pad_row(const struct call *call, const struct border *b, int64_t row)
{
    struct shape x = call->x[0].shape, y = call->y.shape;
    size_t size = dtype_bytes(call->y.dtype);
    char *to = (char *)call->y.data + (size_t)(row * y.w * y.c) * size;
    memset(to, 0, (size_t)(y.w * y.c) * size);
    for (int64_t w = 0; w < y.w; w++) {
        int64_t from = pixel_of_x(b, x, row / y.h, row % y.h, w);
        if (from >= 0)
            memcpy(to + (size_t)(w * y.c + b->front) * size,
                   (const char *)call->x[0].data + (size_t)(from * x.c) * size, (size_t)x.c * size);
    }
}

enum status border_forward(const struct call *call, const struct border *b)
{
    int64_t rows = call->y.shape.n * call->y.shape.h;
#pragma omp parallel for schedule(static) if (rows > 64)
    for (int64_t row = 0; row < rows; row++) pad_row(call, b, row);
    return OK;
}

static void crop_row(const struct call *call, const struct border *b, int64_t row)
{
    struct shape x = call->d_x[0].shape, y = call->d_y.shape;
    size_t size = dtype_bytes(call->d_x[0].dtype);
    char *to = (char *)call->d_x[0].data + (size_t)(row * x.w * x.c) * size;
    for (int64_t w = 0; w < x.w; w++, to += (size_t)x.c * size) {
        int64_t from = pixel_of_y(b, y, row / x.h, row % x.h, w);
        if (from < 0) memset(to, 0, (size_t)x.c * size);
        else memcpy(to, (const char *)call->d_y.data + (size_t)(from * y.c + b->front) * size,
                    (size_t)x.c * size);
    }
}

enum status border_backward(const struct call *call, const struct border *b)
{
    if (!call->d_x[0].data) return OK;
    int64_t rows = call->d_x[0].shape.n * call->d_x[0].shape.h;
#pragma omp parallel for schedule(static) if (rows > 64)
    for (int64_t row = 0; row < rows; row++) crop_row(call, b, row);
    return OK;
}
