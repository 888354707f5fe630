/* resize.h: antialiased bilinear resampling of images, as PIL and torchvision have it. */
#ifndef DATA_RESIZE_H
#define DATA_RESIZE_H

#include "data/image.h"

/* Resizes what lies in `box` of the (whole) source to h x w and writes the part `window` of that to
 * `target`. Nothing outside of resize_reach is looked at, which is all of the source that need be
 * there. Where an axis shrinks, the filter is as much
 * wider, so that every source pixel counts; weights sum to one. Sums are kept in fp32 and rounded
 * once (PIL and torchvision round twice, between the axes too: one grey level at most apart). */
bool resize_image(const struct image *source, struct box box, int h, int w, struct box window,
                  struct image *target, struct reason *reason);

/* The part of the source that the same call looks at. */
struct box resize_reach(struct box box, int h, int w, struct box window);

#endif
