#include "data/augment/resize_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"

/* The source pixels that make an output pixel: weight[i * most .. + count[i]] for first[i] onward; the
 * weights after those are zeros. */
struct taps {
    int most, longest;         /* allocated weights per output; the largest count */
    int *first, *count;
    float *weight;
};

/* For outputs from..from + count of an axis. */
static void taps_make(int size, int target, int from, int count, struct taps *taps)
{
    taps->most = resample_taps(size, target);
    taps->longest = 0;
    taps->first = memory_new((size_t)count, sizeof *taps->first);
    taps->count = memory_new((size_t)count, sizeof *taps->count);
    taps->weight = memory_new((size_t)count * (size_t)taps->most, sizeof *taps->weight);
    for (int i = 0; i < count; i++) {
        struct pixel_range pixels = resample_pixels(size, target, from + i);
        resample_weights(size, target, from + i, pixels, taps->weight + (size_t)i * (size_t)taps->most);
        taps->first[i] = pixels.low;
        taps->count[i] = pixels.high - pixels.low;
        if (taps->count[i] > taps->longest) taps->longest = taps->count[i];
    }
}

static void taps_free(struct taps *taps)
{
    free(taps->first);
    free(taps->count);
    free(taps->weight);
}

/* resample_down for one output row, still at the source's width. */
static EVERY_MACHINE(void, sum_rows, (const uint8_t *top, size_t stride, const float *weight, int count,
                     int bytes, float *restrict sum), (top, stride, weight, count, bytes, sum))
{
    float only = weight[0];
#pragma omp simd
    for (int i = 0; i < bytes; i++) sum[i] = only * (float)top[i];
    for (int k = 1; k + 1 < count; k += 2) {
        const uint8_t *a = top + (size_t)k * stride, *b = a + stride;
        float wa = weight[k], wb = weight[k + 1];
#pragma omp simd
        for (int i = 0; i < bytes; i++) sum[i] += wa * (float)a[i] + wb * (float)b[i];
    }
    if (count > 1 && count % 2 == 0) {
        const uint8_t *last = top + (size_t)(count - 1) * stride;
        float w = weight[count - 1];
#pragma omp simd
        for (int i = 0; i < bytes; i++) sum[i] += w * (float)last[i];
    }
}

/* resample_across for one output row, up to where it is made a byte. */
INLINE void sum_columns_any(const float *row, const struct taps *taps, int count, int c, float *sums)
{
    for (int x = 0; x < count; x++) {
        const float *weight = taps->weight + (size_t)x * (size_t)taps->most;
        const float *from = row + taps->first[x] * c;
        for (int k = 0; k < c; k++) {
            float sum = 0.5f;
            for (int i = 0; i < taps->count[x]; i++) sum += weight[i] * from[i * c + k];
            sums[x * c + k] = sum;
        }
    }
}

#define FOUR float __attribute__((vector_size(16)))

/* Three channels in vectors of four: the fourth lane reads on into the next pixel, and what it makes
 * is written over by that. Every output takes the same number of taps, which branches foresee better;
 * what that reads beyond the row's end is zeros. `sums` has room for one number more. */
INLINE void sum_columns_rgb(const float *row, const struct taps *taps, int length, int count, float *sums)
{
    for (int x = 0; x < count; x++) {
        const float *weight = taps->weight + (size_t)x * (size_t)taps->most;
        const float *from = row + 3 * taps->first[x];
        FOUR sum = {0.5f, 0.5f, 0.5f, 0.5f};
        for (int i = 0; i < length; i++) {
            FOUR pixel, w = {weight[i], weight[i], weight[i], weight[i]};
            memcpy(&pixel, from + 3 * i, sizeof pixel);
            sum += w * pixel;
        }
        memcpy(sums + 3 * x, &sum, sizeof sum);
    }
}

static EVERY_MACHINE(void, sum_columns, (const float *row, const struct taps *taps, int count, int c,
                     float *restrict sums, uint8_t *restrict to), (row, taps, count, c, sums, to))
{
    if (c == 3 && taps->longest == 2)
        sum_columns_rgb(row, taps, 2, count, sums);
    else if (c == 3 && taps->longest == 3)
        sum_columns_rgb(row, taps, 3, count, sums);
    else if (c == 3)
        sum_columns_rgb(row, taps, taps->longest, count, sums);
    else if (c == 1)
        sum_columns_any(row, taps, count, 1, sums);
    else
        sum_columns_any(row, taps, count, c, sums);
#pragma omp simd
    for (int i = 0; i < count * c; i++) to[i] = (uint8_t)(int)sums[i];
}

/* Sums of rows of floats, which are not rounded to bytes. */
static EVERY_MACHINE(void, sum_rows_deep, (const float *top, size_t stride, const float *weight, int count,
                     int numbers, float *restrict sum), (top, stride, weight, count, numbers, sum))
{
    for (int i = 0; i < numbers; i++) sum[i] = weight[0] * top[i];
    for (int k = 1; k < count; k++)
        for (int i = 0; i < numbers; i++) sum[i] += weight[k] * top[(size_t)k * stride + (size_t)i];
}

static void sum_columns_deep(const float *row, const struct taps *taps, int count, int c, float *to)
{
    for (int x = 0; x < count; x++) {
        const float *weight = taps->weight + (size_t)x * (size_t)taps->most;
        const float *from = row + taps->first[x] * c;
        for (int k = 0; k < c; k++) {
            float sum = 0;
            for (int i = 0; i < taps->count[x]; i++) sum += weight[i] * from[i * c + k];
            *to++ = sum;
        }
    }
}

struct box resize_reach(const struct resizing *r)
{
    const struct box *from = &r->from, *window = &r->window;
    struct pixel_range (*pixels)(int size, int target, int i) =
        r->interpolation == RESIZE_BICUBIC ? bicubic_pixels : resample_pixels;
    int top = pixels(from->h, r->h, window->y).low;
    int left = pixels(from->w, r->w, window->x).low;
    int bottom = pixels(from->h, r->h, window->y + window->h - 1).high;
    int right = pixels(from->w, r->w, window->x + window->w - 1).high;
    return (struct box){.y = from->y + top, .x = from->x + left, .h = bottom - top, .w = right - left};
}

bool resize_image(const struct image *source, const struct resizing *resizing, struct image *target,
                  struct reason *reason)
{
    struct box from = resizing->from, window = resizing->window;
    bool deep = source->deep;
    bool room = deep ? image_resize_deep(target, window.h, window.w, source->c, source->low, source->high,
                                         reason)
                     : image_resize_buffer(target, window.h, window.w, source->c, reason);
    if (!room) return false;
    if (resizing->interpolation == RESIZE_BICUBIC) return bicubic_resize(source, resizing, target), true;
    struct box reach = resize_reach(resizing);
    struct taps down, across;
    taps_make(from.h, resizing->h, window.y, window.h, &down);
    taps_make(from.w, resizing->w, window.x, window.w, &across);
    for (int x = 0; x < window.w; x++) across.first[x] -= reach.x - from.x;
    size_t c = (size_t)source->c, stride = (size_t)source->w * c;
    size_t begin = (size_t)(reach.x - source->left) * c;
    float *row = memory_new(((size_t)reach.w + (size_t)across.longest) * c + 4, sizeof *row);
    float *sums = memory_new((size_t)window.w * c + 1, sizeof *sums);
    for (int y = 0; y < window.h; y++) {
        size_t first = (size_t)(from.y + down.first[y] - source->top);
        size_t from_at = begin + first * stride, to_at = (size_t)y * (size_t)window.w * c;
        const float *weight = down.weight + (size_t)y * (size_t)down.most;
        if (deep) {
            sum_rows_deep(image_numbers(source) + from_at, stride, weight, down.count[y],
                          reach.w * source->c, row);
            sum_columns_deep(row, &across, window.w, source->c, image_numbers(target) + to_at);
        } else {
            sum_rows(source->pixels + from_at, stride, weight, down.count[y], reach.w * source->c, row);
            sum_columns(row, &across, window.w, source->c, sums, target->pixels + to_at);
        }
    }
    free(row);
    free(sums);
    taps_free(&down);
    taps_free(&across);
    return true;
}
