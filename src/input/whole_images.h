/* whole_images.h: images of a data set in their own size, with their masks, which worker threads read ahead;
 * the same threads take the results. */
#pragma once

#include "data/augment/cut.h"
#include "base/shape.h"
#include "data/dataset/dataset.h"

struct whole_image {
    int64_t place;               /* among the images that are read */
    char *problem;               /* why it cannot be used, with its file's name; NULL: it can */
    int h, w;                    /* of the upright image */
    struct image image;          /* what is tiled: the same, or resized */
    struct image mask;           /* [h, w] true classes, or MASK_IGNORE; no pixels: not asked for */
    /* The result. */
    int64_t left;                /* pixels that are missing in it */
    uint8_t *classes;            /* [h, w] */
    float *probabilities;        /* [h, w, outputs], or NULL */
    double loss;                 /* the sum of -log p[true class]; NAN: the network's output is not finite */
    bool wrong;                  /* the problem is one of the data set, of which nothing can be used then */
    size_t bytes;                /* that count towards what is kept in memory */
    struct whole_image *next;
};

/* The problem without the name that it begins with. */
const char *whole_image_why(const struct whole_image *image, const char *name);

struct whole_images_options {
    struct dataset *dataset;     /* only its `held` member may change */
    const int64_t *subset;       /* [count] indices in it; NULL: all */
    int64_t count;
    int rank, ranks;             /* every ranks-th image is read, from this one on */
    struct image_size resize;    /* the smallest size of the image's shape that covers this; h is 0: not */
    enum interpolation interpolation;
    bool masks;
    int outputs;                 /* classes, of which there is room for probabilities; 0: none */
    int threads;
    double timeout;              /* seconds without an image after which next fails; 0: never */
    int (*stop)(void *context);  /* asked while waiting: not 0 ends it with STOPPED; may be NULL */
    /* Takes an image with its result, or its problem, on one of the threads, in any order. The image is freed
     * afterwards. */
    void (*take)(void *context, const struct whole_image *image);
    void *context;
};

struct whole_images;

/* FAILED without threads. Whatever the options point to must outlive them. */
enum status whole_images_open(const struct whole_images_options *options, struct whole_images **images);

/* The next image, in order; NULL after the last one. Its owner is the caller, until whole_images_give. */
enum status whole_images_next(struct whole_images *images, struct whole_image **image);

/* True once the options' `stop` says so, which it is asked. */
bool whole_images_stop(struct whole_images *images);
void whole_images_give(struct whole_images *images, struct whole_image *image);

/* Returns when all images that were given have been taken; others are dropped. Threads that do not return
 * from a read after a stop or the timeout are left as by loader_close. FAILED if a guest's thread had no
 * memory, so that results are missing. Accepts NULL. */
enum status whole_images_close(struct whole_images *images);
