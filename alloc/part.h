/* part.h: packs blocks that are connected in time, by what is fast first and then by search. */
#ifndef ALLOC_PART_H
#define ALLOC_PART_H

#include <stdbool.h>
#include <stdint.h>

/* A span as the packer sees it: times are ranks among all the times, sizes are aligned. */
struct part_item {
    int32_t lower, upper;
    int64_t size;
    int64_t born, dies;        /* the times themselves */
    int64_t load;              /* the most bytes alive at once in its life, its own included: part_pack()'s */
};

struct part_goals {
    int64_t alignment;
    int64_t bound;             /* no placement of the whole table can need less */
    int64_t target;            /* what ends the search */
    int64_t easy;              /* what ends it where there is nothing better at hand */
    bool eased;                /* there is no capacity to meet: a little above the bound will do */
    bool brief;                /* what hardly ever helps small tables is left out */
    bool within;               /* it is a stretch of another: no stretches of its own */
    double deadline;           /* of CLOCK_MONOTONIC, in seconds */
};

/* Work is counted in blocks looked at, so that the answer does not depend on the machine; any
 * machine of today looks at more than this many in a second. */
#define PART_WORK_PER_SECOND 250e6

/* Where there is no capacity, this much above the bound is good enough. */
#define PART_EASY_SHARE 0.0048

/* The bytes alive from each time to the next; the caller frees them. */
int64_t *part_load(const struct part_item *items, int count, int times);

/* Sets the offsets of items[count], at least one, whose ranks begin with 0. Takes away what it did from
 * *work, which it may exceed a little. Returns the peak. */
int64_t part_pack(struct part_item *items, int count, const struct part_goals *goals, int64_t *work,
                  int64_t *offsets);

#endif
