/* span.h: a block of memory with a known lifetime, and its offset. */
#ifndef ALLOC_SPAN_H
#define ALLOC_SPAN_H

#include <stdint.h>

/* One block: alive in [lower, upper), `size` bytes, placed at [offset, offset + size). */
struct span {
    int64_t lower, upper;
    int64_t size;
    int64_t offset;            /* the answer */
};

#endif
