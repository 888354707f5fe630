/* shelves.h: placed blocks sorted by offset, in short arrays, for scans over many thousands of them. */
#ifndef ALLOC_SHELVES_H
#define ALLOC_SHELVES_H

#include <stdint.h>

/* Block number `index` at [start, end), alive in [lower, upper). */
struct placed {
    int64_t start, end;
    int32_t lower, upper;
    int32_t index;
};

struct shelf;
struct shelves {
    struct shelf **shelf;      /* each holds at least one block; empty shelves are kept for later */
    int count, capacity;
    int64_t visits;            /* blocks looked at so far: the work done, counted alike on any machine */
};

void shelves_clear(struct shelves *shelves);   /* keeps the memory */
void shelves_free(struct shelves *shelves);

void shelves_insert(struct shelves *shelves, struct placed block);
/* Takes away a block that is there. */
void shelves_remove(struct shelves *shelves, struct placed block);

/* Offsets at which `size` bytes fit below or between the blocks alive in [lower, upper), or above
 * them all: the lowest, or that of the smallest gap. */
enum fit { FIT_LOWEST, FIT_TIGHTEST };
int64_t shelves_find(struct shelves *shelves, int32_t lower, int32_t upper, int64_t size, enum fit fit);

#endif
