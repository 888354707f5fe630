/* mask_strip.h: a picture of an image that a network was evaluated on: beside it the true classes, the
 * predicted ones, and what differs. */
#pragma once

#include "data/image/mask_palette.h"
#include "input/whole_images.h"

struct mask_strip {
    struct image picture;        /* RGB; no pixels: there is none */
    double miou;                 /* of the classes in the truth or the prediction */
};

/* Draws it, each of its four parts shrunk to at most `side` pixels; `range`: of a deep image. Draws nothing
 * without memory, or of an image that is neither grey nor RGB. */
void mask_strip_draw(const struct whole_image *image, const struct mask_classes *classes,
                     const struct image_range *range, int side, struct image *picture);
