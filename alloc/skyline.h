/* skyline.h: places blocks from the bottom up: always at the lowest place that any block can get.
 *
 * What is placed ends, at each time, at some height: a skyline. In its lowest valley goes, of the blocks
 * that live only while it lasts, the one that is preferred; a valley into which none fits is filled up to
 * the lower one of its sides. As for strips (Burke, Kendall, Whitwell 2004: best fit), but that a block's
 * place in time is given. */
#ifndef ALLOC_SKYLINE_H
#define ALLOC_SKYLINE_H

#include <stdint.h>

/* Alive from rank `lower` to rank `upper` of the times. */
struct skyline_block {
    int32_t lower, upper;
    int64_t size;
};

/* A table of blocks, for placing it several times. The blocks stay the caller's. */
struct skyline;
struct skyline *skyline_open(const struct skyline_block *blocks, int count, int32_t times);
void skyline_close(struct skyline *skyline);

/* Places all blocks; of several that fit, the one with the lowest rank goes first. Gives up, returning
 * INT64_MAX, when a block ends above `ceiling`. Returns the peak. */
int64_t skyline_place(struct skyline *skyline, const int32_t *rank, int64_t ceiling, int64_t *offsets);

/* Blocks and parts of the table looked at so far. */
int64_t skyline_visits(const struct skyline *skyline);

#endif
