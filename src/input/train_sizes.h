/* train_sizes.h: augment.sizes: training images of other sizes in some epochs, such as smaller ones first. */
#pragma once

#include "conf/settings.h"

/* Sides of training images: of `side` from `epoch` on, counted from 1. */
struct train_sizes {
    struct train_size {
        int64_t epoch;
        int side;
    } *list;
    int count;                 /* 0: all epochs have images of one size */
};

/* Reads "SIDE@EPOCH,..." with rising epochs. Refused with the place, USAGE. */
enum status train_sizes_read(const struct settings *settings, struct train_sizes *sizes);
void train_sizes_free(struct train_sizes *sizes);      /* accepts a zeroed struct */

/* The side in an epoch, counted from 0; `otherwise` before the first of the list. */
int train_sizes_at(const struct train_sizes *sizes, int64_t epoch, int otherwise);

/* The largest side of all epochs. */
int train_sizes_most(const struct train_sizes *sizes, int otherwise);
