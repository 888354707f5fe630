/* resample.h: the arithmetic of resizing, the same on every device to the bit: which source pixels make an
 * output pixel, with which weights, and in which order they are summed.
 *
 * Along an axis of `size` source pixels that is brought to `target`, output pixel i lies about
 * (i + 1/2) size / target, and a triangle of half width max(size / target, 1) weighs the source pixels.
 * Counted in 1 / (2 target) of a pixel, all of these are whole numbers. Sums are those of fp32 numbers,
 * first down the columns, then along the row that this makes; each operation rounds by itself. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/anywhere.h"

/* Pixels from `low` on to before `high`. */
struct pixel_range {
    int low, high;
};

ANYWHERE int64_t resample_width(int size, int target)
{
    return 2 * (int64_t)(size > target ? size : target);
}

/* The source pixels of output pixel i, at least one. */
ANYWHERE struct pixel_range resample_pixels(int size, int target, int i)
{
    int64_t middle = (2 * (int64_t)i + 1) * size + target, reach = resample_width(size, target);
    int64_t low = middle - reach, high = (middle + reach) / (2 * (int64_t)target);
    struct pixel_range pixels;
    pixels.low = low > 0 ? (int)(low / (2 * (int64_t)target)) : 0;
    pixels.high = high < size ? (int)high : size;
    return pixels;
}

/* The maximum number of them. */
ANYWHERE int resample_taps(int size, int target)
{
    return 2 * (size > target ? (size - 1) / target + 1 : 1) + 1;
}

ANYWHERE int64_t resample_share(int size, int target, int i, int k)
{
    int64_t distance = (2 * (int64_t)k + 1) * target - (2 * (int64_t)i + 1) * size;
    int64_t share = resample_width(size, target) - (distance < 0 ? -distance : distance);
    return share > 0 ? share : 0;
}

/* Their weights, which sum to one. */
ANYWHERE void resample_weights(int size, int target, int i, struct pixel_range pixels, float *weight)
{
    int64_t sum = 0;
    for (int k = pixels.low; k < pixels.high; k++) sum += resample_share(size, target, i, k);
    for (int k = pixels.low; k < pixels.high; k++)
        weight[k - pixels.low] = (float)resample_share(size, target, i, k) / (float)sum;
}

/* The weighted sum of `count` bytes of one column: the first, then pairs, then what is left. */
ANYWHERE float resample_down(const uint8_t *from, int64_t stride, const float *weight, int count)
{
    float sum = rounded_product(weight[0], (float)from[0]);
    int k = 1;
    for (from += stride; k + 1 < count; k += 2, from += 2 * stride) {
        float a = rounded_product(weight[k], (float)from[0]),
              b = rounded_product(weight[k + 1], (float)from[stride]);
        sum = rounded_sum(sum, rounded_sum(a, b));
    }
    return k < count ? rounded_sum(sum, rounded_product(weight[k], (float)from[0])) : sum;
}

/* The weighted sum of `count` such sums, c numbers apart, rounded to a byte. */
ANYWHERE uint8_t resample_across(const float *from, int c, const float *weight, int count)
{
    float sum = 0.5f;
    for (int i = 0; i < count; i++) sum = rounded_sum(sum, rounded_product(weight[i], from[i * c]));
    return (uint8_t)(int)sum;
}
