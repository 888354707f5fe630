/* cuda_memory.h: GPU memory in address ranges, through the driver's virtual memory management. */
#pragma once

#include "base/physical.h"
#include "device/device.h"

/* Without support by driver and GPU, cudaMalloc is used and there are no ranges. Never NULL. */
struct cuda_memory;
struct cuda_memory *cuda_memory_open(struct device *device);
void cuda_memory_close(struct cuda_memory *memory);
struct physical cuda_memory_physical(struct cuda_memory *memory);
