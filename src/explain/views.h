/* views.h: evaluates a batch in several views, such as mirror images, and averages the logits of each
 * image. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/loss/losses.h"

struct views {
    int classes;
    float *logits;             /* [images][classes] */
    float *losses;             /* [images], from the mean */
    int32_t *ranks;            /* [images], from the mean, too */
};

/* For batches of up to `images`. */
struct views views_open(int images, int classes);
void views_close(struct views *views);        /* accepts a zeroed struct */

/* Adds the logits of a view, with its weight; `first` starts a new batch. */
void views_add(struct views *views, const float *logits, int images, float weight, bool first);

/* Computes losses and ranks, after the last view, by labels, or targets if these are given. */
void views_end(struct views *views, enum loss loss, const int32_t *labels, const float *targets,
               int images);
