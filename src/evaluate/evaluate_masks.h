/* evaluate_masks.h: evaluates a network for data.task=segment: whole images, in tiles. */
#pragma once

#include "evaluate/evaluation.h"

/* Does what evaluate does. The loss is the mean of -log of the blended probability of a pixel's class, over
 * all pixels that are not ignored. Ranks take turns at images; results do not depend on how many they are. */
enum status evaluate_masks(const struct session *session, const struct images *images,
                           const struct step *step, const struct evaluate_options *options,
                           struct evaluation *evaluation);

/* The shares that a confusion matrix of pixels gives a class. */
struct pixel_scores {
    int64_t pixels;              /* of this true class */
    double iou, dice;            /* NAN: neither truth nor prediction has it */
};
struct pixel_scores pixel_scores_of(const int64_t *pixels, int classes, int class);

/* Pixels that were counted. */
int64_t pixel_scores_count(const int64_t *pixels, int classes);
