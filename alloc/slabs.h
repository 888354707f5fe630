/* slabs.h: blocks that jemalloc allocates from slabs, memory that the caller provides.
 *
 * The slabs belong to a separate jemalloc arena, whose extent hooks split slabs that were added before and
 * call nothing else: slabs are made outside of jemalloc. Split extents stay with the arena until it is
 * closed, because pinned memory is never purged. jemalloc's metadata is in ordinary memory. Not thread-safe:
 * the caller serialises calls. */
#pragma once

#include <stddef.h>

/* Blocks, and sizes and addresses of slabs, are multiples of this. */
#define SLAB_PAGE ((size_t)4096)

/* NULL: there is no jemalloc in this build, or it has no arena left. */
struct slabs;
struct slabs *slabs_open(void);

/* To be called after the last block was released. `release` is called for each slab. */
void slabs_close(struct slabs *slabs, void (*release)(void *context, void *memory, size_t bytes),
                 void *context);

/* Memory that does not come from malloc: jemalloc tracks the owner of each page. */
void slabs_add(struct slabs *slabs, void *memory, size_t bytes);

/* A block of `bytes`, more than 0. NULL: a slab of *wanted bytes must be added first; or, where that is 0,
 * none would help. */
void *slabs_allocate(struct slabs *slabs, size_t bytes, size_t *wanted);
void slabs_free(struct slabs *slabs, void *memory);
