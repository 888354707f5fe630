/* image_png_plain.c: a faster path than libpng for the usual PNG files of data sets: 8 bits, grey or RGB with
 * or without alpha, not interlaced. The whole stream is decompressed at once, which is much faster than row
 * by row. Other or invalid files are left to libpng. W3C, Portable Network Graphics Specification (Third
 * Edition), sections 5 and 9. */
#include <stdlib.h>
#include <string.h>

#include "base/deflated.h"
#include "base/machine.h"
#include "data/image/image.h"

#define SIGNATURE_BYTES 8
#define HEADER_BYTES 13
/* Larger images do not benefit. */
#define RAW_BYTES_MAX ((size_t)1 << 24)

/* A file being decoded. */
struct plain {
    const uint8_t *at;         /* of the next chunk */
    size_t left;
    int h, w, channels;        /* as stored */
    const uint8_t *data;       /* compressed, `count` bytes: the file's own, or joined */
    size_t count;
    uint8_t *joined;
    uint8_t *raw;              /* h rows: the filter's number, then the bytes */
};

struct png_chunk {
    const uint8_t *data;
    uint32_t bytes;
    char type[4];
};

static uint32_t number_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Also false if its checksum is wrong. */
static bool next_chunk(struct plain *plain, struct png_chunk *chunk)
{
    if (plain->left < 12) return false;
    chunk->bytes = number_at(plain->at);
    if (chunk->bytes > plain->left - 12) return false;
    memcpy(chunk->type, plain->at + 4, 4);
    chunk->data = plain->at + 8;
    uint32_t checksum = deflated_crc(0, plain->at + 4, (size_t)chunk->bytes + 4);
    if (checksum != number_at(chunk->data + chunk->bytes)) return false;
    plain->at += chunk->bytes + 12;
    plain->left -= chunk->bytes + 12;
    return true;
}

static bool read_header(struct plain *plain)
{
    static const uint8_t channels[] = {[0] = 1, [2] = 3, [4] = 2, [6] = 4};
    struct png_chunk chunk;
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

/* The first chunk's data stay where they are; with the next they are joined, in memory for the whole file. */
static bool add_data(struct plain *plain, const struct png_chunk *chunk)
{
    if (!plain->data) {
        plain->data = chunk->data;
        plain->count = chunk->bytes;
        return true;
    }
    if (!plain->joined) {
        plain->joined = malloc(plain->count + chunk->bytes + plain->left);
        if (!plain->joined) return false;
        memcpy(plain->joined, plain->data, plain->count);
        plain->data = plain->joined;
    }
    memcpy(plain->joined + plain->count, chunk->data, chunk->bytes);
    plain->count += chunk->bytes;
    return true;
}

/* Finds the data chunks, which follow each other. Of other chunks only those may be there that change no
 * pixel. */
static bool find_data(struct plain *plain)
{
    struct png_chunk chunk;
    bool ended = false;
    while (next_chunk(plain, &chunk)) {
        bool data = memcmp(chunk.type, "IDAT", 4) == 0;
        if (memcmp(chunk.type, "IEND", 4) == 0) return plain->data != NULL;
        if (!data && !(chunk.type[0] & 0x20)) return false;         /* critical, PLTE for one */
        if (memcmp(chunk.type, "tRNS", 4) == 0) return false;
        ended |= plain->data && !data;
        if (!data) continue;
        if (ended || !add_data(plain, &chunk)) return false;
    }
    return false;
}

/* A pixel's bytes, side by side in numbers of 16 bits, of which four are used; of three bytes the fourth is
 * the next pixel's, and not kept. */
#define LANES int16_t __attribute__((vector_size(16)))
#define LANE_BYTES uint8_t __attribute__((vector_size(16)))
#define BYTES uint8_t __attribute__((vector_size(8)))

INLINE LANES lanes_at(const uint8_t *from)
{
    BYTES bytes = {0};
    memcpy(&bytes, from, 4);
    return __builtin_convertvector(bytes, LANES);
}

/* The sum modulo 256: bytes are added, and every second one is zero. What comes next waits for this, but not
 * for its way into memory and back. */
INLINE LANES keep_sum(LANES a, LANES b, uint8_t *to, int c)
{
    LANES sum = (LANES)((LANE_BYTES)a + (LANE_BYTES)b);
    BYTES bytes = __builtin_convertvector(sum, BYTES);
    memcpy(to, &bytes, (size_t)c);
    return sum;
}

/* a where the mask is all ones, b where it is zero. */
INLINE LANES png_choose(LANES mask, LANES a, LANES b) { return (a & mask) | (b & ~mask); }

/* The nearest of the three to left + above - corner, in the form that F. Giesen gave it for stb_image: few
 * steps from `left`, which the pixel before has just made, to the end. */
INLINE LANES paeth(LANES left, LANES above, LANES corner)
{
    LANES limit = 3 * corner - above - left;
    LANES low = png_choose(left < above, left, above), high = png_choose(left > above, left, above);
    return png_choose(limit <= low, high, png_choose(high <= limit, low, corner));
}

/* Undoes a row's filter in place; `c` bytes a pixel, 1 to 4. `above` is the row before, undone, or zeros.
 * Beyond either row there are readable bytes. */
INLINE bool unfilter(int filter, uint8_t *row, const uint8_t *above, int bytes, int c)
{
    LANES left = {0}, corner = {0};
    switch (filter) {
    case 0: return true;
    case 1:
        for (int i = 0; i < bytes; i += c) left = keep_sum(lanes_at(row + i), left, row + i, c);
        return true;
    case 2:
        for (int i = 0; i < bytes; i++) row[i] = (uint8_t)(row[i] + above[i]);
        return true;
    case 3:
        for (int i = 0; i < bytes; i += c)
            left = keep_sum(lanes_at(row + i), (left + lanes_at(above + i)) >> 1, row + i, c);
        return true;
    case 4:
        for (int i = 0; i < bytes; i += c) {
            LANES up = lanes_at(above + i);
            left = keep_sum(lanes_at(row + i), paeth(left, up, corner), row + i, c);
            corner = up;
        }
        return true;
    default: return false;
    }
}

/* Knowing the bytes of a pixel, compilers make better loops. */
static EVERY_MACHINE(bool, unfilter_row, (int filter, uint8_t *row, const uint8_t *above, int bytes, int c),
                     (filter, row, above, bytes, c))
{
    if (c == 1) return unfilter(filter, row, above, bytes, 1);
    if (c == 2) return unfilter(filter, row, above, bytes, 2);
    if (c == 3) return unfilter(filter, row, above, bytes, 3);
    return unfilter(filter, row, above, bytes, 4);
}

/* Grey or RGB, over white if there is alpha; grey may become RGB. */
static void take_row(const uint8_t *row, int stored, int w, int channels, uint8_t *to)
{
    int colours = stored % 2 ? stored : stored - 1;
    if (colours < stored) image_over_white(to, row, (size_t)w, colours);
    else memcpy(to, row, (size_t)w * (size_t)colours);
    for (int x = w - 1; colours < channels && x >= 0; x--) memset(to + 3 * x, to[x], 3);
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

/* The data must fill the rows exactly. */
static bool inflate_rows(struct plain *plain)
{
    size_t bytes = ((size_t)plain->w * (size_t)plain->channels + 1) * (size_t)plain->h;
    plain->raw = malloc(bytes + sizeof(BYTES));
    return plain->raw && deflated_read(plain->data, plain->count, plain->raw, bytes);
}

bool image_decode_png_plain(const uint8_t *bytes, size_t count, int channels, struct image *image)
{
    struct plain plain = {.at = bytes + SIGNATURE_BYTES, .left = count - SIGNATURE_BYTES};
    struct reason unused;
    if (!read_header(&plain)) return false;
    int decoded = plain.channels < 3 && channels == 1 ? 1 : 3;
    bool good = find_data(&plain) && image_resize_buffer(image, plain.h, plain.w, decoded, &unused) &&
                inflate_rows(&plain) && take_rows(&plain, decoded, image);
    free(plain.joined);
    free(plain.raw);
    return good;
}
