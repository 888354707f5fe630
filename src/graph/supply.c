#include "graph/supply.h"

#define SUPPLY_ALIGNMENT 4096                 /* what device_allocate promises */
#define SUPPLY_CHUNK ((size_t)64 << 20)
#define SUPPLY_RANGES 8                       /* addresses: so many times the device's memory */

/* Callers of device_release have waited for all work on what they release, so that blocks need no lanes. */
static void *supply_take(void *cache, size_t bytes, const char *owner)
{
    return cache_take(cache, bytes, 0, owner);
}

static void supply_give(void *cache, void *memory)
{
    cache_give(cache, memory);
}

static void supply_table(void *cache, struct text *out)
{
    cache_table(cache, out);
}

struct cache *supply_open(struct device *device, size_t limit)
{
    const struct device_backend *backend = device->backend;
    if (!backend->physical) return NULL;
    struct physical physical;
    size_t left, total;
    backend->physical(device, &physical);
    backend->memory_info(device, &left, &total);
    struct cache_options options = {.alignment = SUPPLY_ALIGNMENT, .limit = limit};
    options.chunk = (SUPPLY_CHUNK + physical.granularity - 1) / physical.granularity * physical.granularity;
    options.range = SUPPLY_RANGES * total;
    struct cache *cache = cache_open(&physical, &options);
    if (cache) device->allocator = (struct allocator){cache, supply_take, supply_give, supply_table};
    return cache;
}

void supply_close(struct device *device, struct cache *cache)
{
    if (!cache) return;
    device->allocator = (struct allocator){0};
    cache_close(cache);
}
