#include "device/cuda_driver.h"

#include <cuda_runtime_api.h>

bool cuda_driver_find(const char *name, int version, void *function)
{
    enum cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, function, (unsigned)version, cudaEnableDefault, &result);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &result);
#endif
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) return true;
    cudaGetLastError();
    return false;
}
