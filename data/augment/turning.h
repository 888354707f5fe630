/* turning.h: where the pixels of a crop come from that is turned, sheared and moved; in doubles, of which
 * each operation rounds by itself, so that all devices find the same places (nvcc: -fmad=false). */
#pragma once

#include <math.h>

#include "data/augment/gpu_preprocessing.h"

/* A place in the resized image: pixel 0, 0 lies at 0.5, 0.5. */
struct place {
    double y, x;
};

/* From a place of the output, relative to the middle, to the one of the image: the inverse of what
 * torchvision's RandomAffine does. */
struct turning {
    double x[2], y[2];
    struct box window;         /* of the resized image: the output */
    struct box seen;           /* of the resized image: the pixels that are there */
    int32_t flip, vflip, reflect;
    int32_t shift[2];          /* pixels to the right and down, after turning */
};

/* The place that pixel y, x of the output shows. */
ANYWHERE struct place turning_place(const struct turning *turning, int y, int x)
{
    const struct box *window = &turning->window;
    double middle_y = window->h / 2.0, middle_x = window->w / 2.0;
    double down = (turning->vflip ? window->h - 1 - y : y) + 0.5 - middle_y - turning->shift[1];
    double across = (turning->flip ? window->w - 1 - x : x) + 0.5 - middle_x - turning->shift[0];
    struct place place;
    place.y = window->y + middle_y + turning->y[0] * across + turning->y[1] * down;
    place.x = window->x + middle_x + turning->x[0] * across + turning->x[1] * down;
    return place;
}

/* The number among the pixels that are there of the one in row y and column x of the resized image; -1: it is
 * black. */
ANYWHERE int64_t turning_pixel(const struct turning *turning, int y, int x)
{
    const struct box *seen = &turning->seen;
    y = image_record_pixel(y - seen->y, seen->h, turning->reflect);
    x = image_record_pixel(x - seen->x, seen->w, turning->reflect);
    return y >= 0 && y < seen->h && x >= 0 && x < seen->w ? (int64_t)y * seen->w + x : -1;
}

/* Four pixels around a place, and their weights. */
struct turning_taps {
    int64_t pixels[4];
    double weights[4];
};

ANYWHERE struct turning_taps turning_taps_at(const struct turning *turning, int y, int x)
{
    struct place place = turning_place(turning, y, x);
    double above = floor(place.y - 0.5), left = floor(place.x - 0.5);
    double down = place.y - 0.5 - above, across = place.x - 0.5 - left;
    struct turning_taps taps;
    taps.weights[0] = (1 - down) * (1 - across);
    taps.weights[1] = (1 - down) * across;
    taps.weights[2] = down * (1 - across);
    taps.weights[3] = down * across;
    for (int i = 0; i < 4; i++)
        taps.pixels[i] = turning_pixel(turning, (int)above + i / 2, (int)left + i % 2);
    return taps;
}

/* Channel k of a pixel of bytes. */
ANYWHERE uint8_t turning_byte(const struct turning_taps *taps, const uint8_t *pixels, int c, int k)
{
    double sum = 0.5;
    for (int i = 0; i < 4; i++)
        if (taps->pixels[i] >= 0) sum += taps->weights[i] * pixels[taps->pixels[i] * c + k];
    return (uint8_t)sum;
}
