/* resize.h: antialiased bilinear and bicubic resampling of images, as PIL and torchvision have them. */
#pragma once

#include "data/image/image.h"

enum interpolation { RESIZE_BILINEAR, RESIZE_BICUBIC };

/* The box `from` of the source is resized to h x w, of which only `window` is needed. */
struct resizing {
    struct box from;
    int h, w;
    struct box window;
    enum interpolation interpolation;
};

/* Resizes the source and writes the window to `target`. Only resize_reach of the source is read. When an axis
 * shrinks, the filter is widened accordingly, so that every source pixel counts; weights sum to one. Bilinear
 * sums are kept in fp32 and rounded once (PIL and torchvision round twice, between the axes too: one grey
 * level at most apart); bicubic ones are PIL's to the bit. Those of a deep image are not rounded. */
bool resize_image(const struct image *source, const struct resizing *resizing, struct image *target,
                  struct reason *reason);

/* The part of the source that the same call reads. */
struct box resize_reach(const struct resizing *resizing);
