/* sum_ranks.h: the settings of sum_ranks. */
#pragma once

#include "kernels/op.h"

struct sum_ranks {
    int64_t rank;            /* whose share x[1] is */
};

/* The rank whose share is not in x[0]; -1: none. */
static inline int sum_ranks_own(const struct call *call)
{
    return call->x_count > 1 ? (int)((const struct sum_ranks *)call->settings)->rank : -1;
}
