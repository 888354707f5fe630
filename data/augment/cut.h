/* cut.h: the crop of an image and of its mask, and where the pixels of one come from that is mirrored and
 * turned. */
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
};

/* A place in the resized image: pixel 0, 0 lies at 0.5, 0.5. */
struct place {
    double y, x;
};

struct turning {
    const struct cut *cut;
    double cosine, sine;
};

static inline struct turning turning_of(const struct cut *cut)
{
    double angle = cut->turn * 3.14159265358979323846 / 180;
    return (struct turning){cut, cos(angle), sin(angle)};
}

/* The place that pixel y, x of the output shows. */
static inline struct place turning_place(const struct turning *turning, int y, int x)
{
    const struct cut *cut = turning->cut;
    const struct box *window = &cut->window;
    double middle_y = window->h / 2.0, middle_x = window->w / 2.0;
    double down = (cut->vflip ? window->h - 1 - y : y) + 0.5 - middle_y;
    double across = (cut->flip ? window->w - 1 - x : x) + 0.5 - middle_x;
    return (struct place){window->y + middle_y + turning->sine * across + turning->cosine * down,
                          window->x + middle_x + turning->cosine * across - turning->sine * down};
}
