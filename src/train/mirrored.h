/* mirrored.h: a batch that is evaluated as it is and mirrored: an image's logits are the mean of both. */
#pragma once

#include <stdint.h>

struct mirrored {
    int classes;
    float *logits;             /* [images][classes] */
    float *losses;             /* [images], by the mean */
    int32_t *ranks;            /* [images], likewise */
};

struct mirrored mirrored_open(int images, int classes);
void mirrored_close(struct mirrored *mirrored);        /* accepts a zeroed struct */

/* First the logits of the images as they are, then those of their mirror images, with which all is known. */
void mirrored_begin(struct mirrored *mirrored, const float *logits, int images);
void mirrored_end(struct mirrored *mirrored, const float *logits, const int32_t *labels, int images);
