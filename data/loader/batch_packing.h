/* batch_packing.h: a batch of images for preprocessing on a device: their records, how each is varied if any
 * may be, and their bytes (gpu_preprocessing.h, variation.h), in one block that is copied at once. Its size
 * is fixed: each image has room for its bytes after resizing, and as much again is shared by images that are
 * larger before; an image that does not fit is resized first, and varied, too, if it needs more room before
 * that. Neither where this is done nor the position in the block changes a bit of the result. */
#pragma once

#include <stdatomic.h>

#include "data/augment/augment.h"

/* A whole image of the data set that is cached on the device. */
struct kept_image {
    int64_t at;                /* in bytes from the beginning of SOURCE_KEPT */
    int32_t h, w;              /* h 0: it is not cached */
    int32_t label;
};

struct batch_packing {
    const struct augment *augment;
    int count, h, w;           /* images; output size of each */
    size_t bytes;              /* of the block */
    struct image_record *records;   /* [count]: where the block begins */
    struct variation *variations;   /* [count]; NULL: images are not varied */
    atomic_size_t used;        /* bytes of the block so far */
    atomic_size_t spare;       /* shared bytes that are left */
    atomic_size_t shared;      /* the most image_record_shared_bytes of an image so far */
    atomic_bool varied;        /* any of them so far */
};

/* A block for that many images, which may be varied. */
size_t batch_packing_bytes(int count, int h, int w, int channels, bool varies);
/* Where their variations begin. */
size_t batch_packing_variations(int count);

/* Starts a new batch in a block of that many bytes, aligned to 16. */
void batch_packing_begin(struct batch_packing *packing, const struct augment *augment, bool varies,
                         int count, int h, int w, void *block);

/* Adds an image at a position of the batch, to be preprocessed as augment_apply does. May be called by
 * several threads for different positions. False, with the reason, if the image cannot be used; another may
 * then take the position. */
bool batch_packing_put(struct batch_packing *packing, int place, const struct augmenting *how,
                       const struct cut *cut, const struct image *image, struct reason *reason);

/* Puts an image that is cached on the device. False: it cannot be preprocessed from there. */
bool batch_packing_put_kept(struct batch_packing *packing, int place, const struct cut *cut,
                            const struct kept_image *kept, struct random *random);

/* Puts a whole image of `w` pixels a row that the device will decode, at this offset of SOURCE_DECODED. */
bool batch_packing_put_decoded(struct batch_packing *packing, int place, const struct cut *cut, int w,
                               struct random *random);
void batch_packing_decoded_at(struct batch_packing *packing, int place, int64_t at);

/* No image: zeros. */
void batch_packing_put_nothing(struct batch_packing *packing, int place);
