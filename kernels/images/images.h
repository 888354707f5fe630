/* images.h: preprocessing of a batch's images on a device, from bytes to the network's input
 * (data/augment/gpu_preprocessing.h). Not an op: it is queued before a step, on the copy stream. */
#pragma once

#include "base/dtype.h"
#include "base/status.h"
#include "data/augment/gpu_preprocessing.h"
#include "data/augment/mix.h"
#include "data/augment/variation.h"
#include "device/device.h"

/* Every pointer but `mix` and `device` is device memory. */
struct images_job {
    const struct image_record *images;       /* [count] */
    const uint8_t *sources[IMAGE_SOURCES];   /* where each begins */
    const uint32_t (*table)[256];            /* [c]: a byte's bits in `dtype`, as augment_table has them */
    enum dtype dtype;                        /* F32, F16 or BF16 */
    int count, h, w, c;
    size_t shared;                           /* the most image_record_shared_bytes of any of the images */
    const struct variation *variations;      /* [count]; NULL: images are not varied */
    uint8_t *pictures;                       /* then: images_pictures of `picture` bytes, two an image */
    size_t picture;
    const float *normal;                     /* intensity_quantiles; NULL: there is no noise */
    const struct mix *mix;                   /* NULL: no mixing */
    void *out;                               /* [count, h, w, c] */
    struct device *device;
    void *stream;
};

/* So many images are varied at once. */
static inline int images_together(int count) { return count < 128 ? count : 128; }
static inline size_t images_pictures(int count) { return 2 * (size_t)images_together(count); }

struct images_code {
    enum status (*preprocess)(const struct images_job *job);
};

extern const struct images_code images_cpu, images_cuda;
