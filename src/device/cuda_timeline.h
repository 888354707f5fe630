/* cuda_timeline.h: a timeline of GPU activities from CUPTI, and NVTX ranges for Nsight Systems. */
#pragma once

#include "device/device.h"

extern const struct device_timeline cuda_timeline;

/* True if it has begun: to CUPTI, nodes of a graph from which one was taken out are unknown. */
bool cuda_timeline_on(void);
