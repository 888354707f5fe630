#include "exec/device_allocators.h"

#include "base/align.h"
#include "base/host.h"
#include "base/log.h"

#define ALLOCATORS_ALIGNMENT 4096      /* what device_allocate promises */
#define ALLOCATORS_CHUNK ((size_t)64 << 20)
#define ALLOCATORS_RANGES 8            /* size of the address range, in multiples of the device's memory */

static void *allocators_allocate(void *cache, size_t bytes, const char *owner)
{
    return cache_allocate(cache, bytes, owner);
}

static void *allocators_allocate_piece(void *cache, size_t bytes, const char *owner)
{
    return cache_allocate_piece(cache, bytes, owner);
}

static void allocators_free(void *cache, void *memory)
{
    cache_free(cache, memory);
}

static void allocators_table(void *cache, struct text *out)
{
    cache_table(cache, out);
}

static size_t allocators_in_use(void *cache)
{
    return cache_statistics(cache).allocated;
}

static void *whole_map(void *device, void *at, size_t bytes)
{
    return ((struct device *)device)->backend->memory.allocate(device, bytes);
}

static void whole_unmap(void *device, void *memory, size_t bytes)
{
    ((struct device *)device)->backend->memory.free(device, memory, bytes);
}

static size_t whole_free_bytes(void *device)
{
    size_t left, total;
    ((struct device *)device)->backend->memory.info(device, &left, &total);
    return left;
}

static bool whole_synchronize(void *device)
{
    return ((struct device *)device)->backend->synchronize(device) == OK;
}

/* Without an address range: each block is the back end's own. */
static struct physical physical_whole(struct device *device, size_t granularity)
{
    return (struct physical){
        .context = device, .granularity = granularity, .map = whole_map, .unmap = whole_unmap,
        .free_bytes = whole_free_bytes, .synchronize = whole_synchronize,
    };
}

struct cache *device_allocators_open(struct device *device, size_t limit, bool whole)
{
    const struct device_backend *backend = device->backend;
    if (!backend->memory.physical) return NULL;
    struct physical physical;
    size_t left, total;
    backend->memory.physical(device, &physical);
    if (whole) physical = physical_whole(device, physical.granularity);
    backend->memory.info(device, &left, &total);
    struct cache_options options = {.alignment = ALLOCATORS_ALIGNMENT, .limit = limit};
    if (!whole) options.chunk = align_up(ALLOCATORS_CHUNK, physical.granularity);
    options.range = ALLOCATORS_RANGES * total;
    struct cache *cache = cache_open(&physical, &options);
    if (cache)
        device->allocator = (struct allocator){cache, allocators_allocate, allocators_allocate_piece,
                                               allocators_free, allocators_table, allocators_in_use};
    return cache;
}

void device_allocators_close(struct device *device, struct cache *cache)
{
    if (!cache) return;
    device->allocator = (struct allocator){0};
    cache_close(cache);
}

/* Pinned memory cannot be swapped out: others need some, too. */
#define PINNED_SHARE 2

/* Bytes that may be pinned now; 0: any, as on a device whose memory is the host's,
 * where nothing is pinned. */
static size_t pinned_max(const struct device *device)
{
    size_t available = 0, total;
    if (device->waits) host_memory(&available, &total);
    return available / PINNED_SHARE;
}

static void *allocators_pin(void *context, size_t bytes)
{
    struct device *device = context;
    size_t most = pinned_max(device);
    if (most > 0 && bytes > most) return NULL;
    return device->backend->memory.host_allocate(device, bytes);
}

static void allocators_unpin(void *context, void *memory, size_t bytes)
{
    struct device *device = context;
    device->backend->memory.host_free(device, memory, bytes);
}

static void *allocators_event_create(void *context, int stream)
{
    struct device *device = context;
    return device->backend->events.create(device, stream);
}

static bool allocators_event_retire(void *context, void *event, bool wait)
{
    struct device *device = context;
    return device->backend->events.retire(device, event, wait);
}

static void *host_allocate(void *pool, size_t bytes, const char *owner, bool *pinned)
{
    return pinned_allocate(pool, bytes, owner, pinned);
}

static void host_free(void *pool, void *memory)
{
    pinned_free(pool, memory);
}

static void host_free_after(void *pool, void *memory, int stream)
{
    pinned_free_after(pool, memory, stream);
}

struct pinned *device_allocators_host_open(struct device *device)
{
    bool events = device->backend->events.create != NULL;
    struct pinning pinning = {
        .context = device,
        .pin = allocators_pin,
        .unpin = allocators_unpin,
        .event_create = events ? allocators_event_create : NULL,
        .event_retire = events ? allocators_event_retire : NULL,
    };
    struct pinned *pool = pinned_open(&pinning, pinned_max(device));
    device->host = (struct host_allocator){pool, host_allocate, host_free, host_free_after};
    return pool;
}

static void say_pinned(const struct pinned_statistics *statistics)
{
    char used[TEXT_BYTES], held[TEXT_BYTES];
    log_detail("pinned host memory: at most %s asked for, %s pinned, in %lld calls",
               text_bytes(statistics->requested_peak, used), text_bytes(statistics->held_peak, held),
               (long long)statistics->pins);
}

void device_allocators_host_close(struct device *device, struct pinned *pool)
{
    if (!pool) return;
    struct pinned_statistics statistics = pinned_statistics(pool);
    if (device->waits) say_pinned(&statistics);
    device->host = (struct host_allocator){0};
    pinned_close(pool);
}
