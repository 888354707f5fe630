/* JPEG by libjpeg-turbo: baseline and progressive, 8 bits, grey, colour, CMYK and YCCK. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "data/image/image.h"
#include "data/image/orientation.h"

/* A progressive image may name any number of scans, each a pass over all of it; real encoders
 * write about ten. */
#define SCANS_MAX 200
/* Memory that libjpeg may hold: the coefficients of the largest progressive image we accept. */
#define DECODER_BYTES_MAX (1L << 29)

/* All that changes before a longjmp is a member, never a local. */
struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf out;
    uint8_t *row;              /* one row as decoded, where it still has to be converted */
    uint8_t *band;             /* BAND_ROWS rows, if they have to be rotated; otherwise NULL */
    const struct image_choice *choice;
    int orientation;           /* data/image/orientation.h */
    struct box part;           /* the decoded part, as stored */
    struct image *image;
    struct reason *reason;
};

static struct reader *reader_of(j_common_ptr jpeg) { return jpeg->client_data; }

_Noreturn static void on_error(j_common_ptr jpeg)
{
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    because(reader_of(jpeg)->reason, "JPEG: %s", message);
    longjmp(reader_of(jpeg)->out, 1);
}

/* Warnings that do not affect pixels. After any other, libjpeg has invented pixels. */
static bool jpeg_is_harmless(int code)
{
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
           code == JWRN_NOT_SEQUENTIAL || code == JWRN_TOO_MUCH_DATA;
}

static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && !jpeg_is_harmless(jpeg->err->msg_code)) on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg)
{
    int scans = ((j_decompress_ptr)jpeg)->input_scan_number;
    if (scans <= SCANS_MAX) return;
    because(reader_of(jpeg)->reason, "JPEG: over %d scans", SCANS_MAX);
    longjmp(reader_of(jpeg)->out, 1);
}

/* 255 is no ink: Adobe's programs store CMYK inverted, and all readers expect that, with Adobe's marker or
 * without. */
static void rgb_from_cmyk(uint8_t *to, const uint8_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < 3; k++)
            to[3 * i + k] = (uint8_t)((from[4 * i + k] * from[4 * i + 3] + 127) / 255);
}

/* Lets libjpeg convert the colour space; only CMYK is converted here. */
static bool choose_colours(struct reader *reader, int channels)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    switch (jpeg->jpeg_color_space) {
    case JCS_GRAYSCALE:
    case JCS_YCbCr:
    case JCS_RGB:
        jpeg->out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
        return true;
    case JCS_CMYK:
    case JCS_YCCK:
        jpeg->out_color_space = JCS_CMYK;
        return true;
    default:
        return because(reader->reason, "JPEG: unsupported colour space of %d components",
                       jpeg->num_components);
    }
}

static void read_row(struct reader *reader, int channels, uint8_t *to)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    size_t w = jpeg->output_width;
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    jpeg_read_scanlines(jpeg, cmyk ? &reader->row : &to, 1);
    if (!cmyk) return;
    rgb_from_cmyk(reader->row, reader->row, w);
    if (channels == 1)
        image_grey_from_rgb(to, reader->row, w);
    else
        memcpy(to, reader->row, 3 * w);
}

/* Rows that are turned together: where they become columns, their pixels of one column lie side by side, and
 * those of one row pages apart. */
#define BAND_ROWS 16

static void put_band(uint8_t *to, const struct strides *strides, const uint8_t *band, struct box part, int c)
{
    for (int x = 0; x < part.w; x++)
        for (int y = 0; y < part.h; y++) {
            const uint8_t *from = band + ((ptrdiff_t)y * part.w + x) * c;
            uint8_t *pixel = to + y * strides->row + x * strides->pixel;
            pixel[0] = from[0];
            if (c == 1) continue;
            pixel[1] = from[1];
            pixel[2] = from[2];
        }
}

static void read_rows(struct reader *reader, int channels)
{
    struct box part = reader->part;
    struct strides strides = orientation_strides(reader->orientation, part.h, part.w, channels);
    uint8_t *to = reader->image->pixels + strides.first;
    if (!reader->band) {
        for (int y = 0; y < part.h; y++) read_row(reader, channels, to + y * strides.row);
        return;
    }
    for (int y = 0, end = part.h; y < end; y += BAND_ROWS) {
        part.h = end - y < BAND_ROWS ? end - y : BAND_ROWS;
        for (int i = 0; i < part.h; i++)
            read_row(reader, channels, reader->band + (size_t)i * (size_t)part.w * (size_t)channels);
        put_band(to + y * strides.row, &strides, reader->band, part, channels);
    }
}

/* True if libjpeg can skip rows and columns: one component, or luma at up to twice the resolution of both
 * chromas. Other images are decoded completely. */
static bool jpeg_is_divisible(const struct jpeg_decompress_struct *jpeg)
{
    const jpeg_component_info *part = jpeg->comp_info;
    if (jpeg->num_components == 1) return true;
    if (jpeg->num_components != 3 || part[0].h_samp_factor > 2 || part[0].v_samp_factor > 2) return false;
    for (int i = 1; i < 3; i++)
        if (part[i].h_samp_factor != 1 || part[i].v_samp_factor != 1) return false;
    return true;
}

/* Chroma is interpolated between samples. At the edge of the decoded part there is only one, so this many
 * additional pixels are needed for correct ones in the part. */
#define MARGIN 2

/* Extends a range on an axis of `size` pixels by the margin. */
static void add_margin(int size, int *from, int *count)
{
    int low = *from > MARGIN ? *from - MARGIN : 0, high = *from + *count + MARGIN;
    *from = low;
    *count = (high < size ? high : size) - low;
}

static bool choose_part(struct reader *reader)
{
    const struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    const struct image_choice *choice = reader->choice;
    int h = (int)jpeg->image_height, w = (int)jpeg->image_width;
    struct box all = {.h = h, .w = w}, part = orientation_upright(reader->orientation, all, h, w);
    if (choice && !choice->choose(choice->context, part.h, part.w, &part, reader->reason)) return false;
    reader->part = all;
    if (!jpeg_is_divisible(jpeg)) return true;
    part = orientation_stored(reader->orientation, part, h, w);
    add_margin(h, &part.y, &part.h);
    add_margin(w, &part.x, &part.w);
    reader->part = part;
    return true;
}

/* True if libjpeg guesses what the scans of a progressive image have left out, from the blocks around: then
 * pixels depend on which blocks are decoded. */
static bool is_smoothed(const struct jpeg_decompress_struct *jpeg)
{
    if (!jpeg->progressive_mode || !jpeg->coef_bits) return false;
    for (int i = 0; i < jpeg->num_components; i++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (jpeg->coef_bits[i][k] != 0) return true;
    return false;
}

/* Makes libjpeg decode at least the columns of the part, and skip to its first row. */
static void go_to_part(struct reader *reader)
{
    struct box *part = &reader->part;
    if (is_smoothed(&reader->jpeg)) {
        *part = (struct box){.h = (int)reader->jpeg.image_height, .w = (int)reader->jpeg.image_width};
        return;
    }
    if (part->w < (int)reader->jpeg.image_width) {
        JDIMENSION from = (JDIMENSION)part->x, count = (JDIMENSION)part->w;
        jpeg_crop_scanline(&reader->jpeg, &from, &count);
        part->x = (int)from;
        part->w = (int)count;
    }
    if (part->y > 0) jpeg_skip_scanlines(&reader->jpeg, (JDIMENSION)part->y);
}

/* True if the file ends as a JPEG does, zeros after it not counted. */
static bool is_ended(const uint8_t *bytes, size_t count)
{
    while (count > 2 && bytes[count - 1] == 0) count--;
    return bytes[count - 2] == 0xff && bytes[count - 1] == JPEG_EOI;
}

/* Rows below the part need not be decoded, unless the file may be truncated. The last row must
 * be read, not skipped, for libjpeg to look at those before it. */
static void jpeg_leave(struct reader *reader, const uint8_t *bytes, size_t count)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    JDIMENSION rest = jpeg->output_height - jpeg->output_scanline;
    if (rest > 0 && is_ended(bytes, count)) {
        jpeg_abort_decompress(jpeg);
        return;
    }
    if (rest > 1) jpeg_skip_scanlines(jpeg, rest - 1);
    if (rest > 0) jpeg_read_scanlines(jpeg, &reader->row, 1);
    jpeg_finish_decompress(jpeg);
}

/* Allocates memory for a part of the stored image. */
static bool make_room(struct reader *reader, struct box part, int channels)
{
    int h = (int)reader->jpeg.image_height, w = (int)reader->jpeg.image_width, turn = reader->orientation;
    struct box all = orientation_upright(turn, (struct box){.h = h, .w = w}, h, w);
    return image_resize_part(reader->image, all.h, all.w, orientation_upright(turn, part, h, w), channels,
                             reader->reason);
}

static bool read_pixels(struct reader *reader, const uint8_t *bytes, size_t count, int channels)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->client_data = reader;
    jpeg->progress = &reader->progress;
    jpeg->mem->max_memory_to_use = DECODER_BYTES_MAX;
    jpeg_mem_src(jpeg, bytes, (unsigned long)count);
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->data_precision != 8)
        return because(reader->reason, "JPEG: %d bits per sample; only 8 are supported",
                       jpeg->data_precision);
    if (channels == 0) channels = jpeg->num_components == 1 ? 1 : 3;
    if (!choose_colours(reader, channels)) return false;
    /* Refused before libjpeg allocates memory for it. */
    if (!make_room(reader, (struct box){.h = 1, .w = 1}, channels) || !choose_part(reader)) return false;
    jpeg_start_decompress(jpeg);
    go_to_part(reader);
    if (!make_room(reader, reader->part, channels)) return false;
    reader->row = malloc(4 * (size_t)jpeg->image_width);
    bool turned = reader->orientation != 1;
    if (turned) reader->band = malloc(BAND_ROWS * (size_t)reader->part.w * (size_t)channels);
    if (!reader->row || (turned && !reader->band)) return because(reader->reason, "JPEG: out of memory");
    read_rows(reader, channels);
    jpeg_leave(reader, bytes, count);
    return true;
}

static bool read_guarded(struct reader *reader, const uint8_t *bytes, size_t count, int channels)
{
    if (setjmp(reader->out)) return false;
    return read_pixels(reader, bytes, count, channels);
}

bool image_decode_jpeg(const uint8_t *bytes, size_t count, struct image_options options,
                       const struct image_choice *choice, struct image *image, struct reason *reason)
{
    struct reader reader = {.choice = choice, .image = image, .reason = reason};
    reader.orientation = options.ignore_orientation ? 1 : orientation_of_jpeg(bytes, count);
    reader.jpeg.err = jpeg_std_error(&reader.errors);
    reader.jpeg.client_data = &reader;
    reader.errors.error_exit = on_error;
    reader.errors.emit_message = on_message;
    reader.progress.progress_monitor = on_progress;
    bool good = read_guarded(&reader, bytes, count, options.channels);
    free(reader.row);
    free(reader.band);
    jpeg_destroy_decompress(&reader.jpeg);
    return good;
}
