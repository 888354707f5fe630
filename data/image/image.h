/* image.h: an image as bytes or numbers, and its decoding from PNG, JPEG, WebP and TIFF files, recognised by
 * their first bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The most channels of an image: enough for imaging spectrometers, which have 200 to 250. */
#define IMAGE_CHANNELS_MAX 256

struct box {
    int y, x, h, w;
};

/* h x w x c bytes, rows without gaps, c innermost: 1 grey, 3 RGB, more of a multispectral one. The buffer is
 * reused and grows. It may be a part of a larger image, full_h x full_w, beginning at top, left. */
struct image {
    int h, w, c;
    int top, left, full_h, full_w;
    bool deep;                 /* the file has more than 8 bits a sample: pixels are floats, not bytes */
    float low, high;           /* then: the ends of its type's range, such as 0 and 65535 */
    bool alpha;                /* the last channel is alpha; only until image_fit_channels */
    int pages;                 /* of the file, of which this is the first; 0 or 1: no others */
    uint8_t *pixels;
    size_t capacity;
};

static inline size_t image_pixel_bytes(const struct image *image)
{
    return (size_t)image->c * (image->deep ? sizeof(float) : 1);
}
static inline size_t image_bytes(const struct image *image)
{
    return (size_t)image->h * (size_t)image->w * image_pixel_bytes(image);
}
/* The samples of a deep image. */
static inline float *image_numbers(const struct image *image)
{
    return (float *)(void *)image->pixels;
}

/* Allocates h x w x c bytes, a whole image; false, with a reason, if that is too large (over 5 * 2^28 bytes)
 * or there is no memory. The previous pixels are lost. */
bool image_resize_buffer(struct image *image, int h, int w, int c, struct reason *reason);
/* Allocates h x w x c floats of a type of this range, a deep image, under the same conditions. */
bool image_resize_deep(struct image *image, int h, int w, int c, float low, float high,
                       struct reason *reason);
/* Resizes to `part` of an image of h x w, to which the limit applies as well. */
bool image_resize_part(struct image *image, int h, int w, struct box part, int c, struct reason *reason);
void image_free(struct image *image);

/* Called by a decoder that knows an image's size before it decodes: returns the part that will be used, which
 * is within the image and not empty. False, with the reason: the image will not be used. */
struct image_choice {
    bool (*choose)(void *context, int h, int w, struct box *part, struct reason *reason);
    void *context;
};

/* A larger file is treated as an error or an attack. */
#define IMAGE_FILE_BYTES_MAX (UINT32_C(1) << 30)

enum image_kind { IMAGE_UNKNOWN, IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP, IMAGE_TIFF };
#define IMAGE_SNIFF_BYTES 12
/* The kind of a file by its first bytes, of which it needs IMAGE_SNIFF_BYTES at most. */
enum image_kind image_sniff(const uint8_t *bytes, size_t count);
/* The name of another format of images that these bytes begin, such as "HEIC"; NULL: none that is known. */
const char *image_foreign(const uint8_t *bytes, size_t count);

/* The bytes of the image file that begins at `bytes`, at most `count`; `count` if its structure does not say
 * where it ends. Bytes that follow are not a part of it, such as another image. */
size_t image_extent(const uint8_t *bytes, size_t count);

/* The most channels that a file has. */
#define IMAGE_BANDS_MAX 16

/* Channels that were asked for by number. */
struct image_bands {
    bool strict;               /* a file with fewer channels is refused, not converted; one with more gives
                                * its first ones */
    int count;                 /* not 0: these of the file's, from 0, unconverted */
    uint8_t list[IMAGE_BANDS_MAX];
};

struct image_options {
    int channels;              /* of the result; 0: all that the file has, alpha included */
    bool ignore_orientation;   /* images are used as stored; otherwise they are oriented by Exif */
    struct image_bands bands;
};

/* True if a file's name ends like a PNG's, JPEG's, WebP's or TIFF's, in any case. */
bool image_is_named(const char *name);

/* Decodes a PNG, JPEG, WebP or TIFF in memory. Samples of 16 bits and floats are kept (struct image's
 * `deep`). For 1 or 3 channels grey is replicated, colour is weighted to grey, alpha is shown over white;
 * palettes, CMYK and YCCK of a JPEG are converted in any case. False, with the reason, if it is corrupt,
 * truncated or too large, or has other channels; never crashes. Gamma and colour profiles are not applied.
 * Sizes and parts are those of the upright image. When `choice` is asked, `deep` and `pages` of the image are
 * known.
 *
 * `choice` NULL: all of it. Otherwise at least the part chosen, with the same pixels; what is broken outside
 * of it may go unnoticed, but not that the file ends too early. */
bool image_decode(const uint8_t *bytes, size_t count, struct image_options options,
                  const struct image_choice *choice, struct image *image, struct reason *reason);

/* Decodes a file; the reason names it. */
bool image_load(const char *path, struct image_options options, const struct image_choice *choice,
                struct image *image, struct reason *reason);

/* The bytes of an image file, in new memory (free() it); the reason names the file. */
bool image_read_file(const char *path, uint8_t **bytes, size_t *count, struct reason *reason);

/* A JPEG of a grey or RGB image, in new memory. `quality`: libjpeg's, up to 100; chroma is halved. */
bool image_encode_jpeg(const struct image *image, int quality, uint8_t **bytes, size_t *count,
                       struct reason *reason);

/* Makes the channels of an image as stored, in all its samples, those that the options ask for. False, with
 * the reason, if it has no such channels. */
bool image_fit_channels(struct image *image, const struct image_options *options, struct reason *reason);

/* The range of samples that becomes 0 to 1. */
struct image_range {
    bool set;                  /* otherwise it is that of the file's type: of floats 0 to 1 */
    double low, high;
};
struct image_range image_range_of(const struct image *image, const struct image_range *range);

/* A deep image in bytes, for pictures: what lies beyond the range is black or white. */
bool image_reduce(const struct image *image, const struct image_range *range, struct image *to,
                  struct reason *reason);

/* A PNG of a grey or RGB image, in new memory. */
bool image_encode_png(const struct image *image, uint8_t **bytes, size_t *count, struct reason *reason);

/* The decoders that image_decode calls, and what they share: `count` RGB pixels weighted to grey
 * (ITU-R BT.601 luma, as PIL rounds it); `to` may be `from`. Channels 0: as stored. */
bool image_decode_png(const uint8_t *bytes, size_t count, int channels, const struct image_choice *choice,
                      struct image *image, struct reason *reason);
/* Only the most common files, and without choice: 8 bits, grey or RGB, with or without alpha; not converted.
 * False: it is another kind, or invalid, which image_decode_png reports. */
bool image_decode_png_plain(const uint8_t *bytes, size_t count, int channels, struct image *image);
/* False, with the reason, in a build without libwebp. */
bool image_decode_webp(const uint8_t *bytes, size_t count, int channels, const struct image_choice *choice,
                       struct image *image, struct reason *reason);
bool image_decode_jpeg(const uint8_t *bytes, size_t count, struct image_options options,
                       const struct image_choice *choice, struct image *image, struct reason *reason);
/* The first page as stored, oriented. False, with the reason, in a build without libtiff. */
bool image_decode_tiff(const uint8_t *bytes, size_t count, struct image_options options,
                       const struct image_choice *choice, struct image *image, struct reason *reason);
/* Samples as a PNG file stores them, for masks: indices of a palette, grey of 1 to 16 bits, colours, each
 * with alpha or without. */
struct image_samples {
    struct image image;        /* c bytes a pixel */
    bool deep;                 /* two bytes a sample, the upper one first */
    int channels;              /* 1 to 4; even ones have alpha */
    bool palette;
    uint8_t colours[256][3];   /* of the palette; black where there is none */
};
bool image_png_samples(const uint8_t *bytes, size_t count, struct image_samples *samples,
                       struct reason *reason);
void image_grey_from_rgb(uint8_t *to, const uint8_t *from, size_t count);
/* `count` pixels of `channels` bytes and alpha over white; `to` may be `from`. */
void image_over_white(uint8_t *to, const uint8_t *from, size_t count, int channels);
