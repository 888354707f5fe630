/* device_allocators.h: the allocators of device memory and pinned host memory, configured for a device. */
#pragma once

#include "alloc/cache.h"
#include "alloc/pinned.h"
#include "device/device.h"

/* From now on device_allocate serves from a cache: stores, arenas, batches, results share one range. To be
 * called before anything is allocated. `limit` as in cache.h; `whole`: each lies in one piece. NULL, and
 * nothing has changed: the device has only memory as it comes. */
struct cache *device_allocators_open(struct device *device, size_t limit, bool whole);

/* After everything is released. NULL is nothing. */
void device_allocators_close(struct device *device, struct cache *cache);

/* From now on device_host_allocate serves from a pool, which pins at most half of the machine's memory
 * that is free now, and no more than half of what is free then. To be called before any was allocated.
 * Never NULL. */
struct pinned *device_allocators_host_open(struct device *device);

/* After all that was queued is done; says how much was pinned. NULL is nothing. */
void device_allocators_host_close(struct device *device, struct pinned *pool);
