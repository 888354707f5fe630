/* results.h: the results of an evaluation by class: accuracies, the worst classes, the most frequent
 * confusions. */
#pragma once

#include "train/evaluate.h"
#include "train/progress.h"

/* The accuracy in each class, NAN for a class without images: [classes], which the caller frees. */
double *results_per_class(const struct evaluation *evaluation, int classes);

/* Adds balanced accuracy, which is the mean of those, then the worst classes and the most frequent
 * confusions, if there are errors. */
void results_add(const struct evaluation *evaluation, const struct data *data, struct progress_table *table);

/* Writes confusion.csv: a line for each true class, a column for each predicted one. */
enum status results_write_confusion(const struct evaluation *evaluation, const struct data *data,
                                    const struct directory *folder);
