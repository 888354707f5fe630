/* image_results.h: a table with the result of every image of an evaluation, as comma-separated values. */
#pragma once

#include "evaluate/evaluation.h"

/* How such a file begins (base/signature.h). */
#define IMAGE_RESULTS_SIGNATURE "name,*"

/* Writes a line for each image, in the order of the data set: its name, truth, prediction, and the
 * probability of that; of labels lists, A;B; of a number no probability; of masks the IoU of each class, for
 * which evaluate_options.ious was set. What is not known is empty: all but the name of an image that cannot
 * be read. FAILED if it cannot be written. */
enum status image_results_write(const struct evaluation *evaluation, const struct images *images,
                                const struct data *data, const char *path);
