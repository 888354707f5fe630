/* augment.h: converts an image's bytes to the network's input: crop, flip, resize, normalise. */
#pragma once

#include <stdbool.h>

#include "base/dtype.h"
#include "base/random.h"
#include "base/shape.h"
#include "data/augment/cut.h"
#include "data/augment/gpu_preprocessing.h"
#include "data/augment/intensity.h"
#include "data/augment/policy.h"
#include "data/augment/resize.h"
#include "data/image/image.h"

/* How a whole image becomes one of another shape: by a crop, between black borders, or stretched. */
enum image_fit { IMAGE_FIT_CROP, IMAGE_FIT_LETTERBOX, IMAGE_FIT_STRETCH };

/* Cropping and augmentation of training and evaluation images, as torchvision defines them. Training:
 * RandomResizedCrop, or resize, padding and a crop; then RandomAffine and flips, in one resampling; jitter,
 * policy (POLICY_THREE: policy, jitter), intensity; and of the normalised image, erasing. Evaluation:
 * val_resize, val_crop. */
struct augment {
    bool crop;             /* training images become as large as the output; otherwise they must be */
    bool random_resized;   /* RandomResizedCrop(output size, scale, ratio) */
    double scale[2], ratio[2];
    enum image_fit fit;    /* unless random_resized; with others than a crop, resize is not used, and images
                            * are moved by up to `pad` pixels */
    int pad;               /* pixels on each side before a random crop */
    bool reflect;          /* padding reflects the image instead of being black */
    bool random_crop;      /* random position instead of the centre */
    double flip;           /* probability of a horizontal flip */
    double vflip;          /* ... of a vertical one */
    double rotate;         /* images are turned about the middle of the crop by up to so many degrees */
    double shear[2];       /* ... and sheared by up to so many degrees, along x and along y */
    double translate[2];   /* ... and moved by up to these shares of the crop, across and down */
    double foreground;     /* with masks: the share of crops that must hold a class other than the first */
    double jitter[4];      /* amounts of brightness, contrast, saturation, hue (ColorJitter) */
    enum policy policy;
    struct intensity intensity;   /* after jitter and policy */
    double erase;          /* probability of a rectangle being blanked (RandomErasing) */
    struct image_size resize;  /* training: first to the smallest size of the same shape that covers this,
                            * antialiased; h is 0: not */
    struct image_size val_resize;   /* the same in evaluation */
    enum interpolation interpolation;   /* of evaluation; training images are resized bilinearly */
    bool val_crop;         /* evaluation: centre crop (smaller images get a black border) */
    int channels;
    struct image_range range;  /* of samples: what becomes 0 and 1 */
    double mean[IMAGE_CHANNELS_MAX], std[IMAGE_CHANNELS_MAX];   /* a channel, of what the range makes */
};

/* The bits of the number in `dtype` that each byte of each channel becomes. */
struct augment_table {
    enum dtype dtype;      /* F32, F16 or BF16; U8: the bytes themselves */
    uint32_t (*bits)[256]; /* [channels]; NULL: U8 */
};
struct augment_table augment_table_make(const struct augment *augment, enum dtype dtype);
void augment_table_free(struct augment_table *table);    /* accepts a zeroed one */
static inline size_t augment_table_bytes(int channels)
{
    return (size_t)channels * sizeof *((struct augment_table *)NULL)->bits;
}

/* Writes `count` pixels of `c` channels, taken every `step` pixels (1 or -1), in the table's type. */
struct pixel_row {
    const uint8_t *from;
    int step, count, c;
};
void augment_paint(const struct augment_table *table, struct pixel_row pixels, void *out);

/* Images that are kept between calls to reuse their memory. */
struct scratch {
    struct image resized, picture, copy;
    struct intensity_scratch intensity;
};
void scratch_free(struct scratch *scratch);

/* The smallest size of an image of `own` size, in its shape, that covers `to`: the short side becomes that of
 * a square, as torchvision's Resize does. */
struct image_size image_size_covering(struct image_size own, struct image_size to);

/* The sizes of the whole image and of the result. */
struct cut_sizes {
    int full_h, full_w, h, w;
};

/* Draws the crop of a whole image. `random` NULL: evaluation. False, with the reason, if the image has the
 * wrong size and no option changes that, or (padded) is smaller than a random crop. */
bool augment_cut(const struct augment *augment, struct random *random, const struct cut_sizes *sizes,
                 struct cut *cut, struct reason *reason);

/* augment_cut's two halves: the crop, of which a box may be all that is resized; and where it is turned,
 * more of the image around the box, at the same scale, for its corners. */
bool augment_place(const struct augment *augment, struct random *random, const struct cut_sizes *sizes,
                   struct cut *cut, struct reason *reason);
void augment_widen(const struct cut_sizes *sizes, struct cut *cut);

/* Cuts an image with a mask, of the whole image's size; some crops must hold a pixel of a class other
 * than the first (augment->foreground), if there is one: a class is drawn, then a pixel of it, and up to ten
 * crops until one shows any such pixel. */
bool augment_cut_masked(const struct augment *augment, struct random *random, const struct cut_sizes *sizes,
                        const struct image *mask, struct cut *cut, struct reason *reason);

/* Writes the crop of a mask, [window.h, window.w], as augment_apply cuts, turns and mirrors its image: each
 * pixel is the nearest one, of the same place; beyond the image lies MASK_IGNORE, or the mask reflected. */
void augment_mask(const struct cut *cut, const struct image *mask, uint8_t *out);

/* The part of the whole image that is read. */
struct box augment_needs(const struct cut *cut);

/* The state for augmenting an image, with reusable memory. */
struct augmenting {
    const struct augment *augment;
    struct random *random;     /* the stream with which the crop is drawn; NULL: evaluation */
    struct scratch *scratch;   /* the caller's, reused */
};

/* Writes the crop of an image, h x w x channels in the table's type, normalised: (x / 255 - mean) / std, or
 * of another range than 0 to 255; deep images need a table of numbers. False, with the reason, if the number
 * of channels differs. */
bool augment_apply(const struct augmenting *how, const struct augment_table *table, const struct cut *cut,
                   const struct image *image, void *out, struct reason *reason);

/* The record of a crop of an image whose pixels from top, left on are available; their address is not set. */
struct image_record augment_record(const struct cut *cut, int top, int left);

/* The bytes of an image that a device preprocesses: rows are `stride` apart; valid as long as the image and
 * the scratch memory. */
struct augment_part {
    const uint8_t *pixels;
    int64_t stride;
    int h, w;
    struct image_record record;   /* without source, at and stride */
};

/* True if an augmentation may change bytes other than by cropping and mirroring. */
bool augment_is_varied(const struct augment *augment);

/* Draws what changes a crop; nothing in an evaluation. */
void augment_draw(const struct augment *augment, struct random *random, const struct cut *cut,
                  struct variation *variation);

/* The room of a picture that a device varies, to be h x w: turned images may see about twice as much
 * before. */
size_t augment_picture_bytes(const struct augment *augment, int h, int w);

/* The pixels of the resized image around all places that a window shows, turned or not: between those of its
 * corners. */
struct box augment_turned_window(const struct cut *cut);

/* Turns bytes of c channels, those that `turning` says are there. */
void augment_turn(const struct turning *turning, const uint8_t *pixels, int c, uint8_t *out);

/* Does a part of augment_apply's work, the rest of which is left to a device: the variation, which has been
 * drawn (NULL: left, too), and, with `resize`, resizing: then only the window's pixels remain. */
bool augment_leave(const struct augmenting *how, const struct variation *variation, bool resize,
                   const struct cut *cut, const struct image *image, struct augment_part *part,
                   struct reason *reason);

/* The box that RandomErasing blanks with the next numbers of `random`, after those of the crop and the
 * policies; h is 0: nothing. `random` NULL: evaluation. */
struct box augment_erased(const struct augment *augment, int h, int w, struct random *random);

/* The destination of a single image: h x w x channels numbers. */
struct augment_output {
    int h, w;
    enum dtype dtype;
    void *data;
};

/* All of these steps, for a single image. */
bool augment_image(const struct augmenting *how, const struct image *image, const struct augment_output *out,
                   struct reason *reason);

/* The box that RandomResizedCrop crops from an image of h x w. */
struct box augment_random_box(const struct augment *augment, int h, int w, struct random *random);

/* The box that RandomErasing blanks in h x w; false: ten boxes did not fit, and nothing is blanked. */
bool augment_erased_box(int h, int w, struct random *random, struct box *box);
