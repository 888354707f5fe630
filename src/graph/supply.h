/* supply.h: a device and the caching allocator that all of its memory then comes from. */
#ifndef GRAPH_SUPPLY_H
#define GRAPH_SUPPLY_H

#include "alloc/cache.h"
#include "device/device.h"

/* From now on device_allocate serves from a cache: stores, arenas, batches, results share one range. To be
 * called before anything is allocated. `limit` as in cache.h. NULL, and nothing has changed: the device has
 * only memory as it comes. */
struct cache *supply_open(struct device *device, size_t limit);

/* After everything is released. NULL is nothing. */
void supply_close(struct device *device, struct cache *cache);

#endif
