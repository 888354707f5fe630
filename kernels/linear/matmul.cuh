/* matmul.cuh: matrix products by cuBLASLt, with the algorithm that the autotuner chooses for their shapes. */
#pragma once

#include "kernels/support/autotune.cuh"

/* The place of a matrix's numbers: elements from a column to the next, and from a matrix of a batch to the
 * next. 0: without gaps. */
struct matmul_place {
    int64_t column, matrix;
};

/* D = relu(alpha A B + C + bias), the library's way: columns first; D is m x n, A m x k. */
struct matmul_problem {
    enum dtype factor, result;   /* of A and B; of C, D and the bias */
    int64_t m, n, k;
    int64_t batch;               /* so many products at a time, without bias and mask; 0: one. Each has the
                                  * bits that it has in a smaller batch: none is split */
    int64_t unit;                /* matrices of a batch begin at multiples of so many numbers */
    bool placed;                 /* they lie as these say instead, matrices of a batch even in one place */
    struct matmul_place a_at, b_at, d_at;
    bool turn_a, turn_b;         /* A lies as k x m, B as n x k */
    bool adds;                   /* C; it may be D */
    bool factors;                /* alpha and C's factor are in device memory */
    bool bias, relu;             /* the bias has m numbers */
    bool mask;                   /* a bit for each number of D: 1 if it is not 0; MATMUL_BITS divides m */
    bool tf32;                   /* factors of fp32 may be rounded to it */
    bool deterministic;
    bool any_order;              /* partial sums may be added as they arrive; else in fp32, in one order */
};
#define MATMUL_BITS 128

struct matmul_operands {
    const void *a, *b, *bias;
    const void *c;               /* NULL: it is not added */
    float beta;                  /* c's factor; 0: it is 1 */
    void *d, *mask;
    float alpha;
    const float *factors;        /* of a problem with them: alpha and beta, the latter 0 without c */
    int batch;                   /* of the problem's: the first so many; 0: all */
    void *scratch;               /* as matmul_scratch says */
    bool trial;                  /* a failure is not reported */
};

/* The plan of a product, as chosen by the autotuner. Without a device it only has a bound for the scratch
 * memory. */
struct matmul;
enum status matmul_open(const struct matmul_problem *problem, struct device *device, struct matmul **made);
void matmul_close(struct matmul *matmul);
size_t matmul_scratch(const struct matmul *matmul);
enum status matmul_run(const struct matmul *matmul, const struct call *call,
                       const struct matmul_operands *operands);

#define MATMUL_SCRATCH ((size_t)32 << 20)   /* bytes: what NVIDIA advises to grant on large GPUs */

/* For ops with candidates of other kinds besides: the library's algorithms as candidate names (autotune.cuh)
 * that begin with `prefix`, the one that it thinks fastest first. */
struct matmul_library {
    cublasLtHandle_t handle;
    const char *prefix;
    size_t scratch;              /* bytes that an algorithm may ask for */
};
int matmul_candidates(const struct matmul_library *library, const struct matmul_problem *problem, int most,
                      char names[][PLAN_NAME]);

/* The plan of such a name; NULL if the library does not take it. */
struct matmul *matmul_make(const struct matmul_library *library, const struct matmul_problem *problem,
                           const char *name);
