/* rank_moments.h: settings of rank_moments, and its summation, which is the same on all devices. */
#pragma once

#include "kernels/op.h"

struct rank_moments {
    int64_t count;
    double eps;
};

enum { RANK_INVSTD, RANK_VARIANCE };

#ifdef __CUDACC__
#define RANK_SUM_CODE __device__
#else
#define RANK_SUM_CODE
#endif

/* The values so far: their number, their mean, and the sum of squared deviations from it. */
struct rank_sum {
    double count, mean, squares;
};

RANK_SUM_CODE static inline void rank_sum_add(struct rank_sum *sum, double mean, double variance,
                                              double count)
{
    double all = sum->count + count, d = mean - sum->mean;
    sum->squares += (count - 1) * variance + d * d * (sum->count * count / all);
    sum->mean += d * (count / all);
    sum->count = all;
}
