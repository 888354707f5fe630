/* evaluate.h: evaluates a network on every image exactly once, whatever the batch size. */
#pragma once

#include "evaluate/evaluation.h"

/* `step` is an evaluation's, `images` what it is run on. A request to stop (ranks_stop) ends it
 * with STOPPED. */
enum status evaluate(const struct session *session, const struct images *images, const struct step *step,
                     const struct evaluate_options *options, struct evaluation *evaluation);

/* The index of the largest value that is not NaN, the first of equal ones: the class whose rank is 0
 * (kernels/loss/topk.c). */
int evaluate_best(const float *logits, int classes);

/* The probability of this class, which is the largest; and in `scores`, if that is not NULL, for each class
 * what grows with its probability p, but keeps apart those next to 1: ln p up to a half, from there on
 * -2 ln 2 - ln(1 - p). */
double evaluate_confidence(const float *logits, int classes, int best, float *scores);
