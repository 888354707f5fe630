/* heat_map.h: pictures of an image as a network gets it, with a map over it: blue is 0, red is 1. */
#pragma once

#include "data/augment/augment.h"

struct heat_map {
    const float *values;             /* [h][w], from 0 to 1, of the whole picture */
    int h, w;
};

/* The picture, h x w of RGB: the crop of the image that an evaluation makes, and the map in half of its
 * colour, enlarged bilinearly. False, with the reason, if the image cannot be cropped. */
bool heat_map_draw(const struct augment *augment, const struct image *image, const struct heat_map *map,
                   int h, int w, struct image *picture, struct reason *reason);
