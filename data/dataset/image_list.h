/* image_list.h: a data set of images that are named one by one, as files or in memory, without labels. */
#pragma once

#include "data/dataset/dataset.h"

/* Pixels of a caller: `h` rows of `w` pixels of `c` bytes, these distances in bytes apart. Grey and RGB may
 * have alpha behind them. */
struct listed_pixels {
    const uint8_t *first;
    int h, w, c;
    ptrdiff_t row, pixel, channel;
};

/* An image of the list. */
struct listed_image {
    const char *name;            /* the path of its file */
    const uint8_t *bytes;        /* instead of a file, [count]: an encoded image in memory; NULL: none */
    size_t count;
    const struct listed_pixels *pixels;   /* instead of both; NULL: none */
    const char *problem;         /* why there is none; NULL: there may be one */
};

/* Opens a data set for dataset_close. The names are copied; bytes, pixels and problems must outlive it.
 * Nothing is read now: what cannot be read is an unusable image. Each image's label is 0. */
void image_list_open(const struct listed_image *images, int64_t count, struct image_options options,
                     struct dataset *dataset);
