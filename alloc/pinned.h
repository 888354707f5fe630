/* pinned.h: pinned host memory, which a device can copy from and to directly.
 *
 * Pinning is slow, and pinned memory cannot be used by anything else. So blocks come from slabs that are
 * pinned once (slabs.h); a large block is pinned by itself, to the byte, and unpinned when it is released, as
 * is every block in a build without jemalloc. A block may be released while a copy is in progress: it is
 * reused when the copy has ended. If the device cannot pin more, or the cap is reached, ordinary memory is
 * used instead, which is reported once.
 *
 * Thread-safe; not to be called during capture. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/physical.h"

/* At most `cap` bytes are pinned (0: no limit), except for blocks that must be. The functions are copied;
 * their context outlives the pool. */
struct pinned;
struct pinned *pinned_open(const struct pinning *pinning, size_t cap);

/* Waits for copies. Blocks that were never released stay pinned: they may still be in use. */
void pinned_close(struct pinned *pool);

/* A block of at least `bytes`, aligned to 4096, not initialised. `owner` is its purpose in words. *is_pinned
 * tells whether it is pinned; NULL: it must be. NULL, unreported, if there is no memory. */
void *pinned_allocate(struct pinned *pool, size_t bytes, const char *owner, bool *is_pinned);

/* It is no longer used, or only by work that is queued on `stream` now. NULL is ignored. */
void pinned_free(struct pinned *pool, void *memory);
void pinned_free_after(struct pinned *pool, void *memory, int stream);

struct pinned_statistics {
    size_t requested;          /* bytes requested by owners, */
    size_t ordinary;           /* ... of it not pinned, */
    size_t waiting;            /* ... of it released, with a copy in progress */
    size_t held;               /* pinned */
    size_t requested_peak, held_peak;
    int blocks;                /* live blocks, and released ones that wait for copies */
    int64_t allocations, frees;
    int64_t pins, unpins;
    int64_t refusals;          /* requests that exceeded the device or the cap */
    int64_t waits;             /* ... and copies were waited for, */
    int64_t fallbacks;         /* ... and ordinary memory was used instead */
};
struct pinned_statistics pinned_statistics(struct pinned *pool);
