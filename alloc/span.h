/* span.h: a block of memory with a known lifetime, and its offset. */
#pragma once

#include <stdint.h>

/* One block: alive in [lower, upper), `size` bytes, placed at [offset, offset + size). */
struct span {
    int64_t lower, upper;
    int64_t size;
    int64_t offset;            /* the answer */
};
