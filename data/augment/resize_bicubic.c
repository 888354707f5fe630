/* resize_bicubic.c: antialiased bicubic resampling, to the bit as Pillow has it for bytes: weights are whole
 * multiples of 2^-22, rows are resized first, and the result of either pass is rounded and clamped to a byte,
 * without which overshoot at edges would differ by more than a level. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"
#include "data/augment/resize_parts.h"

#define WEIGHT_BITS 22
#define HALF (1 << (WEIGHT_BITS - 1))

/* Keys, Cubic convolution interpolation for digital image processing (1981), with a = -1/2. */
static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* An axis of `size` pixels that is brought to `target`: its filter is widened by `wide`, 1 at least. */
struct axis {
    double scale, wide;
    int size;
};

static struct axis axis_of(int size, int target)
{
    double scale = (double)size / target;
    return (struct axis){scale, scale < 1 ? 1 : scale, size};
}

static struct pixel_range axis_pixels(const struct axis *axis, int i)
{
    double centre = (i + 0.5) * axis->scale, reach = 2 * axis->wide;
    int low = (int)(centre - reach + 0.5), high = (int)(centre + reach + 0.5);
    return (struct pixel_range){low < 0 ? 0 : low, high > axis->size ? axis->size : high};
}

struct pixel_range bicubic_pixels(int size, int target, int i)
{
    struct axis axis = axis_of(size, target);
    return axis_pixels(&axis, i);
}

/* Outputs from..from + count of an axis: weight[i * most .. + count[i]] for source pixels first[i] onward. */
struct taps {
    int most;
    int *first, *count;
    int32_t *weight;
};

static void taps_make(int size, int target, int from, int count, struct taps *taps)
{
    struct axis axis = axis_of(size, target);
    taps->most = 2 * (int)ceil(2 * axis.wide) + 1;
    taps->first = memory_new((size_t)count, sizeof *taps->first);
    taps->count = memory_new((size_t)count, sizeof *taps->count);
    taps->weight = memory_new((size_t)count * (size_t)taps->most, sizeof *taps->weight);
    double *exact = memory_new((size_t)taps->most, sizeof *exact);
    for (int i = 0; i < count; i++) {
        struct pixel_range pixels = axis_pixels(&axis, from + i);
        double centre = (from + i + 0.5) * axis.scale, sum = 0;
        int32_t *weight = taps->weight + (size_t)i * (size_t)taps->most;
        taps->first[i] = pixels.low;
        taps->count[i] = pixels.high - pixels.low;
        for (int k = 0; k < taps->count[i]; k++)
            sum += exact[k] = bicubic((k + pixels.low - centre + 0.5) * (1 / axis.wide));
        for (int k = 0; k < taps->count[i]; k++) {
            double whole = exact[k] / sum * (1 << WEIGHT_BITS);
            weight[k] = (int32_t)(whole < 0 ? whole - 0.5 : whole + 0.5);
        }
    }
    free(exact);
}

static void taps_free(struct taps *taps)
{
    free(taps->first);
    free(taps->count);
    free(taps->weight);
}

INLINE uint8_t byte_of(int32_t sum)
{
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

INLINE void across_any(const uint8_t *row, const struct taps *taps, int count, int c, uint8_t *to)
{
    for (int x = 0; x < count; x++)
        for (int k = 0; k < c; k++) {
            const int32_t *weight = taps->weight + (size_t)x * (size_t)taps->most;
            const uint8_t *from = row + taps->first[x] * c + k;
            int32_t sum = HALF;
            for (int i = 0; i < taps->count[x]; i++) sum += weight[i] * from[i * c];
            to[x * c + k] = byte_of(sum);
        }
}

/* Three channels in vectors of four: the fourth lane reads a byte of the next pixel, and is left out. */
INLINE void across_rgb(const uint8_t *row, const struct taps *taps, int count, uint8_t *to)
{
    typedef int32_t four __attribute__((vector_size(16)));
    typedef uint8_t bytes __attribute__((vector_size(4)));
    for (int x = 0; x < count; x++, to += 3) {
        const int32_t *weight = taps->weight + (size_t)x * (size_t)taps->most;
        const uint8_t *from = row + 3 * taps->first[x];
        four sum = {HALF, HALF, HALF, HALF};
        for (int i = 0; i < taps->count[x]; i++) {
            bytes pixel;
            memcpy(&pixel, from + 3 * i, sizeof pixel);
            sum += weight[i] * __builtin_convertvector(pixel, four);
        }
        for (int k = 0; k < 3; k++) to[k] = byte_of(sum[k]);
    }
}

static EVERY_MACHINE(void, bicubic_across, (const uint8_t *row, const struct taps *taps, int count, int c,
                     uint8_t *restrict to), (row, taps, count, c, to))
{
    if (c == 3) across_rgb(row, taps, count, to);
    else if (c == 1) across_any(row, taps, count, 1, to);
    else across_any(row, taps, count, c, to);
}

/* `count` rows of `bytes` bytes, one below another. */
static EVERY_MACHINE(void, bicubic_down, (const uint8_t *top, size_t bytes, const int32_t *weight, int count,
                     int32_t *restrict sums, uint8_t *restrict to), (top, bytes, weight, count, sums, to))
{
    for (size_t i = 0; i < bytes; i++) sums[i] = HALF;
    for (int k = 0; k < count; k++, top += bytes) {
        int32_t w = weight[k];
#pragma omp simd
        for (size_t i = 0; i < bytes; i++) sums[i] += w * top[i];
    }
#pragma omp simd
    for (size_t i = 0; i < bytes; i++) to[i] = byte_of(sums[i]);
}

/* Floats with the same weights, neither rounded nor clamped. */
static void bicubic_deep(const struct image *source, const struct resizing *resizing, const struct taps *down,
                         const struct taps *across, struct image *target)
{
    struct box from = resizing->from, window = resizing->window, reach = resize_reach(resizing);
    size_t c = (size_t)source->c, stride = (size_t)source->w * c, wide = (size_t)window.w * c;
    const float *pixels = image_numbers(source) + (size_t)(reach.y - source->top) * stride +
                          (size_t)(reach.x - source->left) * c;
    double *rows = memory_new((size_t)reach.h * wide, sizeof *rows);
    for (size_t i = 0; i < (size_t)reach.h * wide; i++) {
        size_t x = i % wide / c;
        const float *at = pixels + i / wide * stride + (size_t)across->first[x] * c + i % c;
        for (int k = 0; k < across->count[x]; k++)
            rows[i] += across->weight[x * (size_t)across->most + (size_t)k] * (double)at[(size_t)k * c];
    }
    for (size_t i = 0; i < (size_t)window.h * wide; i++) {
        size_t y = i / wide;
        const double *at = rows + (size_t)(from.y + down->first[y] - reach.y) * wide + i % wide;
        double sum = 0;
        for (int k = 0; k < down->count[y]; k++)
            sum += down->weight[y * (size_t)down->most + (size_t)k] * at[(size_t)k * wide];
        image_numbers(target)[i] = (float)(sum / ((double)(1 << WEIGHT_BITS) * (1 << WEIGHT_BITS)));
    }
    free(rows);
}

static void bicubic_bytes(const struct image *source, const struct resizing *resizing,
                          const struct taps *down, const struct taps *across, struct image *target)
{
    struct box from = resizing->from, window = resizing->window, reach = resize_reach(resizing);
    size_t c = (size_t)source->c, stride = (size_t)source->w * c, bytes = (size_t)window.w * c;
    const uint8_t *pixels = source->pixels + (size_t)(reach.y - source->top) * stride +
                            (size_t)(reach.x - source->left) * c;
    uint8_t *row = memory_new((size_t)reach.w * c + 1, 1);
    uint8_t *rows = memory_new((size_t)reach.h, bytes);
    int32_t *sums = memory_new(bytes, sizeof *sums);
    for (int y = 0; y < reach.h; y++) {
        memcpy(row, pixels + (size_t)y * stride, (size_t)reach.w * c);
        bicubic_across(row, across, window.w, source->c, rows + (size_t)y * bytes);
    }
    for (int y = 0; y < window.h; y++)
        bicubic_down(rows + (size_t)(from.y + down->first[y] - reach.y) * bytes, bytes,
                     down->weight + (size_t)y * (size_t)down->most, down->count[y], sums,
                     target->pixels + (size_t)y * bytes);
    free(row);
    free(rows);
    free(sums);
}

void bicubic_resize(const struct image *source, const struct resizing *resizing, struct image *target)
{
    struct box from = resizing->from, window = resizing->window, reach = resize_reach(resizing);
    struct taps down, across;
    taps_make(from.h, resizing->h, window.y, window.h, &down);
    taps_make(from.w, resizing->w, window.x, window.w, &across);
    for (int x = 0; x < window.w; x++) across.first[x] -= reach.x - from.x;
    (source->deep ? bicubic_deep : bicubic_bytes)(source, resizing, &down, &across, target);
    taps_free(&down);
    taps_free(&across);
}
