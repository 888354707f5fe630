/* cache.h: the caching device allocator: blocks in one address range, backed by physical memory on demand.
 *
 * Free blocks are coalesced with free neighbours and reused, best fit first. Memory is mapped only when no
 * free block fits, where the smallest mapping makes room, in pieces of at most a chunk. Addresses are
 * plentiful, and physical pieces can be unmapped and mapped elsewhere, so free memory is never lost to
 * fragmentation: a request fails only if it and the pieces that contain a live block exceed the limit or the
 * device.
 *
 * A block is returned when no queued work uses it any more, so it can be reused at once, on any stream.
 * Allocations within a step are placed by the step's plan, not here.
 *
 * Thread-safe; not to be called during capture. The same sequence of calls gives the same addresses within
 * the range. */
#pragma once

#include <stdint.h>

#include "base/physical.h"
#include "base/text.h"

struct cache_options {
    size_t alignment;          /* sizes and places of blocks are multiples: a power of two, at most the
                                  device's granularity */
    size_t chunk;              /* most bytes of a piece, a multiple of the granularity (without ranges: no
                                  limit): small pieces move freely, few pieces map fast. 0: a block lies in
                                  one piece, as devices of other processes ask that are to reach it */
    size_t range;              /* bytes of addresses, the most that can be asked for: several devices full */
    size_t limit;              /* most bytes mapped at any time; 0: as many as the device has */
};

/* NULL when the device has no such range. The functions are copied; their context outlives the cache. */
struct cache;
struct cache *cache_open(const struct physical *physical, const struct cache_options *options);
void cache_close(struct cache *cache);       /* waits for the device; blocks never given back end here too */

/* A block of at least `bytes`. `owner` says in tables what it is for, and lives as long as
 * the block. When none fits and the device or the limit has no more, all pieces without live blocks go back
 * and are asked for again where they are needed. NULL, unreported, when that does not do: cache_table then
 * says who holds what. */
void *cache_take(struct cache *cache, size_t bytes, const char *owner);

/* Likewise, but the block lies by itself in a piece of as many bytes, rounded up to the device's granularity,
 * as do those of other processes that are to find it. Not in a cache with chunks. */
void *cache_take_piece(struct cache *cache, size_t bytes, const char *owner);

/* Nothing queued touches it any more. NULL is nothing. */
void cache_give(struct cache *cache, void *memory);

/* Waits for the device and gives pieces without live blocks back to the device, from the highest, until at
 * most `most` bytes are mapped. Returns how many went. */
size_t cache_trim(struct cache *cache, size_t most);

/* Sets another limit (0: none) and trims to it. False: live blocks hold more; nothing is mapped until they do
 * not. */
bool cache_limit(struct cache *cache, size_t limit);

struct cache_statistics {
    size_t requested;          /* bytes: what owners asked for, */
    size_t allocated;          /* ... in live blocks, rounded up, */
    size_t reserved;           /* ... mapped */
    size_t requested_peak, allocated_peak, reserved_peak;
    size_t largest;            /* bytes of the largest free block */
    double fragmentation;      /* share of the free bytes that are not in it; 0 when nothing is free */
    int64_t takes, gives;
    int64_t maps, unmaps;      /* pieces */
    int64_t retries;           /* times that the device or the limit said no, and pieces went back for it */
    int64_t failures;          /* ... and it was not enough */
};
struct cache_statistics cache_statistics(struct cache *cache);

struct cache_block {
    uintptr_t at;
    size_t bytes, requested;
    const char *owner;         /* NULL: free */
};

/* All blocks from the lowest address up, live and free, together all that is mapped; how many. The caller
 * frees them. */
int cache_snapshot(struct cache *cache, struct cache_block **blocks);

/* Who holds what, one line an owner, the most first; then what is free, mapped and left. */
void cache_table(struct cache *cache, struct text *out);
