/* image_cache.h: decoded images cached in memory for later epochs, up to a limit.
 *
 * The whole decoded image is cached: every epoch crops a different part of it, and decoding is nearly all of
 * the work. This takes several times the memory of the file, which may be in the page cache as well. The
 * first images are cached and never evicted: since each epoch visits every image once, in a new order, any
 * set of the same size saves as much. Batches are bitwise the same with a cache, without one, and when it is
 * full: an image that can be decoded in part but not as a whole is not cached but read each time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/dataset/dataset.h"

struct image_cache_options {
    const struct dataset *dataset;
    bool masks;                /* its masks are cached, not its images */
    size_t limit;              /* bytes, including bookkeeping */
    int shared;                /* a file of so many bytes, at first all zero, whose images are those of all
                                  processes that have a cache in it; not owned; 0: the cache is its own */
    bool all;                  /* cache only a few if, judging by their size, not all would fit */
    int64_t count;             /* with `all`: the images that will be asked for */
};

struct image_cache;

/* NULL: no memory; nothing is cached. */
struct image_cache *image_cache_open(const struct image_cache_options *options);
void image_cache_close(struct image_cache *cache);         /* accepts NULL */

/* Like the format's `read`, or masks_read with *label in the place of *wrong, into image[0]; or, if the image
 * is cached, image[1], whose pixels live as long as the cache. Returns the one used, or NULL with the reason:
 * the image cannot be used. Thread-safe. */
const struct image *image_cache_read(struct image_cache *cache, int64_t index,
                                     const struct image_choice *choice, struct image image[2], int *label,
                                     struct reason *reason);

/* Bytes taken so far. */
size_t image_cache_bytes(const struct image_cache *cache);
