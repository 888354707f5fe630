/* cut.h: the crop of an image and of its mask, and where the pixels of one come from that is mirrored,
 * turned, sheared and moved. */
#pragma once

#include <math.h>

#include "data/augment/resize.h"

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

/* A place in the resized image: pixel 0, 0 lies at 0.5, 0.5. */
struct place {
    double y, x;
};

/* From a place of the output, relative to the middle, to the one of the image: the inverse of what
 * torchvision's RandomAffine does. */
struct turning {
    const struct cut *cut;
    double x[2], y[2];
};

/* The product of a rotation and shears has the determinant 1, so that its inverse has the same numbers. */
static inline struct turning turning_of(const struct cut *cut)
{
    const double degree = 3.14159265358979323846 / 180;
    double angle = -cut->turn * degree, along = tan(cut->shear[0] * degree), down = cut->shear[1] * degree;
    double cosine = cos(angle - down) / cos(down), sine = sin(angle - down) / cos(down);
    return (struct turning){cut, {cos(angle) - sine * along, sin(angle) + cosine * along}, {-sine, cosine}};
}

/* The place that pixel y, x of the output shows. */
static inline struct place turning_place(const struct turning *turning, int y, int x)
{
    const struct cut *cut = turning->cut;
    const struct box *window = &cut->window;
    double middle_y = window->h / 2.0, middle_x = window->w / 2.0;
    double down = (cut->vflip ? window->h - 1 - y : y) + 0.5 - middle_y - cut->shift[1];
    double across = (cut->flip ? window->w - 1 - x : x) + 0.5 - middle_x - cut->shift[0];
    return (struct place){window->y + middle_y + turning->y[0] * across + turning->y[1] * down,
                          window->x + middle_x + turning->x[0] * across + turning->x[1] * down};
}
