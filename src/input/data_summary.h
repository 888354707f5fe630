/* data_summary.h: a summary of a run's images by split and class, with warnings. */
#pragma once

#include "input/data.h"

/* The ratio of the largest class to the smallest one from which classes are called imbalanced. */
#define DATA_IMBALANCE 10

/* Logs the numbers of images, and warns of classes without images, of classes of very different sizes, and of
 * splits treated as classes. */
void data_summary_log(const struct settings *settings, const struct data *data);

/* The number of images in each class, [dataset->classes], which the caller frees; NULL: no images, or labels
 * are not known before images are read. */
int64_t *data_summary_counts(const struct images *images);
