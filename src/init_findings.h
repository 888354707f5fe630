/* init_findings.h: examines images for `amptrain init`. */
#pragma once

#include "base/status.h"
#include "data/dataset.h"

#define INIT_CHANNELS 3
#define INIT_SMALL_SIDE 48       /* smaller images are shifted, not cropped at random */

/* The facts known of a data set. */
struct init_findings {
    const struct format *format;
    char *train, *val;               /* paths; NULL: the format's own place; a share of the training images */
    int64_t images;
    enum target_kind target;         /* TARGET_ANY: classes */
    bool grouped;                    /* images are in groups */
    double least, largest;           /* of numbers */
    int classes, channels;
    int64_t fewest, most;            /* images in a class, or with a label */
    int side;                        /* median of the images' short sides */
    bool one_size;
    double mean[INIT_CHANNELS], std[INIT_CHANNELS];
};

/* Examines a folder, a packed file, or a data set by its name; init_findings_free is called in any
 * case. */
enum status init_findings_make(const char *path, struct init_findings *found);
void init_findings_free(struct init_findings *found);
