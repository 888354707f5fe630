/* colour.h: colour transforms of a whole image, as in torchvision for uint8 tensors. */
#pragma once

#include "data/image.h"

/* All change `image`, grey or RGB, in place. A factor of 1 leaves it as it is (adjust_brightness and
 * so on); results are cut off at 0 and 255 and toward zero. */
void colour_brightness(struct image *image, double factor);
void colour_contrast(struct image *image, double factor);      /* away from the mean of its grey */
void colour_saturation(struct image *image, double factor);    /* away from its grey */
void colour_hue(struct image *image, double turn);             /* turns around the circle, -0.5 to 0.5 */
void colour_posterize(struct image *image, int bits);          /* keeps the upper `bits` of 8 */
void colour_solarize(struct image *image, double threshold);   /* inverts what is not below it */
void colour_autocontrast(struct image *image);                 /* each channel stretched to 0..255 */
void colour_equalize(struct image *image);                     /* each channel's histogram made flat */

/* Away from what a 3 x 3 blur makes of it; the border stays. `copy` is the caller's, reused. */
bool colour_sharpness(struct image *image, double factor, struct image *copy, struct reason *reason);
