/* results_labels.h: the results of an evaluation by label, or of numbers; results.h uses them. */
#pragma once

#include "evaluate/scores.h"
#include "train/progress.h"

/* The average precision of each label, NAN for one without images: [classes], which the caller frees. */
double *results_per_label(const struct evaluation *evaluation);

/* Adds the labels of the least average precision. */
void results_labels_add(const struct scores *scores, const struct data *data, const char *when,
                        struct progress_table *table);

/* Adds members to a JSON object: labels, with the images, scores and threshold of each. */
void results_labels_json(const struct scores *scores, const struct data *data, struct text *object);

/* Writes labels.csv, some of them as lines; or, of numbers, values.csv: name, value and prediction of each of
 * the `images` that were evaluated, up to VALUES_MAX. */
#define VALUES_FILE "values.csv"
#define LABELS_FILE "labels.csv"
#define VALUES_MAX 20000
enum status results_labels_write(const struct evaluation *evaluation, const struct scores *scores,
                                 const struct images *images, const struct data *data,
                                 const struct directory *folder);
