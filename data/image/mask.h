/* mask.h: the mask of an image, a class for every pixel, from a PNG file. */
#pragma once

#include "data/image/image.h"
#include "data/image/mask_classes.h"

/* Decodes a PNG of one channel, h x w bytes: the class of each pixel, or MASK_IGNORE. False, with the reason:
 * it cannot be read or, with *wrong, it is no such mask: it has a value without a class, which is named with
 * the number of its pixels; colours without a palette; transparency; or is of another format. Masks are used
 * as stored, whatever Exif says. */
bool mask_decode(const uint8_t *bytes, size_t count, const struct mask_classes *classes, struct image *mask,
                 bool *wrong, struct reason *reason);
