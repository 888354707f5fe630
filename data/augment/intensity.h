/* intensity.h: random changes of an image's values that leave its geometry: grey, gamma, blur, noise. Values
 * of deep images are neither rounded nor clamped, and have low to high in the place of 0 to 255. */
#pragma once

#include "base/random.h"
#include "data/image/image.h"

/* A change that is made with probability p, by an amount from low to high. */
struct chance {
    double p, low, high;
};

struct intensity {
    double gray;               /* probability of all channels becoming the grey (RandomGrayscale) */
    struct chance gamma;       /* the exponent of x / 255 (adjust_gamma); half of the time one below 1, if the
                                * limits are on both sides of it, as nnU-Net draws it */
    struct chance blur;        /* the deviation of a Gaussian in pixels (GaussianBlur) */
    struct chance noise;       /* the deviation of Gaussian noise, of x / 255 (albumentations' GaussNoise) */
};

/* Memory that is kept between calls. */
struct intensity_scratch {
    float *rows;
    size_t capacity;
    float *normal;             /* quantiles of the normal distribution */
};
void intensity_scratch_free(struct intensity_scratch *scratch);      /* accepts a zeroed one */

/* True if one of them may happen. */
bool intensity_varies(const struct intensity *intensity);

/* Changes `image` in place, in this order. What is off draws nothing. */
bool intensity_apply(const struct intensity *intensity, struct image *image, struct random *random,
                     struct intensity_scratch *scratch, struct reason *reason);

/* Convolves with the Gaussian, cut off at `reach` pixels and normalised; beyond the edges lies the image
 * reflected. */
bool intensity_blur(struct image *image, double deviation, int reach, struct intensity_scratch *scratch,
                    struct reason *reason);

/* Adds to each value an independent number of the normal distribution, of which there are 2^16; results are
 * rounded and clamped. */
void intensity_noise(struct image *image, double deviation, struct random *random,
                     struct intensity_scratch *scratch);
