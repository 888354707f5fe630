/* better.h: which of two results is better; everything that looks for a best one asks this. */
#pragma once

#include <math.h>
#include <stdbool.h>

/* A result that is not finite is never better, and a finite one is better than any that is not. */
static inline bool better(double value, double than, bool lower)
{
    if (!isfinite(value) || !isfinite(than)) return isfinite(value) && !isfinite(than);
    return lower ? value < than : value > than;
}
