/* cut.h: the crop of an image and of its mask, and where the pixels of one come from that is mirrored,
 * turned, sheared and moved. */
#pragma once

#include "data/augment/resize.h"
#include "data/augment/turning.h"

/* The crop of an image, known before it is decoded. */
struct cut {
    struct box from;       /* of the whole image: what is resized... */
    int h, w;              /* ...to this size */
    enum interpolation interpolation;
    struct box window;     /* of that, which it may reach beyond: what comes out */
    bool flip, vflip, reflect;
    double turn;           /* degrees, counterclockwise, about the middle of the window; before the flips */
    double shear[2];       /* degrees, along x and along y, before that */
    int shift[2];          /* pixels to the right and down, after it; 0 unless the crop is turned */
};

/* True if pixels of the output lie between those of the image. */
static inline bool cut_is_turned(const struct cut *cut)
{
    return cut->turn != 0 || cut->shear[0] != 0 || cut->shear[1] != 0;
}

/* The turning of a crop whose pixels in `seen` of the resized image are there. The product of a rotation and
 * shears has the determinant 1, so that its inverse has the same numbers. */
static inline struct turning turning_of(const struct cut *cut, struct box seen)
{
    const double degree = 3.14159265358979323846 / 180;
    double angle = -cut->turn * degree, along = tan(cut->shear[0] * degree), down = cut->shear[1] * degree;
    double cosine = cos(angle - down) / cos(down), sine = sin(angle - down) / cos(down);
    return (struct turning){
        .x = {cos(angle) - sine * along, sin(angle) + cosine * along},
        .y = {-sine, cosine},
        .window = cut->window,
        .seen = seen,
        .flip = cut->flip,
        .vflip = cut->vflip,
        .reflect = cut->reflect,
        .shift = {cut->shift[0], cut->shift[1]},
    };
}
