/* matrices.cuh: products by a warp of 16-bit matrices in shared memory, and of tf32, by mma.sync (PTX ISA,
 * "Matrix Fragments for mma.m16n8k16", "mma.m16n8k8"); copies to them. */
#pragma once

#include "kernels/support/cuda.cuh"

namespace matrices {

/* Rows of `size` numbers lie as 16-byte units, permuted or with a unit between them, so that the units of
 * eight rows at one place are in different banks. */
template <int size> __host__ __device__ constexpr int pitch()
{
    return size == 64 || size == 32 ? size / 8 : size / 8 + 1;
}

template <int size> __device__ static inline int unit_of(int row, int unit)
{
    if (size == 64) unit ^= row & 7;
    if (size == 32) unit ^= row >> 1 & 3;
    return row * pitch<size>() + unit;
}

template <int size> __host__ __device__ constexpr int matrix_bytes(int rows)
{
    return rows * pitch<size>() * 16;
}

__device__ static inline uint32_t address_of(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

#if __CUDA_ARCH__ >= 800 || !defined(__CUDA_ARCH__)

/* Copies 16 bytes, or writes zeros. */
__device__ static inline void copy_unit(uint4 *to, const void *from, bool here)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address_of(to)), "l"(from),
                 "r"(here ? 16 : 0) : "memory");
}

__device__ static inline void copy_word(float *to, const float *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address_of(to)), "l"(from) : "memory");
}

__device__ static inline void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ static inline void load_matrices(uint32_t (&to)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ static inline void load_turned(uint32_t (&to)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ static inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                       __half)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ static inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                       __nv_bfloat16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The instruction of tf32 has half as many products. */
__device__ static inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#else

__device__ static inline void copy_unit(uint4 *, const void *, bool) {}
__device__ static inline void copy_word(float *, const float *) {}
__device__ static inline void copies_wait() {}
__device__ static inline void load_matrices(uint32_t (&)[4], uint32_t) {}
__device__ static inline void load_turned(uint32_t (&)[4], uint32_t) {}
template <class T>
__device__ static inline void multiply(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t, T) {}

#endif

}
