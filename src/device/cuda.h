/* cuda.h: the interface of the CUDA device for the ops' CUDA code, in addition to device.h. */
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "device/cuda_families.h"
#include "device/cuda_libraries.h"
#include "device/device.h"

/* Facts that choices depend on. */
struct cuda_facts {
    char name[256];            /* "NVIDIA H200" */
    int capability;            /* 90 is 9.0 */
    int multiprocessors;
    size_t shared_bytes;       /* that one block may ask for */
};
const struct cuda_facts *cuda_facts(const struct device *device);

/* The library's handle for this stream (call->stream). Handles belong to the device, for the thread that
 * opened it. NO_DEVICE, reported, if the library cannot be initialised. */
enum status cuda_cudnn(struct device *device, void *stream, cudnnHandle_t *handle);
/* For any thread, which also becomes one of this device. */
enum status cuda_cublaslt(struct device *device, cublasLtHandle_t *handle);

/* A cuDNN handle for any thread that creates plans, for which the device is also selected; to be returned for
 * others to use. */
enum status cuda_cudnn_borrow(struct device *device, cudnnHandle_t *handle);
void cuda_cudnn_return(struct device *device, cudnnHandle_t handle);

/* The autotuner's choice for `key`, in this process or the one that this run resumes; NULL: none. The
 * caller frees it. Any thread; keys and choices as in cuda_tuning.h. */
char *cuda_choice(struct device *device, const char *key);
void cuda_choose(struct device *device, const char *key, const char *choice);

/* Timing needs exclusive use of the device: only one thread at a time is between these two, and has exclusive
 * access to the results of timing. */
struct families *cuda_timing_begin(struct device *device);
void cuda_timing_end(struct device *device);

/* OK, or NO_DEVICE and a report that names the GPU and what was tried ("a copy to the device"). */
enum status cuda_status(const struct device *device, cudaError_t error, const char *trying);
enum status cuda_cudnn_status(const struct device *device, cudnnStatus_t error, const char *trying);
