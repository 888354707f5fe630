/* orthogonalize.cuh: the Newton-Schulz iterations of orthogonalize.h on CUDA: products of bf16 numbers, which
 * are added up in fp32. */
#pragma once

#include "kernels/support/cuda.cuh"

/* Where things lie in the scratch memory of a matrix: bytes. */
struct orthogonalize_rooms {
    size_t input;              /* fp32: what is to be orthogonalised, row by row */
    size_t x, y, a, b;         /* bf16: the iterate and the next one, as the matrix lies; the products */
    size_t products;           /* cuBLASLt's own: UPDATE_PRODUCT_BYTES */
};
struct orthogonalize_rooms orthogonalize_rooms(int64_t rows, int64_t columns);

/* Prepares the products of matrices of this size. */
struct orthogonalizer;
enum status orthogonalizer_open(struct device *device, int64_t rows, int64_t columns,
                                struct orthogonalizer **made);
void orthogonalizer_close(struct orthogonalizer *o);     /* accepts NULL */

/* Queues the iterations of x, whose norm is 1; the result is at *result. */
enum status orthogonalizer_run(const struct orthogonalizer *o, struct device *device, void *stream,
                               char *scratch, const __nv_bfloat16 **result);
