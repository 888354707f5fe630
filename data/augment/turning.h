/* turning.h: where the pixels of a crop come from that is mirrored and turned, of its image and its mask
 * alike. */
#pragma once

#include <math.h>

#include "data/augment/augment.h"

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
