/* cuda_libraries.h: cuDNN and cuBLASLt, which are opened with the first device: relocating them takes 0.1 s.
 * cudnn()->cudnnCreate(...) is a call. */
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include "base/library.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDNN_FUNCTIONS(X)                                                                                 \
    X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnGetLastErrorString)                                   \
    X(cudnnCreate) X(cudnnDestroy) X(cudnnGetStream) X(cudnnSetStream)                                     \
    X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendFinalize)               \
    X(cudnnBackendGetAttribute) X(cudnnBackendSetAttribute) X(cudnnBackendExecute)

#define CUBLASLT_FUNCTIONS(X)                                                                              \
    X(cublasLtGetVersion) X(cublasLtGetStatusString) X(cublasLtCreate) X(cublasLtDestroy)                  \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute)             \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                                   \
    X(cublasLtMatmulPreferenceSetAttribute)                                                                \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoCheck) X(cublasLtMatmul)

struct cudnn {
    CUDNN_FUNCTIONS(LIBRARY_MEMBER)
};
struct cublaslt {
    CUBLASLT_FUNCTIONS(LIBRARY_MEMBER)
};

/* Open it, once, in any thread; false with a reason if it is not installed, or is of another version. */
bool cudnn_open(struct reason *why);
bool cublaslt_open(struct reason *why);

/* Never NULL where there is a device. */
const struct cudnn *cudnn(void);
const struct cublaslt *cublaslt(void);

#ifdef __cplusplus
}
#endif
