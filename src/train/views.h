/* views.h: a batch that is evaluated in several views: an image's logits are a mean of theirs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct views {
    int classes;
    float *logits;             /* [images][classes] */
    float *losses;             /* [images], by the mean */
    int32_t *ranks;            /* [images], likewise */
};

struct views views_open(int images, int classes);
void views_close(struct views *views);        /* accepts a zeroed struct */

/* The logits of each view, by its weight; `first` forgets the batch before. */
void views_add(struct views *views, const float *logits, int images, float weight, bool first);

/* After the last one: losses and ranks. */
void views_end(struct views *views, const int32_t *labels, int images);
