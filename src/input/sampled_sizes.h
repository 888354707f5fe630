/* sampled_sizes.h: the sizes of some images, evenly spaced, which are not decoded. */
#pragma once

#include "base/shape.h"
#include "input/data.h"

#define SAMPLED_SIZES 25

/* How many are looked at. */
int sampled_count(const struct images *images);

/* The size of one of them, and whether it has 16 bits a channel; false if it cannot be read. */
bool sampled_size(const struct images *images, int number, struct image_size *size, bool *deep);
