/* matmul.cuh: matrix products by the cuBLASLt algorithm that the autotuner chooses for their shapes. */
#pragma once

#include "kernels/autotune.cuh"

/* D = relu(alpha A B + C + bias), the library's way: columns first, without gaps; D is m x n, A m x k. */
struct matmul_problem {
    enum dtype factor, result;   /* of A and B; of C, D and the bias */
    int64_t m, n, k;
    bool turn_a, turn_b;         /* A lies as k x m, B as n x k */
    bool adds;                   /* C; it may be D */
    bool bias, relu;             /* the bias has m numbers */
    bool mask;                   /* a bit for each number of D that is not 0; m is a multiple of MATMUL_BITS */
    bool deterministic;
};
#define MATMUL_BITS 128

struct matmul_operands {
    const void *a, *b, *c, *bias;
    void *d, *mask;
    float alpha;
    void *scratch;               /* as matmul_scratch says */
};

/* The plan of a product. Without a device it only has a bound for the scratch memory. */
struct matmul;
enum status matmul_open(const struct matmul_problem *problem, struct device *device, struct matmul **made);
void matmul_close(struct matmul *matmul);
size_t matmul_scratch(const struct matmul *matmul);
enum status matmul_run(const struct matmul *matmul, const struct call *call,
                       const struct matmul_operands *operands);
