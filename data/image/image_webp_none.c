/* WebP in a build without libwebp. */
#include "data/image/image.h"

bool image_decode_webp(const uint8_t *bytes, size_t count, int channels, const struct image_choice *choice,
                       struct image *image, struct reason *reason)
{
    (void)bytes, (void)count, (void)channels, (void)choice, (void)image;
    return because(reason, "WebP: this build is without libwebp");
}
