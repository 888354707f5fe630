/* tf32.cuh: rounding of fp32 to what tensor cores read of it. */
#pragma once

#include "kernels/support/cuda.cuh"

/* Into storage as a factor of products: of fp32 tf32's bits, rounded to nearest. */
template <class T> __device__ static inline T factor_from_float(float value)
{
    return from_float<T>(value);
}
template <> __device__ inline float factor_from_float<float>(float value)
{
#if __CUDA_ARCH__ >= 800
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
#else
    return value;
#endif
}
