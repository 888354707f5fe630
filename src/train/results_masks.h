/* results_masks.h: the results of an evaluation by class, of pixels; results.h uses them. */
#pragma once

#include "evaluate/evaluation.h"
#include "train/progress.h"

/* Adds the classes of the least IoU, and those without a pixel. */
void results_masks_add(const struct evaluation *evaluation, const struct data *data, const char *when,
                       struct progress_table *table);

/* Adds members to a JSON object: pixels, and per_class, with the pixels, IoU and Dice of each, null for a
 * class that neither truth nor prediction has. */
void results_masks_json(const struct evaluation *evaluation, const struct data *data, struct text *object);

/* The IoU of each class, NAN for such a one: [classes], which the caller frees. */
double *results_masks_iou(const struct evaluation *evaluation, int classes);
