/* resize.h: antialiased bilinear resampling of images, as PIL and torchvision have it. */
#pragma once

#include "data/image.h"

/* The box `from` of the source becomes h x w, of which the part `window` is wanted. */
struct resizing {
    struct box from;
    int h, w;
    struct box window;
};

/* Resizes the source and writes the window to `target`. Nothing outside of resize_reach is looked at, which
 * is all of the source that need be there. Where an axis shrinks, the filter is as much wider, so that every
 * source pixel counts; weights sum to one. Sums are kept in fp32 and rounded once (PIL and torchvision round
 * twice, between the axes too: one grey level at most apart). */
bool resize_image(const struct image *source, const struct resizing *resizing, struct image *target,
                  struct reason *reason);

/* The part of the source that the same call looks at. */
struct box resize_reach(const struct resizing *resizing);
