/* results.h: the results of an evaluation by class: accuracies, the worst classes, the most frequent
 * confusions. */
#pragma once

#include "evaluate/evaluate.h"
#include "train/progress.h"

/* The accuracy in each class, NAN for a class without images: [classes], which the caller frees. */
double *results_per_class(const struct evaluation *evaluation, int classes);

/* Adds how many images are lost, if any; balanced accuracy, which is the mean of those, then the worst
 * classes and the most frequent confusions, if there are errors; or the worst labels; and the scores. `when`,
 * such as " in epoch 3", follows each. */
void results_add(const struct evaluation *evaluation, const struct data *data, const char *when,
                 struct progress_table *table);

/* Adds the results as members of a JSON object: balanced_accuracy, classes with the accuracy, images and
 * scores of each, and the most frequent confusions, up to 100; or labels; and those of results_scores.h. */
void results_json(const struct evaluation *evaluation, const struct data *data, struct text *object);

/* Writes confusion.csv, of images or of pixels: a line for each true class, a column for each predicted one;
 * or the files of results_labels.h; and, of classes and labels, scores.json: all that results_json adds. */
#define SCORES_FILE "scores.json"
enum status results_write(const struct evaluation *evaluation, const struct images *images,
                          const struct data *data, const struct directory *folder);
