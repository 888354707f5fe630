/* table.h: blocks with known lifetimes in the form that the packers use: times are ranks, sizes are in
 * units. */
#pragma once

#include "alloc/span.h"

/* Alive from rank `lower` to rank `upper` of the times. */
struct block {
    int32_t lower, upper;
    int64_t size;              /* in units of the table's alignment */
    int64_t life;              /* how long, in the spans' own time */
};

/* The blocks that are ever alive, in the order of their spans. */
struct table {
    struct block *blocks;
    int32_t *source;           /* by block: which span */
    int count;
    int32_t times;
    int64_t *load;             /* [times]: units alive from each time to the next */
    int64_t bound;             /* the largest load */
};

/* `alignment`: bytes of a unit, to which sizes are rounded up. */
struct table table_open(const struct span *spans, int count, int64_t alignment);
void table_close(struct table *table);

/* Where the highest block ends. */
int64_t table_peak(const struct table *table, const int64_t *offsets);
