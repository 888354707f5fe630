/* cpu.h: code shared by the ops on the CPU: loops for several instruction sets, blocks of fp32, work in fixed
 * pieces. */
#pragma once

#include "base/machine.h"
#include "kernels/op.h"

/* Work is divided into pieces by the shape only, never by the number of threads, so that sums do not depend
 * on it. Below PARALLEL elements, starting threads costs more than it gains. */
#define PARALLEL 16384

/* Arithmetic is fp32 whatever the storage: code works on blocks of at most BLOCK elements, which stay in the
 * first-level cache; fp32 data are used in place. */
#define BLOCK 1024

/* Alignment of such a buffer: each vector that crosses lines of the cache takes as long as two. */
#define ALIGNED _Alignas(64)

static inline char *block_address(const struct tensor *tensor, int64_t first)
{
    return (char *)tensor->data + (size_t)first * dtype_bytes(tensor->dtype);
}
/* Elements first .. first + count - 1 as fp32: in place, or in `buffer`. */
static inline const float *block_load(const struct tensor *tensor, int64_t first, int64_t count,
                                      float *buffer)
{
    const void *address = block_address(tensor, first);
    if (tensor->dtype == F32) return address;
    dtype_convert(F32, buffer, tensor->dtype, address, (size_t)count);
    return buffer;
}
/* The buffer to which to write such a block; block_store then stores it. */
static inline float *block_open(const struct tensor *tensor, int64_t first, float *buffer)
{
    return tensor->dtype == F32 ? (float *)tensor->data + first : buffer;
}
static inline void block_store(const struct tensor *tensor, int64_t first, int64_t count, const float *values)
{
    if (tensor->dtype != F32)
        dtype_convert(tensor->dtype, block_address(tensor, first), F32, values, (size_t)count);
}

static inline int64_t min_count(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* The CPU code of each op that has its own, in NAME_cpu.c. */
extern const struct op_code add_cpu, batch_moments_cpu, batchnorm_cpu, lrn_cpu;
