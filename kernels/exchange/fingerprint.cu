/* fingerprint.cu: every eight bytes are mixed with their position (the finalizer of SplitMix64: Steele, Lea,
 * Flood, OOPSLA 2014) and added up, so that the order of blocks does not matter. */
#include "kernels/support/block.cuh"

extern "C" {
#include "kernels/exchange/fingerprint.h"
}

#define THREADS 256
#define BLOCKS 512

__device__ static inline uint64_t mix(uint64_t value, uint64_t place)
{
    uint64_t x = value ^ (place + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* `packs` of 16 bytes, then `rest` single ones. */
__global__ void fingerprint_kernel(const unsigned char *data, size_t packs, size_t rest,
                                   unsigned long long *to)
{
    const ulonglong2 *pairs = (const ulonglong2 *)data;
    size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x, stride = (size_t)gridDim.x * THREADS;
    unsigned long long sum = 0;
    for (size_t i = first; i < packs; i += stride) {
        ulonglong2 pair = pairs[i];
        sum += mix(pair.x, 2 * i) + mix(pair.y, 2 * i + 1);
    }
    for (size_t i = first; i < rest; i += stride) sum += mix(data[16 * packs + i], 2 * packs + i);
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) atomicAdd(to, sum);
}

static enum status fingerprint_compute(struct device *device, void *stream, const void *data, size_t bytes,
                                       uint64_t *to)
{
    size_t packs = (uintptr_t)data % 16 == 0 ? bytes / 16 : 0, rest = bytes - 16 * packs;
    size_t blocks = div_up((packs > rest ? packs : rest) + 1, (size_t)THREADS);
    fingerprint_kernel<<<(unsigned)(blocks < BLOCKS ? blocks : BLOCKS), THREADS, 0, (cudaStream_t)stream>>>(
        (const unsigned char *)data, packs, rest, (unsigned long long *)to);
    return cuda_status(device, cudaGetLastError(), "starting a kernel");
}

const struct fingerprint fingerprint_cuda = {.compute = fingerprint_compute};
