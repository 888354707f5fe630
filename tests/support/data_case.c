#include "data_case.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>
#include <zlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "tests/support/unit.h"

static void png_append(png_structp png, png_bytep data, size_t count)
{
    struct bytes *bytes = png_get_io_ptr(png);
    bytes->data = memory_resize(bytes->data, bytes->count + count, 1);
    memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
}

static void png_set_palette(png_structp png, png_infop info, int depth)
{
    png_color palette[256];
    for (int i = 0; i < 256; i++)
        palette[i] = (png_color){.red = (png_byte)(2 * i), .green = (png_byte)i, .blue = (png_byte)i};
    png_set_PLTE(png, info, palette, 1 << depth);
}

struct bytes case_png(int w, int h, int depth, int type, bool interlaced, const uint8_t *pixels)
{
    struct bytes bytes = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(png, &bytes, png_append, NULL);
    png_set_IHDR(png, info, (png_uint_32)w, (png_uint_32)h, depth, type,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette(png, info, depth);
    png_write_info(png, info);
    size_t stride = png_get_rowbytes(png, info);
    png_bytep *rows = memory_new((size_t)h, sizeof *rows);
    for (int y = 0; y < h; y++) rows[y] = (png_bytep)pixels + (size_t)y * stride;
    png_write_image(png, rows);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    free(rows);
    return bytes;
}

struct bytes case_plain_png(int w, int h, uint8_t red, uint8_t green, uint8_t blue)
{
    uint8_t *pixels = memory_new((size_t)w * (size_t)h, 3);
    for (int i = 0; i < w * h; i++) memcpy(pixels + 3 * i, (uint8_t[]){red, green, blue}, 3);
    struct bytes bytes = case_png(w, h, 8, PNG_COLOR_TYPE_RGB, false, pixels);
    free(pixels);
    return bytes;
}

/* How a JPEG is to be written. */
struct jpeg_kind {
    int channels, space, stored;
    int down, across;          /* luma samples for one of chroma */
    int quality, restart;
    bool progressive;
};

static struct bytes write_jpeg(int w, int h, struct jpeg_kind kind, const uint8_t *pixels)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *data = NULL;
    unsigned long count = 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &data, &count);
    jpeg.image_width = (JDIMENSION)w;
    jpeg.image_height = (JDIMENSION)h;
    jpeg.input_components = kind.channels;
    jpeg.in_color_space = (J_COLOR_SPACE)kind.space;
    jpeg_set_defaults(&jpeg);
    jpeg_set_colorspace(&jpeg, (J_COLOR_SPACE)kind.stored);
    jpeg_set_quality(&jpeg, kind.quality, TRUE);
    for (int i = 0; i < jpeg.num_components; i++)
        jpeg.comp_info[i].h_samp_factor = jpeg.comp_info[i].v_samp_factor = 1;
    jpeg.comp_info[0].h_samp_factor = kind.across;
    jpeg.comp_info[0].v_samp_factor = kind.down;
    jpeg.restart_interval = (unsigned)kind.restart;
    if (kind.progressive) jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row = (JSAMPROW)pixels + (size_t)jpeg.next_scanline * (size_t)w * (size_t)kind.channels;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    struct bytes bytes = {memcpy(memory_new(count, 1), data, count), count};
    free(data);
    return bytes;
}

struct bytes case_jpeg(int w, int h, int space, int stored, bool progressive, const uint8_t *pixels)
{
    int channels = space == JCS_GRAYSCALE ? 1 : space == JCS_UNKNOWN ? 2 : space == JCS_RGB ? 3 : 4;
    struct jpeg_kind kind = {.channels = channels, .space = space, .stored = stored, .down = 1, .across = 1,
                             .quality = 100, .progressive = progressive};
    return write_jpeg(w, h, kind, pixels);
}

struct bytes case_jpeg_sampled(int w, int h, struct jpeg_sampling sampling, const uint8_t *pixels)
{
    struct jpeg_kind kind = {.channels = 3, .space = JCS_RGB, .stored = JCS_YCbCr, .down = sampling.down,
                             .across = sampling.across, .quality = 85, .restart = sampling.restart,
                             .progressive = sampling.progressive};
    return write_jpeg(w, h, kind, pixels);
}

struct bytes case_with_exif(struct bytes jpeg, const void *tiff, size_t count)
{
    size_t length = 2 + 6 + count;
    struct bytes with = {memory_new(jpeg.count + 2 + length, 1), jpeg.count + 2 + length};
    const uint8_t head[] = {0xff, 0xd8, 0xff, 0xe1, (uint8_t)(length >> 8), (uint8_t)length,
                            'E', 'x', 'i', 'f', 0, 0};
    memcpy(with.data, head, sizeof head);
    memcpy(with.data + sizeof head, tiff, count);
    memcpy(with.data + sizeof head + count, jpeg.data + 2, jpeg.count - 2);
    free(jpeg.data);
    return with;
}

/* A directory of one entry, from offset 18 on the orientation. */
#define TIFF 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, (uint8_t)orientation, 0, 0, \
             0, 0, 0, 0

struct bytes case_oriented(struct bytes jpeg, int orientation)
{
    const uint8_t tiff[] = {TIFF};
    return case_with_exif(jpeg, tiff, sizeof tiff);
}

struct bytes case_oriented_png(struct bytes png, int orientation, bool behind)
{
    uint8_t chunk[] = {0, 0, 0, 26, 'e', 'X', 'I', 'f', TIFF, 0, 0, 0, 0};
    size_t at = behind ? png.count - 12 : 33, data = sizeof chunk - 8;     /* around IEND; behind IHDR */
    uLong crc = crc32(0, chunk + 4, (uInt)data);
    for (size_t i = 0; i < 4; i++) chunk[sizeof chunk - 1 - i] = (uint8_t)(crc >> 8 * i);
    struct bytes with = {memory_new(png.count + sizeof chunk, 1), png.count + sizeof chunk};
    memcpy(with.data, png.data, at);
    memcpy(with.data + at, chunk, sizeof chunk);
    memcpy(with.data + at + sizeof chunk, png.data + at, png.count - at);
    free(png.data);
    return with;
}

void case_write_bytes(const char *folder, const char *name, struct bytes bytes)
{
    case_write(folder, name, bytes.data, bytes.count);
    free(bytes.data);
}

void case_write_gz(const char *folder, const char *name, const void *data, size_t count)
{
    char *path = case_path(folder, name);
    gzFile file = gzopen(path, "wb");
    assert_int_equal(gzwrite(file, data, (unsigned)count), count);
    assert_int_equal(gzclose(file), Z_OK);
    free(path);
}

struct bytes case_read(const char *path)
{
    struct bytes bytes = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    bytes.count = (size_t)ftell(file);
    rewind(file);
    bytes.data = memory_new(bytes.count, 1);
    assert_int_equal(fread(bytes.data, 1, bytes.count, file), bytes.count);
    fclose(file);
    return bytes;
}

char *case_data(const char *name)
{
    const char *root = getenv("AMPTRAIN_DATA");
    char *path = text_format("%s/%s", root ? root : "", name);
    if (root && access(path, R_OK) == 0) return path;
    free(path);
    skip();
    return NULL;
}

static struct text collected;

static void collect(void *context, enum log_level level, const char *line)
{
    (void)level;
    text_add(&collected, "%s\n", line);
}

void case_log_collect(void)
{
    text_free(&collected);
    collected = (struct text){0};
    log_set_level(LOG_ERROR);
    log_set_sink((struct log_sink){collect, NULL});
}

const char *case_log(void) { return collected.data ? collected.data : ""; }
