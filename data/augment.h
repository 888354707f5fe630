/* augment.h: from an image's bytes to the numbers a network reads: crop, flip, resize, normalise. */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/random.h"
#include "data/image.h"

/* How training and evaluation images are cut; torchvision's definitions. */
struct augment {
    int crop;              /* output size of training images; 0: as the data */
    bool random_resized;   /* RandomResizedCrop(crop, scale, ratio) */
    double scale[2], ratio[2];
    int pad;               /* zero padding (black) on each side before a random crop */
    bool random_crop;      /* a random position rather than the centre */
    double flip;           /* probability of a horizontal flip */
    int resize;            /* training: short side first, antialiased bilinear; 0: not */
    int val_resize;        /* evaluation: short side; 0: not */
    int val_crop;          /* evaluation: centre crop; 0: as the data */
    int channels;
    float mean[4], std[4]; /* a channel, of x / 255 */
};

/* Writes one image, h x w x channels in `dtype`, normalised: (x / 255 - mean) / std, where h and w
 * are the output size. `random` NULL: evaluation. `scratch` is the caller's, reused. */
bool augment_image(const struct augment *augment, const struct image *image, struct random *random,
                   int h, int w, enum dtype dtype, void *out, struct image *scratch,
                   struct reason *reason);

#endif
