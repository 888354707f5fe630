#include "data/image/orientation.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define UPRIGHT 1
#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define ENTRY_BYTES 12

enum {
    MARKER_TEMPORARY = 0x01, MARKER_RESTART_0 = 0xd0, MARKER_START = 0xd8, MARKER_END = 0xd9,
    MARKER_SCAN = 0xda, MARKER_EXIF = 0xe1,
};

/* A TIFF structure, in which offsets count from its beginning. */
struct tiff {
    const uint8_t *bytes;
    size_t count;
    bool big_endian;
};

/* An unsigned number of 2 or 4 bytes; false if it is truncated. */
static bool read_number(const struct tiff *tiff, size_t at, size_t bytes, uint32_t *number)
{
    if (at > tiff->count || bytes > tiff->count - at) return false;
    *number = 0;
    for (size_t i = 0; i < bytes; i++)
        *number = *number << 8 | tiff->bytes[at + (tiff->big_endian ? i : bytes - 1 - i)];
    return true;
}

/* The orientation in a directory entry: 0 if it is another entry, or invalid. */
static int read_entry(const struct tiff *tiff, size_t at)
{
    uint32_t tag, type, count, value;
    if (!read_number(tiff, at, 2, &tag) || !read_number(tiff, at + 2, 2, &type) ||
        !read_number(tiff, at + 4, 4, &count) || !read_number(tiff, at + 8, 2, &value))
        return 0;
    bool good = tag == TAG_ORIENTATION && type == TYPE_SHORT && count == 1 && value >= 1 && value <= 8;
    return good ? (int)value : 0;
}

/* The first directory describes the image itself, later ones its thumbnail. */
static int orientation_of_tiff(const uint8_t *bytes, size_t count)
{
    struct tiff tiff = {bytes, count, count > 0 && bytes[0] == 'M'};
    uint32_t magic, directory, entries;
    if (count < 8 || memcmp(bytes, tiff.big_endian ? "MM" : "II", 2) != 0) return UPRIGHT;
    if (!read_number(&tiff, 2, 2, &magic) || magic != 42 || !read_number(&tiff, 4, 4, &directory) ||
        !read_number(&tiff, directory, 2, &entries))
        return UPRIGHT;
    size_t at = (size_t)directory + 2;
    for (uint32_t i = 0; i < entries && at < count; i++, at += ENTRY_BYTES) {
        int orientation = read_entry(&tiff, at);
        if (orientation) return orientation;
    }
    return UPRIGHT;
}

static bool marker_is_alone(int marker)
{
    bool restart_or_start = marker >= MARKER_RESTART_0 && marker <= MARKER_START;
    return marker == 0 || marker == MARKER_TEMPORARY || restart_or_start;
}

int orientation_of_jpeg(const uint8_t *bytes, size_t count)
{
    static const char exif[6] = "Exif\0";
    const uint8_t *at = bytes, *end = bytes + count;
    for (;;) {
        while (at < end && *at != 0xff) at++;              /* libjpeg, too, leaves out what is no marker */
        while (at < end && *at == 0xff) at++;
        if (at == end) return UPRIGHT;
        int marker = *at++;
        if (marker_is_alone(marker)) continue;
        if (marker == MARKER_SCAN || marker == MARKER_END || end - at < 2) return UPRIGHT;
        size_t length = (size_t)at[0] << 8 | at[1];
        if (length < 2 || length > (size_t)(end - at)) return UPRIGHT;
        if (marker == MARKER_EXIF && length >= 2 + sizeof exif && memcmp(at + 2, exif, sizeof exif) == 0)
            return orientation_of_tiff(at + 2 + sizeof exif, length - 2 - sizeof exif);
        at += length;
    }
}

#define PNG_HEAD 8             /* of the file; and of a chunk: the length of its data, and its type */
#define PNG_TYPE 4
#define PNG_CRC 4

static bool is_whole(const struct tiff *png, size_t at, uint32_t length)
{
    uint32_t crc;
    if (!read_number(png, at + PNG_HEAD + length, PNG_CRC, &crc)) return false;
    return crc == crc32(0, png->bytes + at + PNG_TYPE, (uInt)(PNG_TYPE + length));
}

int orientation_of_png(const uint8_t *bytes, size_t count)
{
    const struct tiff png = {bytes, count, true};
    uint32_t length;
    for (size_t at = PNG_HEAD; read_number(&png, at, 4, &length) && count - at >= PNG_HEAD;
         at += PNG_HEAD + (size_t)length + PNG_CRC)
        if (memcmp(bytes + at + PNG_TYPE, "eXIf", PNG_TYPE) == 0)
            return is_whole(&png, at, length) ? orientation_of_tiff(bytes + at + PNG_HEAD, length) : UPRIGHT;
    return UPRIGHT;
}

#define WEBP_HEAD 12           /* of the file */
#define CHUNK_HEAD 8           /* type, and the length of the data, which are padded to an even number */

int orientation_of_webp(const uint8_t *bytes, size_t count)
{
    const struct tiff webp = {bytes, count, false};
    uint32_t length;
    for (size_t at = WEBP_HEAD; read_number(&webp, at + 4, 4, &length) && length <= count - at - CHUNK_HEAD;
         at += CHUNK_HEAD + (size_t)length + length % 2) {
        const uint8_t *data = bytes + at + CHUNK_HEAD;
        if (memcmp(bytes + at, "EXIF", 4) != 0) continue;
        /* Some writers put JPEG's marker before it. */
        size_t marker = length >= 6 && memcmp(data, "Exif\0", 6) == 0 ? 6 : 0;
        return orientation_of_tiff(data + marker, length - marker);
    }
    return UPRIGHT;
}

/* An orientation is up to three steps: rows in reverse, columns in reverse, then both swapped. */

static bool reverses_rows(int orientation)
{
    return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}

static bool reverses_columns(int orientation)
{
    return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

static bool swaps(int orientation)
{
    return orientation >= 5;
}

static struct box reversed(int orientation, struct box part, int h, int w)
{
    if (reverses_rows(orientation)) part.y = h - part.y - part.h;
    if (reverses_columns(orientation)) part.x = w - part.x - part.w;
    return part;
}

static struct box swapped(int orientation, struct box part)
{
    if (!swaps(orientation)) return part;
    return (struct box){.y = part.x, .x = part.y, .h = part.w, .w = part.h};
}

struct box orientation_upright(int orientation, struct box stored, int h, int w)
{
    return swapped(orientation, reversed(orientation, stored, h, w));
}

struct box orientation_stored(int orientation, struct box upright, int h, int w)
{
    return reversed(orientation, swapped(orientation, upright), h, w);
}

struct strides orientation_strides(int orientation, int h, int w, int c)
{
    struct strides strides = {.row = (ptrdiff_t)w * c, .pixel = c};
    if (swaps(orientation)) strides = (struct strides){.row = c, .pixel = (ptrdiff_t)h * c};
    if (reverses_rows(orientation)) {
        strides.first += (h - 1) * strides.row;
        strides.row = -strides.row;
    }
    if (reverses_columns(orientation)) {
        strides.first += (w - 1) * strides.pixel;
        strides.pixel = -strides.pixel;
    }
    return strides;
}

bool orientation_turn(struct image *image, int orientation, struct reason *reason)
{
    int h = image->h, w = image->w;
    size_t c = image_pixel_bytes(image);
    if (orientation == UPRIGHT) return true;
    struct box all = orientation_upright(orientation, (struct box){.h = h, .w = w}, h, w);
    struct strides to = orientation_strides(orientation, h, w, (int)c);
    struct image turned = {.alpha = image->alpha, .pages = image->pages};
    bool room = image->deep ? image_resize_deep(&turned, all.h, all.w, image->c, image->low, image->high,
                                                reason)
                            : image_resize_buffer(&turned, all.h, all.w, image->c, reason);
    if (!room) return false;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            memcpy(turned.pixels + to.first + y * to.row + x * to.pixel,
                   image->pixels + ((size_t)y * (size_t)w + (size_t)x) * c, c);
    image_free(image);
    *image = turned;
    return true;
}
