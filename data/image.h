/* image.h: an image as bytes, and from files: PNG and JPEG known by their first bytes. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* h x w x c bytes, rows without gaps, c innermost: 1 grey, 3 RGB. The buffer is reused and grows. */
struct image {
    int h, w, c;
    uint8_t *pixels;
    size_t capacity;
};

/* Makes room for h x w x c; false (and a reason) when that is absurd (over 2^28 bytes) or there
 * is no memory. */
bool image_resize_buffer(struct image *image, int h, int w, int c, struct reason *reason);
void image_free(struct image *image);

enum image_kind { IMAGE_UNKNOWN, IMAGE_PNG, IMAGE_JPEG };
enum image_kind image_sniff(const uint8_t *bytes, size_t count);

/* Decodes a PNG or JPEG in memory to `channels` (1 or 3): grey is replicated, colour is weighted
 * to grey, palettes, 16 bits, alpha (dropped), CMYK and YCCK are converted. False and why when it
 * is corrupt, truncated or absurd; never crashes. */
bool image_decode(const uint8_t *bytes, size_t count, int channels, struct image *image,
                  struct reason *reason);

/* The same from a file. */
bool image_load(const char *path, int channels, struct image *image, struct reason *reason);

#endif
