/* sampled_sizes.h: what the headers of some images say, evenly spaced, which are not decoded. */
#pragma once

#include "data/dataset/dataset.h"

#define SAMPLED_SIZES 25

struct sampled {
    struct image_facts facts[SAMPLED_SIZES];
    int count;                       /* of them, without those that could not be read */
};

/* Reads them, each once, of so many images: those of `subset`, or NULL: all. BAD_DATA if one does not come
 * within `timeout` (loader.timeout). */
enum status sampled_read(struct dataset *dataset, const int64_t *subset, int64_t count, double timeout,
                         struct sampled *sampled);

/* True if some have samples of more than 8 bits. */
bool sampled_deep(const struct sampled *sampled);
