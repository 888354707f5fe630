/* anywhere.h: the attribute of small functions that run on the CPU and in CUDA kernels. */
#pragma once

#ifdef __CUDACC__
#define ANYWHERE __host__ __device__ inline
#else
#define ANYWHERE static inline __attribute__((always_inline))
#endif

/* A product and a sum in fp32, each rounded separately: nvcc would fuse them, which the host compiler is told
 * not to do. */
ANYWHERE float rounded_product(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

ANYWHERE float rounded_sum(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}
