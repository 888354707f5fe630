#include "device/cuda_libraries.h"

LIBRARY_ONCE(extern, cudnn, LIBRARY_FILE("cudnn", CUDNN_MAJOR), CUDNN_FUNCTIONS)
LIBRARY_ONCE(extern, cublaslt, LIBRARY_FILE("cublasLt", CUBLAS_VER_MAJOR), CUBLASLT_FUNCTIONS)
