/* hopper.cuh: instructions of Hopper (capability 9.0) for products of matrices, and what the host asks of
 * kernels that have them, for tiles.cuh. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
 * Instructions". */
#pragma once

#include "kernels/support/cuda.cuh"

namespace hopper {

__device__ static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Eight results of wgmma, as operands. */
#define D8(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ static inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static inline void commit_products()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int count> __device__ static inline void wait_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(count) : "memory");
}

/* Waits until d has all that was multiplied. */
template <int size> __device__ static inline void finish_products(float (&d)[size])
{
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < size; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* Makes what this thread has stored in shared memory visible to tensor cores and copies. */
__device__ static inline void show_stored()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* True if code of the kernel for exactly this capability was compiled, and runs. */
template <class Kernel> static bool is_compiled(Kernel kernel)
{
    struct cudaFuncAttributes found;
    bool good = cudaFuncGetAttributes(&found, kernel) == cudaSuccess;
    if (!good) cudaGetLastError();
    return good && found.binaryVersion == 90 && found.ptxVersion == 90;
}

}
