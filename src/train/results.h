/* results.h: the results of an evaluation by class: accuracies, the worst classes, the most frequent
 * confusions. */
#pragma once

#include "evaluate/evaluate.h"
#include "train/progress.h"

/* The accuracy in each class, NAN for a class without images: [classes], which the caller frees. */
double *results_per_class(const struct evaluation *evaluation, int classes);

/* Adds how many images are lost, if any; balanced accuracy, which is the mean of those, then the worst
 * classes and the most frequent confusions, if there are errors; or the worst labels. `when`, such as
 * " in epoch 3", follows each. */
void results_add(const struct evaluation *evaluation, const struct data *data, const char *when,
                 struct progress_table *table);

/* Adds the results as members of a JSON object: balanced_accuracy, classes with the accuracy and images of
 * each, and the most frequent confusions, up to 100. */
void results_json(const struct evaluation *evaluation, const struct data *data, struct text *object);

/* Writes confusion.csv, of images or of pixels: a line for each true class, a column for each predicted one;
 * or the files of results_labels.h. */
enum status results_write_confusion(const struct evaluation *evaluation, const struct images *images,
                                    const struct data *data, const struct directory *folder);
