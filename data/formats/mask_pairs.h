/* mask_pairs.h: images in one folder and their masks in another beside it, paired by name. */
#pragma once

#include "base/status.h"
#include "data/formats/listing.h"

struct mask_pairs {
    char *images, *masks;      /* the folders */
    struct listing listed;     /* of the images; names begin with "./" */
    char **names;              /* [listed.count] of their masks, below `masks` */
};

/* Pairs ROOT/images with ROOT/masks (labels, annotations, annot): names are the same but for the extension,
 * and that a mask's may end in _mask, _label, _gt or _L. Masks without an image are left out, with a warning;
 * BAD_DATA: an image without a mask, two masks for an image, or two images for a mask. */
enum status mask_pairs_find(const char *root, struct mask_pairs *pairs);
void mask_pairs_free(struct mask_pairs *pairs);        /* accepts a zeroed struct */
