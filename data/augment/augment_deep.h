/* augment_deep.h: crops of deep images, which are floats to the end, neither rounded nor clipped. */
#pragma once

#include "base/dtype.h"
#include "data/augment/cut.h"

/* The number that a sample of each channel becomes: x * scale + offset, which is
 * ((x - low) / (high - low) - mean) / std. */
struct deep_scale {
    double scale[IMAGE_CHANNELS_MAX], offset[IMAGE_CHANNELS_MAX];
};
void deep_scale_of(const struct image_range *range, const double *mean, const double *std, int channels,
                   struct deep_scale *scale);

/* Writes `count` pixels of `c` channels as numbers of `dtype`. */
void deep_scale_write(const struct deep_scale *scale, enum dtype dtype, const float *from, int count, int c,
                      void *to);

/* Writes row y of the window of a crop, which is on the image's pixels, mirrored and turned; beyond the edges
 * lies `black`. */
void augment_deep_row(const struct cut *cut, const struct image *image, float black, int y, float *row);
