/* device_allocators.h: the allocators of device memory and pinned host memory, configured for a device. */
#pragma once

#include "alloc/cache.h"
#include "alloc/pinned.h"
#include "device/device.h"

/* From now on device_allocate uses a cache: stores, arenas, batches and results share one range. To be called
 * before anything is allocated. `limit` as in cache.h; `whole`: each allocation is one of the back end's.
 * NULL, without effect: the device has no address ranges. */
struct cache *device_allocators_open(struct device *device, size_t limit, bool whole);

/* To be called after everything is released. NULL is ignored. */
void device_allocators_close(struct device *device, struct cache *cache);

/* From now on device_host_allocate uses a pool, which pins at most half of the host memory that is free now,
 * and of what is free at the time of a request. To be called before anything is allocated. Never NULL. */
struct pinned *device_allocators_host_open(struct device *device);

/* To be called after all queued work is done; reports how much was pinned. NULL is ignored. */
void device_allocators_host_close(struct device *device, struct pinned *pool);
