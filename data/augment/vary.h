/* vary.h: makes the changes that were drawn (variation.h). */
#pragma once

#include "data/augment/intensity.h"
#include "data/augment/variation.h"

/* Changes a picture, in place; not by turning it. `copy` and `scratch` are the caller's, reused. */
bool vary_apply(const struct variation *variation, struct image *picture, struct image *copy,
                struct intensity_scratch *scratch, struct reason *reason);

/* Adds what a device needs; false: it cannot do it to pictures of rows of so many numbers. */
bool vary_leave(struct variation *variation, int row);
