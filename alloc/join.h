/* join.h: joins blocks to larger ones that they may have been cut from, so that fewer are left to be placed.
 *
 * Where one block dies and another of its size is born, the one may go where the other was; blocks of one
 * life may be stacked. Neither changes how many bytes are alive at any time, but both may rule out the best
 * placements. In a table without room to spare they rarely do: there a block must go where some others died,
 * and of the cuts of a rectangle into thousands of pieces nearly all are found again. */
#ifndef ALLOC_JOIN_H
#define ALLOC_JOIN_H

#include "alloc/part.h"

/* Joins items[count], whose ranks are from 0 on. The most certain ones first: two blocks of one size at a
 * time at which there are no others of that size; then stacks which make such a pair; then other stacks. */
struct join;
struct join *join_open(const struct part_item *items, int count);
void join_close(struct join *join);

/* What is left. */
int join_count(const struct join *join);
struct part_item join_item(const struct join *join, int number);

/* The offsets of the items from those of what is left. */
void join_spread(const struct join *join, const int64_t *left, int64_t *offsets);

#endif
