/* batch_packing.h: a batch of images for preprocessing on a device: their records, followed by their bytes
 * (gpu_preprocessing.h), in one block that is copied at once. Its size is fixed: each image has room for its
 * bytes after resizing, and as much again is shared by images that are larger before; an image that does not
 * fit is resized first. Neither where an image is resized nor its position in the block changes a bit of the
 * result. */
#pragma once

#include <stdatomic.h>

#include "data/augment.h"

/* An image of the data set, whole, that lies on the device. */
struct kept_image {
    int64_t at;                /* in bytes from the beginning of SOURCE_KEPT */
    int32_t h, w;              /* h 0: this one is not there */
    int32_t label;
};

struct batch_packing {
    const struct augment *augment;
    int count, h, w;           /* images; what comes out of each */
    size_t bytes;              /* of the block */
    struct image_record *records;   /* [count]: where the block begins */
    atomic_size_t used;        /* bytes of the block so far */
    atomic_size_t spare;       /* bytes that no image has a right to */
    atomic_size_t shared;      /* the most image_record_shared_bytes of an image so far */
};

/* A block for so many images. */
size_t batch_packing_bytes(int count, int h, int w, int channels);

/* Begins anew with a block of that many bytes, aligned to 16. */
void batch_packing_begin(struct batch_packing *packing, const struct augment *augment, int count, int h,
                         int w,
                         void *block);

/* Puts an image at a place, as augment_apply would preprocess it. From several threads, for different places.
 * False and why when it cannot be used; another may then take the place. */
bool batch_packing_put(struct batch_packing *packing, int place, const struct augmenting *how,
                       const struct cut *cut,
                       const struct image *image, struct reason *reason);

/* The same for one that lies on the device. False: it cannot be preprocessed from there. */
bool batch_packing_put_kept(struct batch_packing *packing, int place, const struct cut *cut,
                            const struct kept_image *kept, struct random *random);

/* And one of `w` pixels a row that is yet to be decoded there, whole;
 * where it then lies in SOURCE_DECODED. */
bool batch_packing_put_decoded(struct batch_packing *packing, int place, const struct cut *cut, int w,
                               struct random *random);
void batch_packing_decoded_at(struct batch_packing *packing, int place, int64_t at);

/* No image: zeros. */
void batch_packing_put_nothing(struct batch_packing *packing, int place);
