/* mask_palette.h: the numbers and colours in which masks are written, and pictures of masks in them. */
#pragma once

#include "data/image/image.h"
#include "data/image/mask_classes.h"

struct mask_palette {
    int classes;
    uint8_t values[256];           /* of each class, and of MASK_IGNORE, in files: those of the masks read */
    uint8_t colours[256][3];       /* of each of them: the masks', or Pascal VOC's */
};

void mask_palette_of(const struct mask_classes *classes, struct mask_palette *palette);

/* A PNG with a palette: h x w values, in new memory. */
bool mask_encode(const struct image *mask, const struct mask_palette *palette, uint8_t **bytes, size_t *count,
                 struct reason *reason);

/* The image, grey or RGB, with the mask's colours over it; ignored pixels, and those whose colour is black,
 * are the image's. */
bool mask_overlay(const struct image *image, const struct image *mask, const struct mask_palette *palette,
                  struct image *out, struct reason *reason);

/* The darkened image, in which red pixels are those that differ, and black ones are ignored in the truth. */
bool mask_difference(const struct image *image, const struct image *truth, const struct image *predicted,
                     struct image *out, struct reason *reason);
