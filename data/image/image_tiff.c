/* TIFF by libtiff: the first page, in the samples that it has: bytes, or floats for 16 bits and more.
 * Adobe, TIFF Revision 6.0; BigTIFF likewise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

#include "data/image/orientation.h"

/* A larger strip or tile is treated as an attack: libtiff allocates what a file says. */
#define BLOCK_BYTES_MAX ((tmsize_t)1 << 28)
/* Directories that are counted. */
#define PAGES_MAX 1000

struct reader {
    TIFF *tiff;
    const uint8_t *bytes;
    uint64_t count, at;
    char why[160];             /* libtiff's first message */
    struct reason *reason;
    struct image *image;
    int w, h, c;
    uint16_t bits, format, photometric;
    bool planar, tiled;
    uint8_t *block;            /* a strip or tile */
};

/* ---- The file, and messages ---- */

static tmsize_t tiff_read(thandle_t handle, void *to, tmsize_t count)
{
    struct reader *reader = handle;
    uint64_t left = reader->at < reader->count ? reader->count - reader->at : 0;
    if (count < 0) return -1;
    if ((uint64_t)count > left) count = (tmsize_t)left;
    memcpy(to, reader->bytes + (left ? reader->at : 0), (size_t)count);
    reader->at += (uint64_t)count;
    return count;
}

static tmsize_t tiff_write(thandle_t handle, void *from, tmsize_t count)
{
    return (void)handle, (void)from, (void)count, -1;
}

static toff_t tiff_seek(thandle_t handle, toff_t offset, int whence)
{
    struct reader *reader = handle;
    uint64_t from = whence == SEEK_CUR ? reader->at : whence == SEEK_END ? reader->count : 0;
    return reader->at = from + offset;
}

static int tiff_close(thandle_t handle) { return (void)handle, 0; }

static toff_t tiff_size(thandle_t handle) { return ((struct reader *)handle)->count; }

/* Not 0: the message is taken, and goes to no handler of the process. */
static int on_error(TIFF *tiff, void *context, const char *module, const char *format, va_list arguments)
{
    struct reader *reader = context;
    (void)tiff, (void)module;
    if (!reader->why[0]) vsnprintf(reader->why, sizeof reader->why, format, arguments);
    return 1;
}

static int on_warning(TIFF *tiff, void *context, const char *module, const char *format, va_list arguments)
{
    return (void)tiff, (void)context, (void)module, (void)format, (void)arguments, 1;
}

static bool refuse(const struct reader *reader, const char *otherwise)
{
    return because(reader->reason, "TIFF: %s", reader->why[0] ? reader->why : otherwise);
}

static TIFF *open_bytes(struct reader *reader)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options) return NULL;
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, 2 * BLOCK_BYTES_MAX);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, reader);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, reader);
    TIFF *tiff = TIFFClientOpenExt("TIFF", "rm", reader, tiff_read, tiff_write, tiff_seek, tiff_close,
                                   tiff_size, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return tiff;
}

/* ---- The header ---- */

static bool is_type(const struct reader *reader, int bits, int format)
{
    return reader->bits == bits && reader->format == format;
}

static bool check_samples(struct reader *reader)
{
    static const char *const names[] = {[SAMPLEFORMAT_UINT] = "unsigned", [SAMPLEFORMAT_INT] = "signed",
                                        [SAMPLEFORMAT_IEEEFP] = "floating point"};
    if (reader->c < 1 || reader->c > IMAGE_BANDS_MAX)
        return because(reader->reason, "TIFF: %d channels; 1 to %d are read", reader->c, IMAGE_BANDS_MAX);
    if (is_type(reader, 8, SAMPLEFORMAT_UINT) || is_type(reader, 16, SAMPLEFORMAT_UINT) ||
        is_type(reader, 16, SAMPLEFORMAT_INT) || is_type(reader, 32, SAMPLEFORMAT_IEEEFP))
        return true;
    bool named = reader->format < sizeof names / sizeof *names && names[reader->format];
    return because(reader->reason, "TIFF: %d bits a sample, %s; 8 and 16 bits and floats of 32 are read",
                   reader->bits, named ? names[reader->format] : "complex or unknown");
}

/* libtiff converts what is compressed as JPEG from YCbCr. */
static bool check_colours(struct reader *reader, uint16_t compression)
{
    bool converted = compression == COMPRESSION_JPEG && !reader->planar;
    switch (reader->photometric) {
    case PHOTOMETRIC_YCBCR:
        if (!converted) return because(reader->reason, "TIFF: YCbCr is read where it is compressed as JPEG");
        return TIFFSetField(reader->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB) ||
               refuse(reader, "YCbCr that libtiff does not convert");
    case PHOTOMETRIC_CIELAB: case PHOTOMETRIC_ICCLAB: case PHOTOMETRIC_ITULAB:
    case PHOTOMETRIC_LOGL: case PHOTOMETRIC_LOGLUV:
        return because(reader->reason, "TIFF: the colour space L*a*b or LogLuv is not read");
    case PHOTOMETRIC_PALETTE:
        return (reader->c == 1 && reader->bits == 8) ||
               because(reader->reason, "TIFF: a palette of %d bits is not read", reader->bits);
    default: return true;
    }
}

static bool read_header(struct reader *reader)
{
    TIFF *tiff = reader->tiff;
    uint32_t w = 0, h = 0;
    uint16_t c = 1, planar = PLANARCONFIG_CONTIG, compression = COMPRESSION_NONE;
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &w);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &h);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &reader->bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &c);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &reader->format);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &planar);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
    reader->photometric = PHOTOMETRIC_MINISBLACK;
    TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &reader->photometric);
    if (reader->format == SAMPLEFORMAT_VOID) reader->format = SAMPLEFORMAT_UINT;
    reader->planar = planar == PLANARCONFIG_SEPARATE && c > 1;
    reader->tiled = TIFFIsTiled(tiff);
    reader->c = c;
    if (w < 1 || h < 1 || w > INT32_MAX || h > INT32_MAX)
        return because(reader->reason, "TIFF: %u x %u pixels", w, h);
    reader->w = (int)w;
    reader->h = (int)h;
    if (!TIFFIsCODECConfigured(compression))
        return because(reader->reason, "TIFF: this libtiff does not have its compression, number %u",
                       compression);
    return check_samples(reader) && check_colours(reader, compression);
}

/* True if the last channel is alpha. */
static bool has_alpha(const struct reader *reader)
{
    uint16_t count = 0, *kinds = NULL;
    bool colours = reader->photometric <= PHOTOMETRIC_RGB || reader->photometric == PHOTOMETRIC_YCBCR;
    TIFFGetField(reader->tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds);
    return count == 1 && colours && (reader->c == 2 || reader->c == 4) && kinds[0] != EXTRASAMPLE_UNSPECIFIED;
}

/* Pages of the file that are no thumbnails, smaller copies or masks of the first one. */
static int count_pages(struct reader *reader)
{
    int pages = 1;
    TIFF *tiff = reader->tiff;
    for (int i = 1; i < PAGES_MAX && !TIFFLastDirectory(tiff) && TIFFReadDirectory(tiff); i++) {
        uint32_t kind = 0;
        TIFFGetField(tiff, TIFFTAG_SUBFILETYPE, &kind);
        pages += !(kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK));
    }
    reader->why[0] = '\0';
    return TIFFSetDirectory(tiff, 0) ? pages : 0;
}

/* ---- Pixels ---- */

/* `count` samples of a block, every `step`th one of the image's from `to` on. */
static void put_samples(const struct reader *reader, const uint8_t *from, size_t count, size_t to,
                        size_t step)
{
    float *numbers = image_numbers(reader->image) + to;
    uint8_t *bytes = reader->image->pixels + to;
    if (reader->bits == 8) {
        for (size_t i = 0; i < count; i++) bytes[i * step] = from[i];
    } else if (reader->bits == 32) {
        for (size_t i = 0; i < count; i++) memcpy(&numbers[i * step], from + 4 * i, 4);
    } else {
        bool negative = reader->format == SAMPLEFORMAT_INT;
        for (size_t i = 0; i < count; i++) {
            uint16_t sample;
            memcpy(&sample, from + 2 * i, 2);
            numbers[i * step] = negative ? (float)(int16_t)sample : (float)sample;
        }
    }
}

/* The part of a block, whose rows have `w` pixels, that lies in the image at y, x. */
static void put_block(const struct reader *reader, int y, int x, int h, int w, int plane)
{
    size_t c = (size_t)reader->c, each = reader->planar ? 1 : c;
    size_t stride = (size_t)w * each * reader->bits / 8;
    int rows = y + h < reader->h ? h : reader->h - y, columns = x + w < reader->w ? w : reader->w - x;
    for (int row = 0; row < rows; row++) {
        size_t to = ((size_t)(y + row) * (size_t)reader->w + (size_t)x) * c + (size_t)plane;
        put_samples(reader, reader->block + (size_t)row * stride, (size_t)columns * each, to,
                    reader->planar ? c : 1);
    }
}

static bool read_tiles(struct reader *reader)
{
    TIFF *tiff = reader->tiff;
    tmsize_t bytes = TIFFTileSize(tiff);
    uint32_t w = 0, h = 0;
    TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &w);
    TIFFGetField(tiff, TIFFTAG_TILELENGTH, &h);
    int planes = reader->planar ? reader->c : 1;
    size_t each = reader->planar ? 1 : (size_t)reader->c;
    if (bytes < 1 || bytes > BLOCK_BYTES_MAX || w < 1 || h < 1 ||
        (size_t)bytes != (size_t)w * h * each * reader->bits / 8)
        return refuse(reader, "tiles of an unexpected size");
    if (!(reader->block = calloc((size_t)bytes, 1))) return because(reader->reason, "TIFF: out of memory");
    for (int plane = 0; plane < planes; plane++)
        for (int64_t y = 0; y < reader->h; y += h)
            for (int64_t x = 0; x < reader->w; x += w) {
                uint32_t tile = TIFFComputeTile(tiff, (uint32_t)x, (uint32_t)y, 0, (uint16_t)plane);
                if (TIFFReadEncodedTile(tiff, tile, reader->block, bytes) != bytes)
                    return refuse(reader, "the file is truncated");
                put_block(reader, (int)y, (int)x, (int)h, (int)w, plane);
            }
    return true;
}

static bool read_strips(struct reader *reader)
{
    TIFF *tiff = reader->tiff;
    uint32_t given = 0;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &given);
    int rows = given < 1 || given > (uint32_t)reader->h ? reader->h : (int)given;
    int planes = reader->planar ? reader->c : 1;
    size_t each = reader->planar ? 1 : (size_t)reader->c;
    tmsize_t stride = (tmsize_t)((size_t)reader->w * each * reader->bits / 8);
    if (TIFFScanlineSize(tiff) != stride || TIFFStripSize(tiff) != stride * rows ||
        stride * rows > BLOCK_BYTES_MAX)
        return refuse(reader, "strips of an unexpected size");
    if (!(reader->block = calloc((size_t)(stride * rows), 1)))
        return because(reader->reason, "TIFF: out of memory");
    for (int plane = 0; plane < planes; plane++)
        for (int y = 0; y < reader->h; y += rows) {
            int here = reader->h - y < rows ? reader->h - y : rows;
            uint32_t strip = TIFFComputeStrip(tiff, (uint32_t)y, (uint16_t)plane);
            if (TIFFReadEncodedStrip(tiff, strip, reader->block, stride * here) != stride * here)
                return refuse(reader, "the file is truncated");
            put_block(reader, y, 0, here, reader->w, plane);
            if (rows > reader->h - y) break;
        }
    return true;
}

/* Entries of a palette have 16 bits, of which old writers set the lower 8. */
static bool use_palette(struct reader *reader)
{
    uint16_t *maps[3], most = 0;
    struct image *image = reader->image, colours = {0};
    size_t pixels = (size_t)reader->h * (size_t)reader->w;
    if (!TIFFGetField(reader->tiff, TIFFTAG_COLORMAP, &maps[0], &maps[1], &maps[2]))
        return refuse(reader, "its palette is missing");
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 256; i++) most |= maps[k][i];
    if (!image_resize_buffer(&colours, reader->h, reader->w, 3, reader->reason)) return false;
    for (size_t i = 0; i < 3 * pixels; i++)
        colours.pixels[i] = (uint8_t)(maps[i % 3][image->pixels[i / 3]] >> (most > 255 ? 8 : 0));
    colours.pages = image->pages;
    image_free(image);
    *image = colours;
    return true;
}

/* White is 0 in some files; a number that is none would spoil all that is computed of it. */
static bool finish_samples(struct reader *reader)
{
    struct image *image = reader->image;
    size_t count = (size_t)reader->h * (size_t)reader->w * (size_t)reader->c;
    float *numbers = image_numbers(image);
    if (reader->photometric == PHOTOMETRIC_PALETTE) return use_palette(reader);
    bool inverted = reader->photometric == PHOTOMETRIC_MINISWHITE && reader->format == SAMPLEFORMAT_UINT;
    for (size_t i = 0; inverted && image->deep && i < count; i++) numbers[i] = 65535 - numbers[i];
    for (size_t i = 0; inverted && !image->deep && i < count; i++)
        image->pixels[i] = (uint8_t)(255 - image->pixels[i]);
    for (size_t i = 0; reader->bits == 32 && i < count; i++)
        if (!isfinite(numbers[i])) return because(reader->reason, "TIFF: has samples that are not finite");
    return true;
}

static bool make_room(struct reader *reader)
{
    bool real = reader->bits == 32, negative = reader->format == SAMPLEFORMAT_INT;
    if (reader->bits == 8)
        return image_resize_buffer(reader->image, reader->h, reader->w, reader->c, reader->reason);
    return image_resize_deep(reader->image, reader->h, reader->w, reader->c, negative ? -32768 : 0,
                             real ? 1 : negative ? 32767 : 65535, reader->reason);
}

static bool read_first(struct reader *reader, struct image_options options, const struct image_choice *choice)
{
    uint16_t orientation = 1;
    struct image *image = reader->image;
    struct box part, all;
    image->pages = count_pages(reader);
    if (!read_header(reader)) return false;
    image->deep = reader->bits > 8;
    image->c = reader->c;
    if (!options.ignore_orientation) TIFFGetFieldDefaulted(reader->tiff, TIFFTAG_ORIENTATION, &orientation);
    if (orientation < 1 || orientation > 8) orientation = 1;
    all = (struct box){.h = reader->h, .w = reader->w};
    all = orientation_upright(orientation, all, reader->h, reader->w);
    if (choice && !choice->choose(choice->context, all.h, all.w, &part, reader->reason)) return false;
    if (!make_room(reader)) return false;
    bool good = (reader->tiled ? read_tiles(reader) : read_strips(reader)) && finish_samples(reader);
    image->alpha = good && has_alpha(reader);
    return good && orientation_turn(image, orientation, reader->reason);
}

bool image_decode_tiff(const uint8_t *bytes, size_t count, struct image_options options,
                       const struct image_choice *choice, struct image *image, struct reason *reason)
{
    struct reader reader = {.bytes = bytes, .count = count, .reason = reason, .image = image};
    reader.tiff = open_bytes(&reader);
    bool good = reader.tiff ? read_first(&reader, options, choice) : refuse(&reader, "it cannot be opened");
    if (reader.tiff) TIFFClose(reader.tiff);
    free(reader.block);
    return good;
}
