/* image_png_plain.c: the PNG files that data sets are made of, faster than libpng has them: 8 bits, grey
 * or RGB with or without alpha, not interlaced. All of the data are inflated at once, which zlib does much
 * faster than row by row. What is not so plain, or not in order, is left to libpng.
 * W3C, Portable Network Graphics Specification (Third Edition), sections 5 and 9. */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/machine.h"
#include "data/image.h"

#define SIGNATURE_BYTES 8
#define HEADER_BYTES 13
/* Larger ones gain nothing. */
#define RAW_BYTES_MAX ((size_t)1 << 24)

/* A file under way. */
struct plain {
    const uint8_t *at;         /* of the next chunk */
    size_t left;
    int h, w, channels;        /* as stored */
    uint8_t *raw;              /* h rows: the filter's number, then the bytes */
    z_stream stream;
};

struct chunk {
    const uint8_t *data;
    uint32_t bytes;
    char type[4];
};

static uint32_t number_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* False too when its checksum is wrong. */
static bool next_chunk(struct plain *plain, struct chunk *chunk)
{
    if (plain->left < 12) return false;
    chunk->bytes = number_at(plain->at);
    if (chunk->bytes > plain->left - 12) return false;
    memcpy(chunk->type, plain->at + 4, 4);
    chunk->data = plain->at + 8;
    if (crc32(0, plain->at + 4, chunk->bytes + 4) != number_at(chunk->data + chunk->bytes)) return false;
    plain->at += chunk->bytes + 12;
    plain->left -= chunk->bytes + 12;
    return true;
}

static bool read_header(struct plain *plain)
{
    static const uint8_t channels[] = {[0] = 1, [2] = 3, [4] = 2, [6] = 4};
    struct chunk chunk;
    if (!next_chunk(plain, &chunk) || memcmp(chunk.type, "IHDR", 4) != 0 || chunk.bytes != HEADER_BYTES)
        return false;
    uint32_t w = number_at(chunk.data), h = number_at(chunk.data + 4);
    const uint8_t *kind = chunk.data + 8;      /* depth, colour, compression, filter, interlace */
    if (kind[0] != 8 || kind[1] >= sizeof channels || !channels[kind[1]] || kind[2] || kind[3] || kind[4])
        return false;
    plain->channels = channels[kind[1]];
    if (w == 0 || h == 0 || w > RAW_BYTES_MAX || h > RAW_BYTES_MAX / ((size_t)w * 4 + 1)) return false;
    plain->w = (int)w;
    plain->h = (int)h;
    return true;
}

/* Inflates the data chunks, which follow each other, into rows that they fill to the last byte. Of other
 * chunks only those may be there that change no pixel. */
static bool inflate_chunks(struct plain *plain)
{
    struct chunk chunk;
    int result = Z_OK;
    bool begun = false, ended = false;
    while (next_chunk(plain, &chunk)) {
        bool data = memcmp(chunk.type, "IDAT", 4) == 0;
        if (memcmp(chunk.type, "IEND", 4) == 0) return result == Z_STREAM_END && plain->stream.avail_out == 0;
        if (!data && !(chunk.type[0] & 0x20)) return false;         /* critical, PLTE for one */
        if (memcmp(chunk.type, "tRNS", 4) == 0) return false;
        ended |= begun && !data;
        if (!data) continue;
        if (ended || result != Z_OK) return false;
        begun = true;
        plain->stream.next_in = (Bytef *)chunk.data;
        plain->stream.avail_in = chunk.bytes;
        /* Told that this is all, zlib keeps no copy of the last 32 KiB. If it is not, it waits for more. */
        result = inflate(&plain->stream, Z_FINISH);
        if (result == Z_BUF_ERROR && plain->stream.avail_out > 0) result = Z_OK;
        if (plain->stream.avail_in > 0) return false;
    }
    return false;
}

/* A pixel's bytes, side by side; of three the fourth is the next pixel's, and not kept. */
#define LANES int __attribute__((vector_size(16)))
#define BYTES uint8_t __attribute__((vector_size(4)))

INLINE LANES lanes_at(const uint8_t *from)
{
    BYTES bytes;
    memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, LANES);
}

/* Modulo 256. What comes next waits for this, but not for its way into memory and back. */
INLINE LANES keep(LANES lanes, uint8_t *to, int c)
{
    BYTES bytes = __builtin_convertvector(lanes, BYTES);
    memcpy(to, &bytes, (size_t)c);
    return lanes & 255;
}

INLINE LANES absolute(LANES x)
{
    LANES sign = x >> 31;
    return (x ^ sign) - sign;
}

/* a where the mask is all ones, b where it is zero. */
INLINE LANES choose(LANES mask, LANES a, LANES b) { return (a & mask) | (b & ~mask); }

INLINE LANES paeth(LANES left, LANES above, LANES corner)
{
    LANES by_left = absolute(above - corner), by_above = absolute(left - corner);
    LANES by_corner = absolute(left + above - 2 * corner);
    LANES nearest = choose(by_above <= by_corner, above, corner);
    return choose((by_left <= by_above) & (by_left <= by_corner), left, nearest);
}

/* Undoes a row's filter in place; `c` bytes a pixel, 1 to 4. `above` is the row before, undone, or zeros.
 * Beyond either row there are readable bytes. */
INLINE bool unfilter(int filter, uint8_t *row, const uint8_t *above, int bytes, int c)
{
    LANES left = {0}, corner = {0};
    switch (filter) {
    case 0: return true;
    case 1:
        for (int i = 0; i < bytes; i += c) left = keep(lanes_at(row + i) + left, row + i, c);
        return true;
    case 2:
        for (int i = 0; i < bytes; i++) row[i] = (uint8_t)(row[i] + above[i]);
        return true;
    case 3:
        for (int i = 0; i < bytes; i += c)
            left = keep(lanes_at(row + i) + ((left + lanes_at(above + i)) >> 1), row + i, c);
        return true;
    case 4:
        for (int i = 0; i < bytes; i += c) {
            LANES up = lanes_at(above + i);
            left = keep(lanes_at(row + i) + paeth(left, up, corner), row + i, c);
            corner = up;
        }
        return true;
    default: return false;
    }
}

/* Knowing the bytes of a pixel, compilers make better loops. */
EVERY_MACHINE static bool unfilter_row(int filter, uint8_t *row, const uint8_t *above, int bytes, int c)
{
    if (c == 3) return unfilter(filter, row, above, bytes, 3);
    if (c == 4) return unfilter(filter, row, above, bytes, 4);
    return unfilter(filter, row, above, bytes, c);
}

/* Grey or RGB; what alpha there is, is left behind. */
static void take_row(const uint8_t *row, int stored, int w, int channels, uint8_t *to)
{
    if (stored == channels) {
        memcpy(to, row, (size_t)w * (size_t)channels);
        return;
    }
    for (int x = 0; x < w; x++, row += stored, to += channels)
        for (int k = 0; k < channels; k++) to[k] = row[stored < 3 ? 0 : k];
}

static bool take_rows(struct plain *plain, int channels, struct image *image)
{
    int bytes = plain->w * plain->channels;
    uint8_t *row = plain->raw + 1, *above = NULL;
    uint8_t *zeros = calloc((size_t)bytes + sizeof(BYTES), 1);
    bool good = zeros != NULL;
    for (int y = 0; y < plain->h && good; y++, above = row, row += bytes + 1) {
        good = unfilter_row(row[-1], row, above ? above : zeros, bytes, plain->channels);
        take_row(row, plain->channels, plain->w, channels,
                 image->pixels + (size_t)y * (size_t)plain->w * (size_t)channels);
    }
    free(zeros);
    return good;
}

static bool inflate_rows(struct plain *plain)
{
    size_t bytes = ((size_t)plain->w * (size_t)plain->channels + 1) * (size_t)plain->h;
    plain->raw = malloc(bytes + sizeof(BYTES));
    plain->stream.next_out = plain->raw;
    plain->stream.avail_out = (uInt)bytes;
    if (!plain->raw || inflateInit(&plain->stream) != Z_OK) return false;
    bool good = inflate_chunks(plain);
    inflateEnd(&plain->stream);
    return good;
}

bool image_decode_png_plain(const uint8_t *bytes, size_t count, int channels, struct image *image)
{
    struct plain plain = {.at = bytes + SIGNATURE_BYTES, .left = count - SIGNATURE_BYTES};
    struct reason unused;
    if (!read_header(&plain)) return false;
    int decoded = plain.channels < 3 && channels == 1 ? 1 : 3;
    bool good = image_resize_buffer(image, plain.h, plain.w, decoded, &unused) && inflate_rows(&plain) &&
                take_rows(&plain, decoded, image);
    free(plain.raw);
    return good;
}
