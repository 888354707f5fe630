/* orthogonalize.cuh: the Newton-Schulz iterations of orthogonalize.h on CUDA: products of bf16 numbers, which
 * are added up in fp32. */
#pragma once

#include "kernels/support/cuda.cuh"

extern "C" {
#include "kernels/optimizer/orthogonalize.h"
}

/* Prepares the products of batches of at most `most` matrices of this size; a matrix gets the same bits in a
 * batch of fewer. */
struct orthogonalizer;
enum status orthogonalizer_open(struct device *device, int64_t rows, int64_t columns, int most,
                                struct orthogonalizer **made);
void orthogonalizer_close(struct orthogonalizer *o);     /* accepts NULL */

/* `batch` matrices in scratch memory of orthogonalize_rooms. */
struct orthogonalizer_call {
    struct device *device;
    void *stream;
    char *scratch;
    int batch;
    char *to;                  /* bf16: the results; it may be the room y */
};

/* Queues the iterations of x, whose norms are 1. */
enum status orthogonalizer_run(const struct orthogonalizer *o, const struct orthogonalizer_call *at);
