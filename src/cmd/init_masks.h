/* init_masks.h: examines masks for `amptrain init`: where they are, and which classes they have. */
#pragma once

#include "data/dataset/detect.h"
#include "data/dataset/masks.h"

/* The facts known of masks. */
struct init_masks {
    const char *kind;                /* of their values, in words */
    bool two;                        /* they are 0 and 255 */
    char *palette;                   /* the text of a file that says what values mean; NULL: none is needed */
    struct mask_classes classes;
    struct mask_counts counts;       /* pixels */
};

/* Finds the splits of a folder of images and masks, by the layouts of mask_pairs.h. False: it is none. */
bool init_masks_find(const char *folder, struct detected_splits *splits);

/* Looks at the values of masks. BAD_DATA: they are no masks; init_masks_free is called in any case. */
enum status init_masks_look(const struct dataset *dataset, struct init_masks *masks);
void init_masks_free(struct init_masks *masks);        /* accepts a zeroed struct */
