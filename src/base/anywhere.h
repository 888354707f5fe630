/* anywhere.h: marks small functions that run on the CPU and in CUDA kernels alike. */
#ifndef BASE_ANYWHERE_H
#define BASE_ANYWHERE_H

#ifdef __CUDACC__
#define ANYWHERE __host__ __device__ inline
#else
#define ANYWHERE static inline __attribute__((always_inline))
#endif

#endif
