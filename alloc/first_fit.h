/* first_fit.h: places blocks in a fixed order, each at the lowest free offset.
 *
 * Without it, 21 of 305 tables that are packed while bench/plans.sh plans are packed higher, by up to 8 %. */
#pragma once

#include "alloc/table.h"

/* Orders: by size classes, powers of two, large ones first: blocks of similar size fill each other's gaps.
 * Within a class by birth, or by the distance in time from the peak, where no memory may be wasted. */
enum first_fit_order { FIRST_FIT_BY_BIRTH, FIRST_FIT_FROM_PEAK, FIRST_FIT_ORDERS };

/* Gives up, returning INT64_MAX, when a block ends above `ceiling` or *visits, blocks looked at, exceed
 * `visits_limit`. Returns the peak. */
int64_t first_fit(const struct table *table, enum first_fit_order order, int64_t ceiling, int64_t *visits,
                  int64_t visits_limit, int64_t *offsets);
