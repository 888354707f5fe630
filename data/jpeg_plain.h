/* jpeg_plain.h: decides which JPEG files a hardware decoder can decode. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jpeg_plain {
    int h, w, c;               /* as stored; c: 1 grey, 3 YCbCr */
    int orientation;           /* data/orientation.h: decoders on a device know nothing of it */
    size_t count;              /* bytes up to the end of the image; what follows is none of it */
};

/* Baseline, 8 bits, one scan without restarts, grey or YCbCr with chroma at full or half the resolution,
 * tables that are all there and make sense, and no marker in the scan but the one that ends it. Such an
 * engine tells nobody what it makes of anything else, or of less. False: image_decode will read it, or say
 * what is wrong. */
bool jpeg_plain(const uint8_t *bytes, size_t count, struct jpeg_plain *plain);
