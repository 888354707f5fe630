/* skyline_search.h: repeats skyline placement with varied preferences and weights.
 *
 * Without the weighted iterations, 48 of 305 tables that are packed while bench/plans.sh plans (one in eight
 * of all) are packed higher, by up to 11 %. */
#pragma once

#include "alloc/table.h"

/* The table stays the caller's. A placement whose peak is `goal` is good enough. */
struct skyline_search;
struct skyline_search *skyline_search_open(const struct table *table, int64_t goal);
void skyline_search_close(struct skyline_search *search);

/* The next turn. The first SKYLINE_PLAIN are by length, area, load or size. All others are weighted: they
 * prefer what stuck out above the goal in the turns before (squeaky wheel optimization; Joslin, Clements
 * 1999). Sets the offsets when the peak is below `below`, and returns it; INT64_MAX: it is not. */
#define SKYLINE_PLAIN 4
int64_t skyline_search_turn(struct skyline_search *search, int64_t below, int64_t *offsets);

/* The work so far, in blocks looked at. */
int64_t skyline_search_visits(const struct skyline_search *search);
