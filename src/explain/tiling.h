/* tiling.h: classes of all pixels of images of any size: tiles, in batches that images share, are evaluated
 * and blended on the device (kernels/images/blend.h), from which only results come back. While a batch is
 * computed, the next one is cut. */
#pragma once

#include "input/whole_images.h"
#include "session/step.h"
#include "session/tiles.h"

struct tiling_options {
    const struct session *session;
    const struct step *step;             /* an evaluation of the session's network */
    bool mirrored;                       /* each image is averaged with its mirror image */
    void (*progress)(void *context);     /* called after every batch; may be NULL */
    void *context;
};

struct tiling;

/* Takes tiles_bytes of device memory, of the step's lender if that has so much: NO_DEVICE. */
enum status tiling_open(const struct tiling_options *options, struct tiling **tiling);
void tiling_close(struct tiling *tiling);    /* accepts NULL */

/* Evaluates all images, and gives each back. */
enum status tiling_run(struct tiling *tiling, struct whole_images *images);

/* Images that belong to no data set of the session. */
struct tiling_list {
    const struct listed_image *images;
    int64_t count;
    int (*stop)(void *context);          /* as in struct whole_images_options */
    void (*take)(void *context, const struct whole_image *image);
    void *context;
};

/* Opens all, evaluates the images, averaged with their mirror images also if augment.val_flip says so, and
 * closes all. `*kept`: a tiling for later lists with the same session and step, opened if it is NULL, which a
 * failure closes; `kept` NULL: there is none. */
enum status tiling_run_list(const struct tiling_options *options, const struct tiling_list *list,
                            struct tiling **kept);

/* Tiles of all these images, in one view; INT_MAX if files are yet to tell their sizes. */
int64_t tiling_count(const struct session *session, const struct listed_image *images, int64_t count);
