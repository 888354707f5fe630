/* split.h: divides the images of a data set: which are held out for validation.
 *
 * Images are drawn by hashes of a seed and their names (or indices, without names), so that the same images
 * are drawn wherever the data are, and nearly the same ones after a few were added. */
#pragma once

#include "data/dataset/dataset.h"
#include "data/dataset/split_holdout.h"

/* Marks the images of a data set that are held out, and returns their number. The fraction is taken of each
 * class to the image, by the largest remainder. Folds are disjoint, and each has the same number of images of
 * each class, and in all, give or take one. Every class keeps an image, so one with a single image is not
 * held out. If images are in groups, none is divided (split_groups.h). */
int64_t split_hold_out(const struct dataset *dataset, const struct split_holdout *holdout, bool *held);

/* Marks `wanted` of `count` images, positions in the subset if there is one, of each class its share by the
 * largest remainder. */
void split_draw(const struct dataset *dataset, const int64_t *subset, int64_t count, int64_t wanted,
                uint64_t seed, bool *drawn);
