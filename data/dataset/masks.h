/* masks.h: the masks of a data set (TARGET_MASK): their classes, reading one, and counting the pixels of
 * all. */
#pragma once

#include "base/text.h"
#include "data/dataset/dataset.h"
#include "data/image/mask.h"

/* Reads the mask of image `index`: h x w bytes of classes, or MASK_IGNORE. Thread-safe. False, with a reason
 * that names the file; with *wrong, it is an error of the data set, not of one file (mask_decode). */
bool masks_read(const struct dataset *dataset, int64_t index, struct image *mask, bool *wrong,
                struct reason *reason);

/* False, with a reason that names the image: the mask has another size. An image that cannot be read is not
 * looked at. */
bool masks_fit(const struct dataset *dataset, int64_t index, const struct image *mask, struct reason *reason);

/* Counts over all masks. */
struct mask_counts {
    int64_t masks, unreadable;
    int64_t pixels[256];           /* of each class, and of MASK_IGNORE */
    int64_t with[256];             /* masks that have it */
};

/* Counts by the classes of dataset->masks, of `count` images, those of the subset if there is one. BAD_DATA
 * with the first mask that is wrong, or has another size than its image, in their order, whatever the
 * threads, or if none can be read. */
enum status masks_count(const struct dataset *dataset, const int64_t *subset, int64_t count,
                        struct mask_counts *counts);

/* "road 61.20 %, lane 38.80 %, ignored 0.30 % of all": shares of pixels, those of classes of the pixels that
 * are not ignored. */
void masks_describe(const struct dataset *dataset, const struct mask_counts *counts, struct text *out);

/* "lane, sky": the classes without a pixel. Returns how many they are. */
int masks_missing(const struct dataset *dataset, const struct mask_counts *counts, struct text *out);
