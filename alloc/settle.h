/* settle.h: blocks settle from the bottom up, turn after turn, by one preference after another. */
#ifndef ALLOC_SETTLE_H
#define ALLOC_SETTLE_H

#include <stdint.h>

#include "alloc/skyline.h"

/* The blocks stay the caller's; their times are ranks below `times`, and load[times] the bytes alive at each.
 * A placement whose peak is `goal` is good enough. */
struct settle;
struct settle *settle_open(const struct skyline_block *blocks, int count, const int64_t *load, int32_t times,
                           int64_t goal);
void settle_close(struct settle *settle);

/* The next turn. The first SETTLE_PLAIN are plain: by length, area, load, size or birth. Then come by
 * turns some by the load and what stuck out in the turns before, and some shaken at random. Sets the
 * offsets when the peak is below `below`, and returns it; INT64_MAX: it is not. */
#define SETTLE_PLAIN 7
int64_t settle_turn(struct settle *settle, int64_t below, int64_t *offsets);

/* Blocks and parts of the table looked at so far. */
int64_t settle_visits(const struct settle *settle);

#endif
