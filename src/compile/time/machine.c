#include "compile/time/machine.h"

#include <string.h>

/* NVLink among the GPUs of a host, measured on H200s: NCCL's sum with 8 thread blocks; copy engines alone;
 * and copy engines while both GPUs compute, 205 to 310 GB/s. PCI Express with 16 lanes. */
#define NVLINK                                                                                               \
    .sum = {12e-6, 190e9}, .copy = {30e-6, 325e9}, .message = {15e-6, 250e9}, .exchange_share = 0.9
#define PCIE .sum = {20e-6, 20e9}, .copy = {30e-6, 25e9}, .message = {30e-6, 20e9}, .exchange_share = 0.9
#define GPU .launch = 3.8e-6, .network_seconds = 25e-6
#define PCIE5 .host = {10e-6, 50e9}
#define PCIE4 .host = {10e-6, 24e9}

/* A GPU with its rates of fp32 products with and without tf32. */
struct gpu {
    struct machine machine;
    double tf32;
};

/* The H200's rates are fitted to 75 steps of 19 networks in fp16, bf16 and tf32 (bench/NOTES.md); the others
 * follow from it in the proportion of the datasheets' bandwidths and dense tensor-core rates. The first row
 * stands for unknown GPUs. */
static const struct gpu gpus[] = {
    {{"NVIDIA H200", GPU, PCIE5, NVLINK, .bytes_per_second = 4.5e12, .flops_16 = 1000e12, .flops_32 = 50e12,
      .cache_bytes = 32e6}, 400e12},
    {{"NVIDIA H100 PCIe", GPU, PCIE5, PCIE, .bytes_per_second = 1.9e12, .flops_16 = 760e12,
      .flops_32 = 38e12, .cache_bytes = 32e6}, 305e12},
    {{"NVIDIA H100", GPU, PCIE5, NVLINK, .bytes_per_second = 3.1e12, .flops_16 = 1000e12, .flops_32 = 50e12,
      .cache_bytes = 32e6}, 400e12},
    {{"NVIDIA A100", GPU, PCIE4, NVLINK, .bytes_per_second = 1.7e12, .flops_16 = 310e12, .flops_32 = 15e12,
      .cache_bytes = 25e6}, 125e12},
    {{"NVIDIA L40S", GPU, PCIE4, PCIE, .bytes_per_second = 0.8e12, .flops_16 = 360e12, .flops_32 = 60e12,
      .cache_bytes = 60e6}, 145e12},
    {{"NVIDIA GeForce RTX 4090", GPU, PCIE4, PCIE, .bytes_per_second = 0.95e12, .flops_16 = 165e12,
      .flops_32 = 60e12, .cache_bytes = 48e6}, 65e12},
    {{"NVIDIA GeForce RTX 3090", GPU, PCIE4, PCIE, .bytes_per_second = 0.88e12, .flops_16 = 71e12,
      .flops_32 = 25e12, .cache_bytes = 4e6}, 28e12},
    {{"NVIDIA L4", GPU, PCIE4, PCIE, .bytes_per_second = 0.28e12, .flops_16 = 120e12, .flops_32 = 22e12,
      .cache_bytes = 32e6}, 48e12},
    {{"Tesla T4", GPU, PCIE4, PCIE, .bytes_per_second = 0.30e12, .flops_16 = 60e12, .flops_32 = 7e12,
      .cache_bytes = 3e6}, 7e12},
};

struct machine machine_gpu(const char *description, bool tf32)
{
    const struct gpu *gpu = &gpus[0];
    for (size_t i = 0; description && i < sizeof gpus / sizeof *gpus; i++)
        if (strncmp(description, gpus[i].machine.name, strlen(gpus[i].machine.name)) == 0) {
            gpu = &gpus[i];
            break;
        }
    struct machine machine = gpu->machine;
    if (tf32) machine.flops_32 = gpu->tf32;
    return machine;
}

/* Cores of the 2020s: multiply-adds of convolutions, and the memory's bandwidth, which one core does not
 * exhaust. Ranks of one host exchange through shared memory, with a copy in and a copy out. */
struct machine machine_cpu(int threads)
{
    static const struct link shared = {0.2e-3, 0.5e9};
    return (struct machine){.name = "CPU", .threads = threads, .bytes_per_second = 10e9,
                            .flops_16 = 40e9 * threads, .flops_32 = 40e9 * threads, .host = {0, 10e9},
                            .sum = shared, .copy = shared, .message = shared, .network_seconds = 25e-6};
}
