/* augment.h: from an image's bytes to the numbers a network reads: crop, flip, resize, normalise. */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/random.h"
#include "data/image.h"
#include "data/resize.h"

/* How training and evaluation images are cut; torchvision's definitions. Training:
 * RandomResizedCrop, or resize, padding and a crop; then flip. Evaluation: val_resize, val_crop. */
struct augment {
    int crop;              /* output size of training images; 0: as the data */
    bool random_resized;   /* RandomResizedCrop(crop, scale, ratio) */
    double scale[2], ratio[2];
    int pad;               /* zero padding (black) on each side before a random crop */
    bool random_crop;      /* a random position rather than the centre */
    double flip;           /* probability of a horizontal flip */
    int resize;            /* training: short side first, antialiased bilinear; 0: not */
    int val_resize;        /* evaluation: short side; 0: not */
    int val_crop;          /* evaluation: centre crop (smaller images get a black border); 0: as the data */
    int channels;
    double mean[4], std[4]; /* a channel, of x / 255 */
};

/* What each byte of each channel becomes, as the bits of the number in `dtype`. */
struct augment_table {
    enum dtype dtype;      /* F32, F16 or BF16 */
    uint32_t bits[4][256];
};
void augment_table_make(const struct augment *augment, enum dtype dtype, struct augment_table *table);

/* Writes one image, h x w x channels in the table's type, normalised: (x / 255 - mean) / std,
 * where h and w are the output size. `random` NULL: evaluation. `scratch` is the caller's, reused.
 * False and why when the image has other channels, is of the wrong size with nothing to change
 * that, or (padded) is smaller than a random crop. */
bool augment_image_by(const struct augment *augment, const struct augment_table *table,
                      const struct image *image, struct random *random, int h, int w, void *out,
                      struct image *scratch, struct reason *reason);

/* The same, for a single image: makes the table first. */
bool augment_image(const struct augment *augment, const struct image *image, struct random *random,
                   int h, int w, enum dtype dtype, void *out, struct image *scratch,
                   struct reason *reason);

/* The box that RandomResizedCrop takes out of an image of h x w. */
struct box augment_random_box(const struct augment *augment, int h, int w, struct random *random);

#endif
