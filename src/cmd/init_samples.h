/* init_samples.h: for `amptrain init`: how many channels image files have, and the range of their samples
 * where these have more than 8 bits. */
#pragma once

#include "data/dataset/dataset.h"

struct init_samples {
    bool own_channels;         /* neither 1 nor 3, which data.channels is to say */
    bool deep;                 /* samples have more than 8 bits, nearly all of them in this range */
    struct image_range range;
};

/* Looks at some files, with all channels that they have. If all have the same number, and that is neither
 * grey nor colours, the data set is changed to have it. */
void init_samples_look(struct dataset *dataset, struct init_samples *found);
