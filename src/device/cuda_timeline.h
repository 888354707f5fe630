/* cuda_timeline.h: what a GPU does when, by CUPTI; and ranges that Nsight Systems shows, by NVTX. */
#pragma once

#include "device/device.h"

extern const struct device_timeline cuda_timeline;

/* Whether it has begun: to CUPTI, nodes of a graph from which one was taken out are unknown. */
bool cuda_timeline_on(void);
