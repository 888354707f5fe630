/* sampled_sizes.h: the sizes of some images, evenly spaced, which are not decoded. */
#pragma once

#include "base/shape.h"
#include "input/data.h"

#define SAMPLED_SIZES 25

/* How many are looked at. */
int sampled_count(const struct images *images);

/* The size of one of them and what else its header says; false if it cannot be read. */
bool sampled_facts(const struct images *images, int number, struct image_facts *facts);

/* True if some have samples of more than 8 bits. JPEG and WebP files by name are not opened. */
bool sampled_deep(const struct images *images);
