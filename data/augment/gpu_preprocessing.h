/* gpu_preprocessing.h: the record of one image that a device preprocesses: the position of its bytes, and how
 * they are resized, cropped, mirrored and erased before each byte is converted to a number (augment_table). A
 * loader's worker does the same on the CPU, with the same bits (resample.h). */
#pragma once

#include "data/augment/resample.h"
#include "data/image/image.h"

/* The block that contains an image's bytes. */
enum image_source {
    SOURCE_SENT,               /* in the batch, after the records */
    SOURCE_KEPT,               /* among the images cached on the device */
    SOURCE_DECODED,            /* among those that it has decoded for future batches */
    IMAGE_SOURCES,
};

/* The maximum number of channels that a GPU preprocesses. */
#define GPU_CHANNELS_MAX 4

struct image_record {
    int64_t at, stride;        /* the first pixel, in bytes from the source's beginning;
                                * bytes from row to row */
    int32_t source;            /* enum image_source */
    int32_t blank;             /* there is no image: the output is zeros */
    int32_t flip, vflip;
    int32_t reflect;           /* beyond the edges lies the image reflected, not black */
    int32_t h, w;              /* the size that... */
    struct box from;           /* ...this is resized to, relative to the first available pixel, before which
                                * it may begin; unavailable pixels are not read */
    struct box window;         /* of the resized image, which it may extend beyond: the output */
    struct box erased;         /* of the output: set to zero; empty if h is 0 */
};

ANYWHERE int image_record_resizes(const struct image_record *record)
{
    return record->h != record->from.h || record->w != record->from.w;
}

/* Where pixel `i` of a row or column of `size` comes from; negative or not below size: it is black. */
ANYWHERE int image_record_pixel(int i, int size, int reflect)
{
    if (!reflect || (i >= 0 && i < size)) return i;
    return i < 0 ? -i : 2 * size - 2 - i;
}

/* The part of `length` from `at` on that lies on 0..size. */
ANYWHERE struct pixel_range image_record_visible(int at, int length, int size)
{
    struct pixel_range seen;
    seen.low = at < 0 ? 0 : at < size ? at : size;
    seen.high = at + length < seen.low ? seen.low : at + length < size ? at + length : size;
    return seen;
}

/* The source pixels that a range of outputs is computed from. */
ANYWHERE struct pixel_range image_record_reach(int size, int target, struct pixel_range seen)
{
    struct pixel_range reach = resample_pixels(size, target, seen.low);
    reach.high = resample_pixels(size, target, seen.high - 1).high;
    return reach;
}

ANYWHERE int image_record_erases(const struct image_record *record, int y, int x)
{
    const struct box *box = &record->erased;
    return y >= box->y && y < box->y + box->h && x >= box->x && x < box->x + box->w;
}

/* On a GPU a block computes a tile of TILE_ROWS x TILE_COLUMNS of an image, one row a warp, with the weights
 * for it and those rows' sums down the columns in shared memory. */
#define TILE_ROWS 32
#define TILE_COLUMNS 32
#define TILE_WARPS 8
#define TILE_SHARED_MAX (40 << 10)

/* The maximum number of column sums for one row of a tile. */
ANYWHERE int64_t image_record_sums(int size, int target, int c)
{
    return c * (((TILE_COLUMNS - 1) * (int64_t)size + resample_width(size, target)) / target + 2);
}

/* Bytes of shared memory for an image; one that needs more than TILE_SHARED_MAX is resized by the loader. */
ANYWHERE int64_t image_record_shared_bytes(const struct image_record *record, int c)
{
    if (!image_record_resizes(record)) return 0;
    int64_t across = TILE_COLUMNS * (int64_t)(resample_taps(record->from.w, record->w) + 2);
    int64_t down = TILE_ROWS * (int64_t)(resample_taps(record->from.h, record->h) + 2);
    return 4 * (across + down + TILE_WARPS * image_record_sums(record->from.w, record->w, c));
}
