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

/* The values that masks have, and how many pixels have each. */
struct mask_values {
    struct mask_value {
        uint32_t value;            /* a number, or a colour: red << 16 | green << 8 | blue */
        int64_t pixels;
    } *list;                       /* [count], sorted */
    size_t count;
    bool colours, numbers;         /* masks that have colours, and that have numbers */
    bool palette;                  /* some of the latter are indices of a palette */
};

/* Adds those of a PNG. False, with the reason: it cannot be read, is no mask, or has too many. */
bool mask_values_add(const uint8_t *bytes, size_t count, struct mask_values *values, struct reason *reason);
void mask_values_merge(const struct mask_values *from, struct mask_values *values);
void mask_values_free(struct mask_values *values);         /* accepts a zeroed struct */
