/* search.h: exact placement under a capacity: a depth-first search over canonical placements.
 *
 * Canonical: blocks are placed in the order of their offsets, each resting on 0 or on a block
 * alive beside it. Every placement can be pushed down into such a one, so nothing is lost. The
 * idea, the decomposition in time and most of the pruning follow Moffitt, MiniMalloc: A
 * Lightweight Memory Allocator for Hardware-Accelerated Machine Learning (ASPLOS 2023). */
#ifndef ALLOC_SEARCH_H
#define ALLOC_SEARCH_H

#include "alloc/pack.h"

/* The unit of work is about a block looked at, of which any machine of today looks at more than this
 * many in a second. */
#define SEARCH_WORK_PER_SECOND 80e6

enum search_result { SEARCH_FOUND, SEARCH_IMPOSSIBLE, SEARCH_GAVE_UP };

/* Looks for offsets, multiples of `alignment`, such that no block ends above `capacity`. Several
 * orders take turns with growing budgets until one finds a placement, one proves that there is
 * none, or *work is done (set to what is left of it), or `seconds` are over. Offsets are set only when
 * FOUND. Deterministic but for the time limit, which only slow machines feel if the work is that of as
 * many seconds. Work grows with count squared: meant for up to some thousands of blocks. */
enum search_result search_pack(struct span *spans, int count, int64_t alignment, int64_t capacity,
                               int64_t *work, double seconds);

#endif
