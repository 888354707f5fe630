/* cuda.cuh: code shared by the ops on CUDA: storage types, packs of 16 bytes, launches and their errors. */
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

extern "C" {
#include "base/align.h"
#include "device/cuda.h"
#include "kernels/codes_cuda.h"
#include "kernels/op.h"
}

/* Arithmetic is fp32; these convert from and to storage, rounding to nearest even. */
__device__ static inline float to_float(float value) { return value; }
__device__ static inline float to_float(__half value) { return __half2float(value); }
__device__ static inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T> __device__ static inline T from_float(float value);
template <> __device__ inline float from_float<float>(float value) { return value; }
template <> __device__ inline __half from_float<__half>(float value) { return __float2half_rn(value); }
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}

/* 2^x, by one instruction; 0 where that is below 2^-126. */
__device__ static inline float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The 16 bytes that one thread moves at once. */
template <class T> struct alignas(16) pack {
    static constexpr int count = 16 / sizeof(T);
    T at[count];
};

/* Calls work(T()) with the C++ type of a floating dtype: `work` is a generic lambda that returns a status. */
template <class Work> static inline enum status with_type(enum dtype dtype, Work work)
{
    switch (dtype) {
    case F32: return work(float());
    case F16: return work(__half());
    case BF16: return work(__nv_bfloat16());
    case U8:
    case I32:
    case I64:
    case F64:
    case DTYPE_COUNT: break;
    }
    return fail(FAILED, "%s is not stored by any kernel", dtype_table[dtype].name);
}

static inline cudaStream_t stream_of(const struct call *call) { return (cudaStream_t)call->stream; }

/* The device's; those of an H200 if there is none, as in plans for one. */
static inline int multiprocessors_of(const struct device *device)
{
    return device ? cuda_facts(device)->multiprocessors : 132;
}

/* The error of a launch, reported. */
static inline enum status launched(const struct call *call)
{
    return cuda_status(call->device, cudaGetLastError(), "starting a kernel");
}

template <class I> __host__ __device__ static inline I div_up(I a, I b) { return (a + b - 1) / b; }

/* Bytes up to where the next operand may begin in a workspace. */
static inline size_t workspace_align(size_t bytes) { return align_up(bytes, 256); }

/* Blocks of `threads` for `count` threads in all, but no more than fill every multiprocessor with 2048
 * threads `waves` times: for kernels with grid-stride loops. */
static inline unsigned grid_of(const struct call *call, int64_t count, int threads, int waves = 1)
{
    int64_t most = (int64_t)cuda_facts(call->device)->multiprocessors * (2048 / threads) * waves;
    int64_t blocks = div_up(count, (int64_t)threads);
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}
