/* finish.h: an image's bytes, and what is left to do to them before a network reads them: resizing, the
 * window that is seen, mirroring, erasing; then each byte becomes a number (augment_table). Whoever does it
 * gets the same bits (resample.h): a loader's worker, which need leave nothing to do, or a device, where the
 * bytes may even lie. */
#ifndef DATA_GPU_PREPROCESSING_H
#define DATA_GPU_PREPROCESSING_H

#include "data/image.h"
#include "data/resample.h"

/* Where bytes lie; each place has its own beginning. */
enum finish_place {
    FINISH_SENT,               /* in the batch, behind the records */
    FINISH_KEPT,               /* among the images that a device keeps */
    FINISH_DECODED,            /* among those that it has decoded for batches to come */
    FINISH_PLACES,
};

/* The most channels that whoever finishes images need know. */
#define FINISH_CHANNELS_MAX 4

struct finish {
    int64_t at, stride;        /* the first pixel, in bytes from the place's beginning;
                                * bytes from row to row */
    int32_t place;
    int32_t blank;             /* there is no image: zeros come out */
    int32_t flip;
    int32_t h, w;              /* the size that... */
    struct box from;           /* ...this is resized to, counted from the first pixel that is there, which it
                                * may begin before; what is not there is not looked at */
    struct box window;         /* of the resized image: what comes out, black beyond its edges */
    struct box erased;         /* of what comes out: zeros; empty: h is 0 */
};

ANYWHERE int finish_resizes(const struct finish *finish)
{
    return finish->h != finish->from.h || finish->w != finish->from.w;
}

/* The part of `length` from `at` on that lies on 0..size. */
ANYWHERE struct reach finish_seen(int at, int length, int size)
{
    struct reach seen;
    seen.low = at < 0 ? 0 : at < size ? at : size;
    seen.high = at + length < seen.low ? seen.low : at + length < size ? at + length : size;
    return seen;
}

/* The source pixels that a stretch of outputs is made of, from the first to the last. */
ANYWHERE struct reach finish_reach(int size, int target, struct reach seen)
{
    struct reach reach = resample_pixels(size, target, seen.low);
    reach.high = resample_pixels(size, target, seen.high - 1).high;
    return reach;
}

ANYWHERE int finish_erases(const struct finish *finish, int y, int x)
{
    const struct box *box = &finish->erased;
    return y >= box->y && y < box->y + box->h && x >= box->x && x < box->x + box->w;
}

/* On a device a group of threads makes a tile of FINISH_ROWS x FINISH_COLUMNS of an image,
 * FINISH_TOGETHER rows at a time, with the weights for it and those rows' sums down the columns in memory
 * that the threads share. */
#define FINISH_ROWS 32
#define FINISH_COLUMNS 32
#define FINISH_TOGETHER 8
#define FINISH_SHARED_MOST (40 << 10)

/* The most sums that one row of a tile is made of. */
ANYWHERE int64_t finish_sums(int size, int target, int c)
{
    return c * (((FINISH_COLUMNS - 1) * (int64_t)size + resample_width(size, target)) / target + 2);
}

/* What an image takes of the shared memory; one that takes more than there is must not be left to
 * be resized. */
ANYWHERE int64_t finish_shared_bytes(const struct finish *finish, int c)
{
    if (!finish_resizes(finish)) return 0;
    int64_t across = FINISH_COLUMNS * (int64_t)(resample_most(finish->from.w, finish->w) + 2);
    int64_t down = FINISH_ROWS * (int64_t)(resample_most(finish->from.h, finish->h) + 2);
    return 4 * (across + down + FINISH_TOGETHER * finish_sums(finish->from.w, finish->w, c));
}

#endif
