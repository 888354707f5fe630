/* sampled_sizes.h: the sizes of some images, evenly spaced, which are not decoded. */
#pragma once

#include "base/shape.h"
#include "input/data.h"

#define SAMPLED_SIZES 25

/* Returns how many images could be read; `deep` counts those with 16 bits a channel. */
int sampled_sizes(const struct images *images, struct image_size sizes[SAMPLED_SIZES], int *deep);
