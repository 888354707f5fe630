/* pack.h: assigns offsets to blocks with known lifetimes, so that the arena is as small as possible. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "alloc/span.h"
#include "base/status.h"

/* The largest sum, over time, of the sizes alive (each rounded up to `alignment`): no placement
 * can need less. */
int64_t pack_bound(const struct span *spans, int count, int64_t alignment);

/* Sets every offset, a multiple of `alignment` (a power of two), such that no two blocks alive together
 * overlap. A portfolio: skylines (alloc/skyline_search.h) and the exact search (alloc/search.h), of which
 * the best is kept; stops early when the bound is reached or nearly reached, or after the work that a current
 * machine does in `seconds`. The same input gives the same result, unless it takes seconds longer than
 * expected. `capacity` > 0: stops as soon as it is met, or proved to be out of reach. Returns the peak. */
int64_t pack_spans(struct span *spans, int count, int64_t alignment, int64_t capacity, double seconds);

/* A header `id,lower,upper,size` and rows, as in MiniMalloc's benchmarks. The caller frees both arrays. */
enum status pack_read_csv(const char *path, struct span **spans, char ***ids, int *count);
