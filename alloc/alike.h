/* alike.h: places blocks after the model of others, much like them, whose places are known. */
#ifndef ALLOC_ALIKE_H
#define ALLOC_ALIKE_H

#include "alloc/part.h"

/* Each block goes where the one most like it is in the model, as low as it can in that order. If all are
 * smaller and live shorter than their own models, none ends up higher. Returns the peak; adds to *visits. */
struct alike_model {
    const struct part_item *items;
    const int64_t *offsets;
    int count;
    bool backwards;            /* in time */
};
int64_t alike_place(const struct alike_model *model, const struct part_item *items, int count,
                    int64_t *offsets, int64_t *visits);

#endif
