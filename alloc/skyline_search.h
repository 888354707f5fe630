/* skyline_search.h: repeats skyline placement with varied preferences and weights.
 *
 * Without the weighted iterations, 37 of 137 tables that are packed on the way to memory limits are packed
 * higher, by up to 14 %. */
#pragma once

#include "alloc/table.h"

/* The caller owns the table. A placement whose peak is `goal` is good enough. */
struct skyline_search;
struct skyline_search *skyline_search_open(const struct table *table, int64_t goal);
void skyline_search_close(struct skyline_search *search);

/* The next iteration. The first SKYLINE_PLAIN order blocks by length, area, load or size. All others are
 * weighted: they prefer blocks that ended above the goal in earlier iterations (squeaky wheel optimization;
 * Joslin, Clements 1999). Sets the offsets when the peak is below `below`, and returns it; INT64_MAX: it is
 * not. */
#define SKYLINE_PLAIN 4
int64_t skyline_search_turn(struct skyline_search *search, int64_t below, int64_t *offsets);

/* The work so far, in blocks visited. */
int64_t skyline_search_visits(const struct skyline_search *search);
