/* image_extent.c: where an image file ends, by its structure alone. */
#include <string.h>

#include "data/image/image.h"

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint32_t little_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[3] << 24 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[1] << 8 | bytes[0];
}

/* Chunks of length, name, data and CRC; the last one is IEND. */
static size_t extent_png(const uint8_t *bytes, size_t count)
{
    size_t at = 8;
    while (count - at >= 12) {
        size_t chunk = (size_t)big_endian(bytes + at) + 12;
        if (chunk > count - at) break;
        bool last = memcmp(bytes + at + 4, "IEND", 4) == 0;
        at += chunk;
        if (last) return at;
    }
    return count;
}

/* Segments of a marker and a length, and entropy-coded data behind SOS, in which FF is followed by 00, by a
 * restart marker, or by another FF (ITU-T T.81, B.1.1). */
static size_t extent_jpeg(const uint8_t *bytes, size_t count)
{
    enum { SOI = 0xd8, EOI = 0xd9, TEM = 0x01, RST0 = 0xd0 };
    size_t at = 0;
    while (count - at >= 2) {
        uint8_t marker = bytes[at + 1];
        bool bare = marker == SOI || marker == TEM || marker == 0 || (marker >= RST0 && marker < SOI);
        if (bytes[at] != 0xff || marker == 0xff) {
            at++;
        } else if (marker == EOI) {
            return at + 2;
        } else if (bare) {
            at += 2;
        } else {
            size_t segment = count - at >= 4 ? 2 + ((size_t)bytes[at + 2] << 8 | bytes[at + 3]) : count;
            if (segment > count - at) break;
            at += segment;
        }
    }
    return count;
}

/* RIFF's size counts from behind itself, and chunks are padded to even sizes. */
static size_t extent_webp(const uint8_t *bytes, size_t count)
{
    size_t size = (size_t)little_endian(bytes + 4) + 8;
    size += size % 2;
    return size < count ? size : count;
}

size_t image_extent(const uint8_t *bytes, size_t count)
{
    switch (image_sniff(bytes, count)) {
    case IMAGE_PNG: return extent_png(bytes, count);
    case IMAGE_JPEG: return extent_jpeg(bytes, count);
    case IMAGE_WEBP: return extent_webp(bytes, count);
    case IMAGE_TIFF:
    case IMAGE_UNKNOWN: break;
    }
    return count;
}
