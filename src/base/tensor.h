/* tensor.h: a view of an array in memory; tensors never own memory. */
#pragma once

#include <stddef.h>

#include "dtype.h"
#include "shape.h"

struct tensor {
    void *data;          /* NULL: this tensor is absent (a gradient that is not needed) */
    enum dtype dtype;
    struct shape shape;
};

static inline size_t tensor_bytes(const struct tensor *tensor)
{
    return (size_t)shape_count(tensor->shape) * dtype_bytes(tensor->dtype);
}

/* Element access by flat index, for reference code and tests. */
static inline double tensor_get(const struct tensor *tensor, int64_t index)
{
    return dtype_get(tensor->dtype, tensor->data, index);
}
static inline void tensor_set(const struct tensor *tensor, int64_t index, double value)
{
    dtype_set(tensor->dtype, tensor->data, index, value);
}
/* The flat index of n, h, w, c. */
static inline int64_t tensor_at(const struct tensor *tensor, int64_t n, int64_t h, int64_t w, int64_t c)
{
    const struct shape *s = &tensor->shape;
    return ((n * s->h + h) * s->w + w) * s->c + c;
}
