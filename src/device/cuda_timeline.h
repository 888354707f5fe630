/* cuda_timeline.h: what a GPU does when, by CUPTI; and ranges that Nsight Systems shows, by NVTX. */
#pragma once

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "device/device.h"

extern const struct device_timeline cuda_timeline;

/* In a captured graph, another node does a node's work from now on. */
void cuda_timeline_replace(cudaGraphNode_t node, cudaGraphNode_t by);

#ifdef __cplusplus
}
#endif
