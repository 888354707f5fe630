/* resize_parts.h: what the files of resize.h share. */
#pragma once

#include "data/augment/resample.h"
#include "data/augment/resize.h"

/* The source pixels of output pixel i of an axis. */
struct pixel_range bicubic_pixels(int size, int target, int i);

/* resize_image of RESIZE_BICUBIC; `target` has its size already. */
void bicubic_resize(const struct image *source, const struct resizing *resizing, struct image *target);
