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
    size_t chunk;              /* maximum size of a piece, a multiple of the granularity (without ranges: no
                                * limit): small pieces move freely, large pieces map faster. 0: each block is
                                * one piece, which sharing with other processes needs */
    size_t range;              /* size of the address range, which limits a request: several times the
                                * device's memory */
    size_t limit;              /* maximum of mapped bytes; 0: the device's memory */
};

/* NULL when the device has no such range. The functions are copied; their context outlives the cache. */
struct cache;
struct cache *cache_open(const struct physical *physical, const struct cache_options *options);
void cache_close(struct cache *cache);       /* waits for the device; also frees blocks that were never
                                              * released */

/* A block of at least `bytes`. `owner` is its purpose in tables, and must outlive the block. If none fits and
 * the device or the limit is exhausted, all pieces without live blocks are unmapped and mapped again where
 * they are needed. NULL, unreported, if that is not enough: cache_table then lists the owners. */
void *cache_allocate(struct cache *cache, size_t bytes, const char *owner);

/* Like cache_allocate, but with a block of its own of that size, rounded up to the device's granularity,
 * so that other processes can map theirs in the same way. Not in a cache with chunks. */
void *cache_allocate_piece(struct cache *cache, size_t bytes, const char *owner);

/* No queued work may use it any more. NULL is ignored. */
void cache_free(struct cache *cache, void *memory);

/* Waits for the device and unmaps pieces without live blocks, highest first, until at most `most` bytes are
 * mapped. Returns the number of bytes unmapped. */
size_t cache_trim(struct cache *cache, size_t most);

/* Changes the limit (0: none) and trims to it. False: live blocks exceed it; nothing is mapped until they do
 * not. */
bool cache_limit(struct cache *cache, size_t limit);

struct cache_statistics {
    size_t requested;          /* bytes requested by owners, */
    size_t allocated;          /* ... in live blocks, rounded up, */
    size_t reserved;           /* ... mapped */
    size_t requested_peak, allocated_peak, reserved_peak;
    size_t largest;            /* bytes of the largest free block */
    double fragmentation;      /* share of the free bytes that are not in it; 0 when nothing is free */
    int64_t allocations, frees;
    int64_t maps, unmaps;      /* pieces */
    int64_t retries;           /* requests that exceeded the device or the limit, for which pieces were
                                * unmapped */
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

/* The bytes of each owner, one line each, largest first; then those free, mapped and left. */
void cache_table(struct cache *cache, struct text *out);
