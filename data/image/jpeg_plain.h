/* jpeg_plain.h: decides which JPEG files a hardware decoder can decode. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jpeg_plain {
    int h, w, c;               /* as stored; c: 1 grey, 3 YCbCr */
    int orientation;           /* see data/image/orientation.h: device decoders ignore it */
    size_t count;              /* bytes up to the end of the image; any that follow are ignored */
};

/* Baseline, 8 bits, one scan without restarts, grey or YCbCr with chroma at full or half the resolution,
 * complete and valid tables, and no marker in the scan but the one that ends it. Hardware decoders do not
 * report errors for anything else. False: image_decode reads it, or reports the error. */
bool jpeg_plain(const uint8_t *bytes, size_t count, struct jpeg_plain *plain);
