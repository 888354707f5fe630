/* split_groups.h: divides a data set whose images are in groups: none is on both sides. */
#pragma once

#include "data/dataset/dataset.h"
#include "data/dataset/split_holdout.h"

/* True if any image is in a group. */
bool split_groups_any(const struct dataset *dataset);

/* Like split_hold_out, but for whole groups: classes are divided as evenly as they allow. The largest come
 * first, each where chi-squared, of the images of each class and those that there should be, grows least. */
int64_t split_groups_hold_out(const struct dataset *dataset, const struct split_holdout *holdout, bool *held);
