/* activation.cuh: the formulas of activations.def on CUDA. */
#pragma once

#include "kernels/support/chunk.cuh"

#define OVER(a, z) __fdividef(a, 1 + __expf(-(z)))
#define SIXTH(a) __fmul_rn(a, 1 / 6.0f)
#define PRODUCT(a, b) __fmul_rn(a, b)

template <enum activation activation> __device__ static inline float activate(float z, float slope)
{
#define ACTIVATION(NAME, op, value, help, forward, backward)                                              \
    if constexpr (activation == ACTIVATION_##NAME) return forward;
#include "kernels/activations.def"
#undef ACTIVATION
    return z;
}

/* The gradient of z, where d is that of the result. */
template <enum activation activation> __device__ static inline float pass_back(float z, float d, float slope)
{
#define ACTIVATION(NAME, op, value, help, forward, backward)                                              \
    if constexpr (activation == ACTIVATION_##NAME) return backward;
#include "kernels/activations.def"
#undef ACTIVATION
    return d;
}

/* True if the gradient does not follow from the result. */
constexpr bool activation_reads_x(enum activation activation)
{
    enum { y, x };
#define ACTIVATION(NAME, op, value, ...)                                                                  \
    if (activation == ACTIVATION_##NAME) return value;
#include "kernels/activations.def"
#undef ACTIVATION
    return false;
}

/* Calls work with the activation as an integral constant. */
template <class Work> static inline enum status with_activation(enum activation activation, Work work)
{
    switch (activation) {
#define ACTIVATION(NAME, ...)                                                                             \
    case ACTIVATION_##NAME: return work(constant<ACTIVATION_##NAME>());
#include "kernels/activations.def"
#undef ACTIVATION
    case ACTIVATION_NONE: break;
    }
    return work(constant<ACTIVATION_NONE>());
}
