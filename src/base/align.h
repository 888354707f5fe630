/* align.h: alignment. */
#pragma once

#include <stddef.h>

/* The multiple of `unit` that is not below `bytes`, and nearest to it. */
static inline size_t align_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}
