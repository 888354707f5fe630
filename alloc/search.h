/* search.h: exact placement under a capacity: a depth-first search over canonical placements.
 *
 * Canonical: blocks are placed in the order of their offsets, each resting on 0 or on a block
 * alive beside it. Every placement can be pushed down into such a one, so nothing is lost. The
 * idea, the decomposition in time and most of the pruning follow Moffitt, MiniMalloc: A
 * Lightweight Memory Allocator for Hardware-Accelerated Machine Learning (ASPLOS 2023).
 *
 * Without it, MiniMalloc's tables A to E are packed 5 to 17 % above their capacity. Steps of real networks
 * hardly need it: 4 of 137 tables that are packed on the way to memory limits are packed higher, by up to
 * 2.8 %. */
#pragma once

#include <stdbool.h>

#include "alloc/table.h"

/* Can be used for several capacities; the caller owns the table. Work and memory grow with count squared:
 * meant for up to some thousands of blocks. */
struct search;
struct search *search_open(const struct table *table);
void search_close(struct search *search);

/* Searches for offsets such that no block ends above `capacity`, for at most `visits` steps. Several orders
 * alternate with growing budgets until one finds a placement, which sets the offsets, or proves that there is
 * none. Deterministic but for the deadline (clock_seconds()). */
struct search_limits {
    int64_t capacity, visits;
    double deadline;
};
bool search_place(struct search *search, const struct search_limits *limits, int64_t *offsets);

/* The largest capacity for which a search has proved that there is no placement; -1: none. Further searches
 * for it or less end at once. */
int64_t search_excluded(const struct search *search);

/* The work so far. */
int64_t search_visits(const struct search *search);
