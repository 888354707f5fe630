/* TIFF in a build without libtiff. */
#include "data/image/image.h"

bool image_decode_tiff(const uint8_t *bytes, size_t count, struct image_options options,
                       const struct image_choice *choice, struct image *image, struct reason *reason)
{
    (void)bytes, (void)count, (void)options, (void)choice, (void)image;
    return because(reason, "TIFF: this build is without libtiff 4.5 or later");
}
