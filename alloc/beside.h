/* beside.h: which of many blocks are alive at some time in a stretch, without looking at all of them. */
#ifndef ALLOC_BESIDE_H
#define ALLOC_BESIDE_H

#include <stdint.h>

/* The lives of blocks, by their lengths in powers of two and then by birth: those that meet a stretch lie
 * next to one another in every power. */
struct beside_life {
    int32_t lower, upper, index;
};
struct beside {
    struct beside_life *lives;
    int first[33];             /* of every power of two, in `lives` */
    int *cells[32];            /* by power: the first life born in each stretch of that length; NULL: none */
    int32_t end;               /* of the time */
    int64_t visits;            /* lives looked at so far */
};

/* Of lives[count], which are copied; lower < upper, from 0 on. */
struct beside beside_open(const struct beside_life *lives, int count);
void beside_close(struct beside *beside);

/* The numbers of the blocks alive in [lower, upper), in an order that means nothing; returns how many. */
int beside_collect(struct beside *beside, int32_t lower, int32_t upper, int32_t *index);

#endif
