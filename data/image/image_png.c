/* PNG by libpng: every colour type becomes grey or RGB, of 8 bits; of 16 bits, floats.
 * W3C, Portable Network Graphics Specification (Third Edition). */
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/image.h"

/* All that changes before libpng's longjmp is a member, never a local. */
struct reader {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t left;
    png_bytep *rows;
    const struct image_choice *choice;
    struct image *image;
    struct image_samples *samples; /* NULL: pixels are read, not samples */
    struct reason *reason;
};

static void read_bytes(png_structp png, png_bytep to, size_t count)
{
    struct reader *reader = png_get_io_ptr(png);
    if (count > reader->left) png_error(png, "the file is truncated");
    memcpy(to, reader->bytes, count);
    reader->bytes += count;
    reader->left -= count;
}

static void on_error(png_structp png, png_const_charp message)
{
    struct reader *reader = png_get_error_ptr(png);
    because(reader->reason, "PNG: %s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
}

/* Colour is always decoded as RGB and weighted to grey afterwards, as JPEG's CMYK is. */
static void ask_for_bytes(struct reader *reader, int channels)
{
    png_structp png = reader->png;
    int colour = png_get_color_type(png, reader->info);
    if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (!(colour & PNG_COLOR_MASK_COLOR)) {
        png_set_expand_gray_1_2_4_to_8(png);
        if (channels == 3) png_set_gray_to_rgb(png);
    }
    if (reader->image->deep && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) png_set_swap(png);
    if (png_get_valid(png, reader->info, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
}

static void read_header(struct reader *reader)
{
    png_structp png = reader->png;
    png_set_error_fn(png, reader, on_error, on_warning);
    png_set_read_fn(png, reader, read_bytes);
    /* Text, profiles and similar chunks may be decompression bombs, and are not used. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(png, reader->info);
}

/* All rows of `bytes` a pixel, to `pixels`. */
static void read_rows(struct reader *reader, int h, int w, int bytes, uint8_t *pixels)
{
    png_structp png = reader->png;
    size_t stride = (size_t)w * (size_t)bytes;
    if (png_get_rowbytes(png, reader->info) != stride) png_error(png, "rows of an unexpected size");
    reader->rows = malloc((size_t)h * sizeof *reader->rows);
    if (!reader->rows) png_error(png, "no memory for the list of rows");
    for (int y = 0; y < h; y++) reader->rows[y] = pixels + (size_t)y * stride;
    png_read_image(png, reader->rows);
    png_read_end(png, NULL);
}

/* Samples as they are stored, those of less than 8 bits in a byte each. */
static bool read_samples(struct reader *reader, struct image_samples *samples)
{
    png_structp png = reader->png;
    png_colorp colours;
    int count = 0;
    read_header(reader);
    int w = (int)png_get_image_width(png, reader->info), h = (int)png_get_image_height(png, reader->info);
    samples->palette = png_get_color_type(png, reader->info) == PNG_COLOR_TYPE_PALETTE;
    samples->channels = png_get_channels(png, reader->info);
    samples->deep = png_get_bit_depth(png, reader->info) == 16;
    if (samples->palette && png_get_PLTE(png, reader->info, &colours, &count))
        for (int i = 0; i < count && i < 256; i++)
            memcpy(samples->colours[i], (uint8_t[]){colours[i].red, colours[i].green, colours[i].blue}, 3);
    png_set_packing(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    int bytes = samples->channels * (samples->deep ? 2 : 1);
    if (!image_resize_buffer(reader->image, h, w, bytes, reader->reason)) return false;
    read_rows(reader, h, w, bytes, reader->image->pixels);
    return true;
}

/* Samples of 16 bits, read to the second half of the buffer, are made floats from the first one on. */
static void read_deep(struct reader *reader, int h, int w, int stored)
{
    size_t count = (size_t)h * (size_t)w * (size_t)stored;
    float *numbers = image_numbers(reader->image);
    uint8_t *half = reader->image->pixels + 2 * count;
    read_rows(reader, h, w, 2 * stored, half);
    for (size_t i = 0; i < count; i++) {
        uint16_t sample;
        memcpy(&sample, half + 2 * i, 2);
        numbers[i] = sample;
    }
}

static bool read_pixels(struct reader *reader, int channels)
{
    png_structp png = reader->png;
    read_header(reader);
    int w = (int)png_get_image_width(png, reader->info), h = (int)png_get_image_height(png, reader->info);
    bool grey = !(png_get_color_type(png, reader->info) & PNG_COLOR_MASK_COLOR);
    int decoded = grey && channels != 3 ? 1 : 3;
    struct box part;
    struct image *image = reader->image;
    bool deep = image->deep = png_get_bit_depth(png, reader->info) == 16;
    ask_for_bytes(reader, channels);
    bool alpha = image->alpha = png_get_channels(png, reader->info) > decoded;
    int stored = decoded + alpha;
    /* Decoding a part has no benefit, but the image may turn out to be unusable. */
    if (reader->choice && !reader->choice->choose(reader->choice->context, h, w, &part, reader->reason))
        return false;
    if (deep) {
        if (!image_resize_deep(image, h, w, stored, 0, 65535, reader->reason)) return false;
        read_deep(reader, h, w, stored);
        return true;
    }
    if (!image_resize_buffer(image, h, w, stored, reader->reason)) return false;
    read_rows(reader, h, w, stored, image->pixels);
    if (channels == 0 || !alpha) return true;
    image->c = decoded;
    image->alpha = false;
    image_over_white(image->pixels, image->pixels, (size_t)h * (size_t)w, decoded);
    return true;
}

static bool read_guarded(struct reader *reader, int channels)
{
    if (setjmp(png_jmpbuf(reader->png))) return false;
    return reader->samples ? read_samples(reader, reader->samples) : read_pixels(reader, channels);
}

static bool decode_with(struct reader *reader, int channels)
{
    reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, on_warning);
    if (reader->png) reader->info = png_create_info_struct(reader->png);
    bool good = reader->info ? read_guarded(reader, channels) : because(reader->reason, "PNG: out of memory");
    free(reader->rows);
    png_destroy_read_struct(&reader->png, &reader->info, NULL);
    return good;
}

static bool decode_any(const uint8_t *bytes, size_t count, int channels, const struct image_choice *choice,
                       struct image *image, struct reason *reason)
{
    struct reader reader = {
        .bytes = bytes, .left = count, .choice = choice, .image = image, .reason = reason};
    return decode_with(&reader, channels);
}

bool image_png_samples(const uint8_t *bytes, size_t count, struct image_samples *samples,
                       struct reason *reason)
{
    struct reader reader = {
        .bytes = bytes, .left = count, .image = &samples->image, .samples = samples, .reason = reason};
    return decode_with(&reader, 0);
}

bool image_decode_png(const uint8_t *bytes, size_t count, int channels, const struct image_choice *choice,
                      struct image *image, struct reason *reason)
{
    struct box part;
    if (channels == 0 || !image_decode_png_plain(bytes, count, channels, image)) {
        if (!decode_any(bytes, count, channels, choice, image, reason)) return false;
    } else if (choice && !choice->choose(choice->context, image->h, image->w, &part, reason)) {
        return false;
    }
    if (image->c == 3 && channels == 1 && !image->deep) {
        image_grey_from_rgb(image->pixels, image->pixels, (size_t)image->h * (size_t)image->w);
        image->c = 1;
    }
    return true;
}
