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

struct variation;

/* Adds the changes of an image of so many numbers, in this order. What is off draws nothing; noise draws as
 * much as it adds. */
void intensity_draw(const struct intensity *intensity, size_t count, struct random *random,
                    struct variation *variation);

/* Convolves with the Gaussian, cut off at `reach` pixels and normalised; beyond the edges lies the image
 * reflected. */
bool intensity_blur(struct image *image, double deviation, int reach, struct intensity_scratch *scratch,
                    struct reason *reason);

/* The weights of the middle pixel and of those up to `reach` beside it. */
void intensity_blur_weights(double deviation, int reach, float *weight);

/* Adds to each value an independent number of the normal distribution, of which there are 2^16; results are
 * rounded and clamped. Eight values share a block of four words of the stream, from block `draw` on. */
void intensity_noise(struct image *image, double deviation, const struct random *random, uint64_t draw,
                     struct intensity_scratch *scratch);

#define INTENSITY_QUANTILES (1 << 16)
/* Where (i + 1/2) / INTENSITY_QUANTILES of the normal distribution lie below; free() it. */
float *intensity_quantiles(void);
