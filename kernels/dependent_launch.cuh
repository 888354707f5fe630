/* dependent_launch.cuh: kernels that start while the preceding one on the stream finishes (programmatic
 * dependent launch). */
#pragma once

#include "kernels/cuda.cuh"

/* From capability 9.0 on, a kernel may start before the preceding one has ended, and waits where it first
 * needs that one's results. */
__device__ static inline void let_next_begin(void)
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ static inline void wait_for_last(void)
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

/* Queues a kernel that calls wait_for_last before it reads or writes what others do; it starts early if the
 * preceding one calls let_next_begin. */
template <class... Parameters, class... Arguments>
static enum status launch_behind(const struct call *call, void (*kernel)(Parameters...), dim3 grid,
                                 dim3 block, Arguments... arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream_of(call);
    config.attrs = &early;
    config.numAttrs = cuda_facts(call->device)->capability >= 90;
    cudaError_t error = cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
    return cuda_status(call->device, error, "starting a kernel");
}
