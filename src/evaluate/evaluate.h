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

/* The probability of this class, which is the largest. */
double evaluate_confidence(const float *logits, int classes, int best);
