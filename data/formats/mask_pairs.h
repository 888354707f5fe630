/* mask_pairs.h: images in one folder and their masks in another beside it, paired by name. */
#pragma once

#include <stdbool.h>

#include "base/status.h"
#include "data/formats/listing.h"

struct mask_pairs {
    char *images, *masks;      /* the folders */
    struct listing listed;     /* of the images; names begin with "./" */
    char **names;              /* [listed.count] of their masks, below `masks` */
    const char *list;          /* the path, if it is that of a list of images; otherwise NULL */
};

/* Pairs ROOT/images with ROOT/masks (labels, annotations, annot); if there is no such folder, ROOT itself
 * with ROOTannot, or with the folder of masks that has its path but for a name: images/train and masks/train,
 * img_dir and ann_dir, leftImg8bit and gtFine (labelIds), JPEGImages and SegmentationClass; or the images
 * that are listed in the file ROOT, VOC's ImageSets/Segmentation/NAME.txt. Names are the same but for the
 * extension, and that a mask's may end in _mask, _label, _gt or _L. Masks without an image are left out, with
 * a warning; BAD_DATA: an image without a mask, two masks for an image, or two images for a mask. */
enum status mask_pairs_find(const char *root, struct mask_pairs *pairs);
/* True if there are both folders, that of masks with a PNG file: boxes lie in labels, too, as text. */
bool mask_pairs_has(const char *root);
void mask_pairs_free(struct mask_pairs *pairs);        /* accepts a zeroed struct */
