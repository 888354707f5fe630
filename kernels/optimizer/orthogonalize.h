/* orthogonalize.h: the nearest matrix with orthonormal rows or columns, roughly: Newton-Schulz iterations on
 * the CPU, in fp32; memory of those on a GPU. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Five steps of a quintic iteration, whose coefficients drive singular values to between 0.7 and 1.2 (Jordan
 * et al., Muon, 2024): A = X X^T; X = a X + (b A + c A A) X. */
#define ORTHOGONALIZE_STEPS 5
#define ORTHOGONALIZE_A 3.4445
#define ORTHOGONALIZE_B (-4.7750)
#define ORTHOGONALIZE_C 2.0315
#define ORTHOGONALIZE_EPS 1e-7      /* added to the norm that X begins divided by */

/* Floats of scratch memory for a matrix. */
int64_t orthogonalize_scratch(int64_t rows, int64_t columns);

/* Where the caller puts the matrix, row by row, in that memory. */
float *orthogonalize_input(float *scratch, int64_t rows, int64_t columns);

/* The result: `count` floats, which lie anywhere. */
struct orthogonal {
    const float *x;
    int64_t rows, count;       /* of x's panels; of x */
    bool turned;
};

/* Without x, which may be another rank's. */
struct orthogonal orthogonal_layout(int64_t rows, int64_t columns);

/* Iterates; `squares` is the sum of the squares of the matrix; x is in the scratch memory. The bits do not
 * depend on the number of threads. */
struct orthogonal orthogonalize(float *scratch, int64_t rows, int64_t columns, double squares);

/* An element of the result. */
float orthogonal_at(const struct orthogonal *made, int64_t row, int64_t column);

/* ---- On a GPU (orthogonalize.cuh) ---- */

/* Matrices of a batch begin at multiples of so many numbers. */
#define ORTHOGONALIZE_UNIT 128
int64_t orthogonalize_stride(int64_t numbers);

/* How many matrices, of `alike` of one size, are worth one product: those that fill a GPU. */
int orthogonalize_batch(int64_t rows, int64_t columns, int alike);

/* Where the parts of a batch lie in its scratch memory: bytes. */
struct orthogonalize_rooms {
    size_t input;              /* fp32: what is to be orthogonalised, row by row */
    size_t x, y, a, b;         /* bf16: the iterate and the next one, as the matrix lies; the products */
    size_t products;           /* cuBLASLt's own */
    size_t end;
};
struct orthogonalize_rooms orthogonalize_rooms(int64_t rows, int64_t columns, int batch);
