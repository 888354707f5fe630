/* train_sizes.h: augment.sizes: training images of other sizes in some epochs, such as smaller ones first. */
#pragma once

#include "conf/settings.h"

/* Training images have this size from `epoch` on, counted from 1. */
struct train_sizes {
    struct train_size {
        int64_t epoch;
        struct image_size size;
    } *list;
    int count;                 /* 0: all epochs have images of one size */
};

/* Reads "SIZE@EPOCH,..." with rising epochs; one of the sizes, or crop, must cover all. Refused with the
 * place, USAGE. */
enum status train_sizes_read(const struct settings *settings, struct train_sizes *sizes);
void train_sizes_free(struct train_sizes *sizes);      /* accepts a zeroed struct */

/* The size in an epoch, counted from 0; `otherwise` before the first of the list. */
struct image_size train_sizes_at(const struct train_sizes *sizes, int64_t epoch,
                                 struct image_size otherwise);

/* The largest size of all epochs. */
struct image_size train_sizes_most(const struct train_sizes *sizes, struct image_size otherwise);
