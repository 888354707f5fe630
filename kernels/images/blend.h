/* blend.h: classes of an image of any size from the logits of overlapping tiles: the places of tiles, and the
 * blending of their probabilities by a Gaussian window, in a band of rows. Not an op: it is queued behind the
 * evaluation of a batch of tiles. */
#pragma once

#include <math.h>

#include "base/anywhere.h"
#include "base/status.h"
#include "data/image/image.h"
#include "device/device.h"

/* The number of tiles along an axis: evenly spaced, in steps of at most tile * (1 - overlap) pixels. */
int blend_count(int length, int tile, double overlap);

/* The first pixel of tile `i` of `count`. A single tile has the image in its middle. */
ANYWHERE int blend_position(int length, int tile, int count, int i)
{
    if (count == 1) return (length - tile) / 2;
    return (int)((int64_t)(length - tile) * i / (count - 1));
}

/* The pixel at `i`, where the image is reflected at its edges, which are not repeated, as often as needed. */
ANYWHERE int blend_reflect(int i, int length)
{
    int period = 2 * (length - 1);
    if (length == 1) return 0;
    i = (i % period + period) % period;
    return i < length ? i : period - i;
}

/* The window along one axis of a tile: a Gaussian of sigma tile / 8. That of a pixel is the product of both,
 * but at least BLEND_LEAST, of 1 in the middle. */
#define BLEND_LEAST 0.001f
void blend_window(int tile, float *window);

ANYWHERE float blend_weight(float down, float across)
{
    float weight = rounded_product(down, across);
    return weight > BLEND_LEAST ? weight : BLEND_LEAST;
}

/* The pixel, of `from`, that is nearest to pixel `i` of `to`. */
ANYWHERE int blend_nearest(int i, int to, int from)
{
    return (int)((2 * (int64_t)i + 1) * from / (2 * (int64_t)to));
}

/* Weighted sums of probabilities: row y of the image is row y % rows of the band, which has the w columns of
 * the image from x on. Tiles of a row of tiles are added one after another, so that sums have a fixed order;
 * rows are finished, then cleared, before others take their place. All pointers are device memory. */
struct blend_band {
    float *sums;                 /* [rows][w][classes] */
    int rows, x, w, classes;
};

struct blend_tile {
    struct blend_band band;
    const float *logits;         /* [h][w][classes] */
    const float *down, *across;  /* windows: [h], [w] */
    int h, w;                    /* of the tile */
    int y, x;                    /* its place in the image, ... */
    int image_h, image_w;        /* ... beyond which nothing is added */
    bool mirrored;               /* the network saw it mirrored */
};

/* A part of the result, whose pixels are the nearest ones of the image. Its rows are complete in the band. */
struct blend_part {
    struct blend_band band;
    int image_h, image_w;        /* of the image that was tiled */
    int h, w;                    /* of the result */
    struct box box;              /* of the result */
    const uint8_t *truth;        /* [box.h][box.w] true classes; classes and above do not count; NULL: none */
    uint8_t *best;               /* [box.h][box.w] the most probable class, the first of equal ones */
    float *probabilities;        /* [box.h][box.w][classes], or NULL */
    double *losses;              /* [box.h] sums of -log p[truth]; NAN: not all probabilities are finite */
};

struct blend_code {
    enum status (*add)(struct device *device, void *stream, const struct blend_tile *tile);
    enum status (*finish)(struct device *device, void *stream, const struct blend_part *part);
};

extern const struct blend_code blend_cpu, blend_cuda;

/* Arithmetic that the code on every device shares. */

ANYWHERE float *blend_pixel(const struct blend_band *band, int y, int x)
{
    return band->sums + ((int64_t)(y % band->rows) * band->w + (x - band->x)) * band->classes;
}

/* The sums of the image's pixel which the network saw as this one of the tile; NULL: nothing is added. */
ANYWHERE float *blend_target(const struct blend_tile *tile, int row, int column)
{
    int y = tile->y + row, x = tile->x + (tile->mirrored ? tile->w - 1 - column : column);
    if (y < 0 || y >= tile->image_h || x < 0 || x >= tile->image_w) return NULL;
    if (x < tile->band.x || x >= tile->band.x + tile->band.w) return NULL;
    return blend_pixel(&tile->band, y, x);
}

/* Replaces the logits of such a pixel by its weighted probabilities. */
ANYWHERE void blend_weigh(const struct blend_tile *tile, int row, int column, float *numbers)
{
    int classes = tile->band.classes, to = tile->mirrored ? tile->w - 1 - column : column;
    float most = numbers[0], sum = 0;
    for (int c = 1; c < classes; c++) most = numbers[c] > most ? numbers[c] : most;
    for (int c = 0; c < classes; c++) sum += numbers[c] = expf(numbers[c] - most);
    float factor = blend_weight(tile->down[row], tile->across[to]) / sum;
    for (int c = 0; c < classes; c++) numbers[c] = rounded_product(factor, numbers[c]);
}

/* The smallest probability that a loss is computed of: exponentials end there. */
#define BLEND_SMALLEST 1.17549435e-38f

/* Writes a pixel of a part, and returns its loss. */
ANYWHERE float blend_finish_pixel(const struct blend_part *part, int row, int column)
{
    int y = blend_nearest(part->box.y + row, part->h, part->image_h);
    int x = blend_nearest(part->box.x + column, part->w, part->image_w);
    const float *sums = blend_pixel(&part->band, y, x);
    int64_t at = (int64_t)row * part->box.w + column;
    int classes = part->band.classes, best = 0;
    float sum = 0;
    for (int c = 0; c < classes; c++) sum += sums[c];
    for (int c = 1; c < classes; c++) best = sums[c] > sums[best] ? c : best;
    part->best[at] = (uint8_t)best;
    for (int c = 0; c < classes && part->probabilities; c++)
        part->probabilities[at * classes + c] = sums[c] / sum;
    if (!isfinite(sum)) return sum - sum;
    if (!part->truth || part->truth[at] >= classes) return 0;
    return -logf(fmaxf(sums[part->truth[at]] / sum, BLEND_SMALLEST));
}
