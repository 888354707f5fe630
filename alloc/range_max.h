/* range_max.h: range maximum by a sparse table: any range is the union of two precomputed ones.
 *
 * For the keys of the skyline search: ResNet-50 with train.accumulate=64 has 55,958 blocks, whose lifetimes
 * add up to 125 million instructions, which every iteration looks up. */
#pragma once

#include <stdint.h>

/* The maxima of all stretches of 1, 2, 4 ... values (a sparse table). */
struct range_max {
    int64_t *row;
    int32_t count;
};

/* Copies the values. */
struct range_max range_max_open(const int64_t *values, int32_t count);
void range_max_close(struct range_max *maxima);

/* The maximum of values [lower, upper), at least one. */
int64_t range_max_of(const struct range_max *maxima, int32_t lower, int32_t upper);
