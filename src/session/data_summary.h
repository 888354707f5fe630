/* data_summary.h: a summary of a run's images by split and class, with warnings. */
#pragma once

#include "session/data.h"

/* Logs how many there are, and warns of classes without images, of classes of very different sizes, and where
 * splits were taken for classes. */
void data_summary_log(const struct settings *settings, const struct data *data);

/* Images of each class, [dataset->classes], for the caller to free; NULL: there are none, or labels are not
 * known before images are read. */
int64_t *data_summary_counts(const struct images *images);
