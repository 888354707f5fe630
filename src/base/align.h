/* align.h: alignment. */
#pragma once

#include <stddef.h>

/* `bytes` rounded up to a multiple of `unit`. */
static inline size_t align_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}
