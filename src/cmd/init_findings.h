/* init_findings.h: examines images for `amptrain init`. */
#pragma once

#include "base/shape.h"
#include "base/status.h"
#include "cmd/init_masks.h"
#include "cmd/init_samples.h"
#include "cmd/init_table.h"
#include "data/dataset/dataset.h"

#define INIT_CHANNELS 3          /* of colours */
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
    double elongation;               /* median of their widths divided by their heights; 0: unknown */
    bool one_size;
    struct init_samples samples;
    double mean[IMAGE_BANDS_MAX], std[IMAGE_BANDS_MAX];
    struct init_masks masks;         /* with TARGET_MASK */
    struct init_table table;         /* with the format csv */
};

/* Examines a folder, a table, a packed file, or a data set by its name. `columns`: data.columns of a table,
 * or NULL. init_findings_free is called in any case. */
enum status init_findings_make(const char *path, const char *columns, struct init_findings *found);

/* The size of a network's input that has about as many pixels as a square of this side: that square; but of
 * images of which most are at least twice as long as they are high, or the reverse, one of about their shape,
 * in multiples of `multiple`. */
struct image_size init_findings_crop(const struct init_findings *found, int side, int multiple);

void init_findings_free(struct init_findings *found);
