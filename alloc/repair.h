/* repair.h: brings a placement's peak down: what sticks out is put elsewhere, and room is made for it. */
#ifndef ALLOC_REPAIR_H
#define ALLOC_REPAIR_H

#include "alloc/pack.h"

/* A block alive from rank `lower` to rank `upper` of the times. */
struct repair_block {
    int32_t lower, upper;
    int64_t size, offset;
};

struct repair_limits {
    int64_t goal;              /* a peak that is good enough */
    int64_t visits;            /* blocks to be looked at, at most */
    double deadline;           /* of CLOCK_MONOTONIC, in seconds */
};

/* A large neighbourhood search (Shaw 1998): a block above the level aimed at and some that are alive
 * beside it, next to one another, are taken out and placed anew in another order; kept unless it got
 * worse. Levels go down by halves of what lies between the peak and the goal. Offsets stay sums of
 * sizes. Never raises the peak, which it returns; adds what it looked at to *visits. Deterministic
 * unless the time runs out. */
int64_t repair_peak(struct repair_block *blocks, int count, const struct repair_limits *limits,
                    int64_t *visits);

#endif
