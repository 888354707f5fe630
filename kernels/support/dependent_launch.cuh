/* dependent_launch.cuh: kernels that start while the preceding one on the stream finishes (programmatic
 * dependent launch). */
#pragma once

#include "kernels/support/cuda.cuh"

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

/* Blocks, the bytes of dynamic shared memory of each, and whether a kernel that calls wait_for_last before it
 * reads or writes what others do starts early, if the preceding one calls let_next_begin. */
struct launch {
    dim3 grid, block;
    size_t shared;
    bool early;
};

template <class... Parameters, class... Arguments>
static enum status launch_as(const struct call *call, void (*kernel)(Parameters...),
                             const struct launch &how, const Arguments &...arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = how.grid;
    config.blockDim = how.block;
    config.dynamicSmemBytes = how.shared;
    config.stream = stream_of(call);
    config.attrs = &early;
    config.numAttrs = how.early && cuda_facts(call->device)->capability >= 90;
    cudaError_t error = cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
    return cuda_status(call->device, error, "starting a kernel");
}

template <class... Parameters, class... Arguments>
static enum status launch_behind(const struct call *call, void (*kernel)(Parameters...), dim3 grid,
                                 dim3 block, Arguments... arguments)
{
    return launch_as(call, kernel, {grid, block, 0, true}, arguments...);
}
