/* cublaslt.cuh: cuBLASLt's data types, and its algorithms as candidate names (autotune.cuh). */
#pragma once

#include "kernels/autotune.cuh"

static inline cudaDataType_t cublaslt_type(enum dtype dtype)
{
    return dtype == F16 ? CUDA_R_16F : dtype == BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

#define CUBLASLT_WORDS ((int)(sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t)))

/* `prefix` and the algorithm's bits. */
static inline void cublaslt_print(const char *prefix, const cublasLtMatmulAlgo_t *algorithm,
                                  char name[CANDIDATE_NAME])
{
    int length = snprintf(name, CANDIDATE_NAME, "%s ", prefix);
    for (int i = 0; i < CUBLASLT_WORDS; i++)
        length += snprintf(name + length, CANDIDATE_NAME - (size_t)length, "%016llx",
                           (unsigned long long)algorithm->data[i]);
}

static inline bool cublaslt_parse(const char *prefix, const char *name, cublasLtMatmulAlgo_t *algorithm)
{
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0 || name[length] != ' ') return false;
    const char *at = name + length + 1;
    for (int i = 0; i < CUBLASLT_WORDS; i++, at += 16) {
        unsigned long long bits;
        if (strlen(at) < 16 || sscanf(at, "%16llx", &bits) != 1) return false;
        algorithm->data[i] = bits;
    }
    return *at == '\0';
}
