/* results_scores.h: shows the scores of an evaluation, of classes or labels; results.h uses them. */
#pragma once

#include "base/text.h"
#include "evaluate/scores.h"
#include "train/progress.h"

/* Adds their means, the calibration error, and the classes without one. */
void results_scores_add(const struct scores *scores, const struct data *data, const char *when,
                        struct progress_table *table);

/* Adds members to a JSON object: macro, weighted, calibration and thresholds. */
void results_scores_json(const struct scores *scores, const struct data *data, struct text *object);

/* Adds those of one class: precision, recall, f1, and roc_auc and average_precision if they are known. */
void results_scores_class(const struct scores *scores, int class, struct text *object);
