/* multiply.h: definitions shared by the CPU and CUDA code of multiply. */
#pragma once

#include "kernels/op.h"

/* The first input as `images` matrices of rows x columns, each multiplied by a row of the second: tensors of
 * one shape are a single row. */
struct multiply_extent {
    int64_t images, rows, columns;
};
static inline struct multiply_extent multiply_extent(struct shape x, struct shape factor)
{
    if (shape_equal(x, factor)) return (struct multiply_extent){1, 1, shape_count(x)};
    return (struct multiply_extent){x.n, x.h * x.w, x.c};
}

extern const struct op_code multiply_cpu;
