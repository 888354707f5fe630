/* by_class.h: the indices of images, sorted by class. */
#pragma once

#include "data/dataset/dataset.h"

/* Classes without images are left out. */
struct by_class {
    int64_t *images;           /* as sorted: positions in 0..count, in file order within a class */
    int64_t *begins;           /* [classes + 1]: where each class begins */
    int classes;
};

/* Groups `count` images of the data set, those of the subset if there is one. If labels are not known before
 * images are read, all count as one class. */
struct by_class by_class_make(const struct dataset *dataset, const int64_t *subset, int64_t count);
void by_class_free(struct by_class *by);       /* accepts a zeroed struct */
