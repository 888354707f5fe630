/* batch_packing.h: a batch of images that a device will finish: records of what is left to do, and behind
 * them the bytes to do it to (finish.h), in one block that can be sent at once. Room is limited and known
 * before: each image has a right to its bytes when it is resized, and as much again is there for those that
 * are larger before they are; what does not fit is resized first. Who resizes an image, and where in the
 * block it lies, shows in no bit of what comes out. */
#ifndef DATA_BATCH_PACKING_H
#define DATA_BATCH_PACKING_H

#include <stdatomic.h>

#include "data/augment.h"

/* An image of the data set, whole, that lies on the device. */
struct kept_image {
    int64_t at;                /* in bytes from the beginning of FINISH_KEPT */
    int32_t h, w;              /* h 0: this one is not there */
    int32_t label;
};

struct batch_packing {
    const struct augment *augment;
    int count, h, w;           /* images; what comes out of each */
    size_t bytes;              /* of the block */
    struct finish *records;    /* [count]: where the block begins */
    atomic_size_t used;        /* bytes of the block so far */
    atomic_size_t spare;       /* bytes that no image has a right to */
    atomic_size_t shared;      /* the most finish_shared_bytes of an image so far */
};

/* A block for so many images. */
size_t batch_packing_bytes(int count, int h, int w, int channels);

/* Begins anew with a block of that many bytes, aligned to 16. */
void batch_packing_begin(struct batch_packing *packing, const struct augment *augment, int count, int h,
                         int w,
                         void *block);

/* Puts an image at a place, as augment_apply would finish it. From several threads, for different places.
 * False and why when it cannot be used; another may then take the place. */
bool batch_packing_put(struct batch_packing *packing, int place, const struct augmenting *how,
                       const struct cut *cut,
                       const struct image *image, struct reason *reason);

/* The same for one that lies on the device. False: it cannot be finished from there. */
bool batch_packing_put_kept(struct batch_packing *packing, int place, const struct cut *cut,
                            const struct kept_image *kept, struct random *random);

/* And one of `w` pixels a row that is yet to be decoded there, whole;
 * where it then lies in FINISH_DECODED. */
bool batch_packing_put_decoded(struct batch_packing *packing, int place, const struct cut *cut, int w,
                               struct random *random);
void batch_packing_decoded_at(struct batch_packing *packing, int place, int64_t at);

/* No image: zeros. */
void batch_packing_put_nothing(struct batch_packing *packing, int place);

#endif
