/* colour.h: colour transforms of a whole image, as in torchvision for uint8 tensors. */
#pragma once

#include "data/image/image.h"

/* All change `image`, grey or RGB, in place. A factor of 1 changes nothing (adjust_brightness and so on);
 * results are clamped to 0..255 and truncated. */
void colour_brightness(struct image *image, double factor);
void colour_contrast(struct image *image, double factor);      /* away from the mean of its grey */
void colour_saturation(struct image *image, double factor);    /* away from its grey, which 0 is */
void colour_hue(struct image *image, double turn);             /* rotation of the hue as a fraction of the
                                                                * circle, -0.5 to 0.5 */
void colour_posterize(struct image *image, int bits);          /* keeps the upper `bits` of 8 */
void colour_solarize(struct image *image, double threshold);   /* inverts values that are not below it */
void colour_gamma(struct image *image, double gamma);          /* 255 (x / 255)^gamma (adjust_gamma) */
void colour_gamma_table(double gamma, uint8_t table[256]);
void colour_autocontrast(struct image *image);                 /* each channel stretched to 0..255 */
void colour_equalize(struct image *image);                     /* equalises each channel's histogram */

/* Extrapolates from a 3 x 3 blur of the image; the border is unchanged. `copy` is the caller's, reused. */
bool colour_sharpness(struct image *image, double factor, struct image *copy, struct reason *reason);

/* PIL's GaussianBlur with this radius, the standard deviation, from 0 to BLUR_MAX: three passes of a box
 * filter with fractional edges (Gwosdek et al., SSVM 2011), across and down; outside lie the pixels of the
 * border. `copy` as above. */
#define BLUR_MAX 2
void colour_blur_weights(double radius, uint32_t weights[3]);      /* pixel_softened's */
bool colour_blur(struct image *image, double radius, struct image *copy, struct reason *reason);
