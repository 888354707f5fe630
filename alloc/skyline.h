/* skyline.h: a skyline packer: it always places a block at the lowest free offset.
 *
 * At each time, the blocks placed so far end at some height: the skyline. Of the blocks that live only during
 * its lowest valley, the preferred one is placed there; a valley into which no block fits is raised to the
 * lower of its sides. This is best fit for strip packing (Burke, Kendall, Whitwell 2004), except that the
 * position of a block in time is given.
 *
 * A step of ResNet-50 with train.batch=64 and train.accumulate=64, 55,958 blocks, is packed 0.15 % above its
 * bound in 0.24 s. */
#pragma once

#include "alloc/table.h"

/* Can place the table's blocks several times; the caller owns the table. */
struct skyline;
struct skyline *skyline_open(const struct table *table);
void skyline_close(struct skyline *skyline);

/* Places all blocks; of several that fit, the one with the lowest rank goes first. Gives up, returning
 * INT64_MAX, when a block ends above `ceiling`. Returns the peak. */
int64_t skyline_place(struct skyline *skyline, const int32_t *rank, int64_t ceiling, int64_t *offsets);

/* Blocks and tree nodes visited so far. */
int64_t skyline_visits(const struct skyline *skyline);
