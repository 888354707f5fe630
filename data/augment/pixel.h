/* pixel.h: the arithmetic of changes to bytes, for every device; each operation rounds by itself (nvcc:
 * -fmad=false). */
#pragma once

#include <math.h>
#include <stdint.h>

#include "base/anywhere.h"

ANYWHERE uint8_t pixel_byte(float value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* factor * x + (1 - factor) * other */
ANYWHERE uint8_t pixel_blend(float factor, float rest, uint8_t x, float other)
{
    return pixel_byte(factor * (float)x + rest * other);
}

ANYWHERE uint8_t pixel_grey(const uint8_t *rgb)
{
    return (uint8_t)(0.2989f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2]);
}

/* Hue in 0..1, after A. R. Smith's hexcone model (SIGGRAPH 1978). */
ANYWHERE float pixel_hue(const float rgb[3], float most, float range)
{
    float red = (most - rgb[0]) / range, green = (most - rgb[1]) / range, blue = (most - rgb[2]) / range;
    float hue = most == rgb[0] ? blue - green : most == rgb[1] ? 2 + red - blue : 4 + green - red;
    return fmodf(hue / 6 + 1, 1);
}

ANYWHERE void pixel_turn_hue(uint8_t *pixel, float turn)
{
    float rgb[3] = {pixel[0] / 255.0f, pixel[1] / 255.0f, pixel[2] / 255.0f};
    float most = fmaxf(rgb[0], fmaxf(rgb[1], rgb[2])), least = fminf(rgb[0], fminf(rgb[1], rgb[2]));
    float range = most - least;
    if (range == 0) return;
    float hue = fmodf(pixel_hue(rgb, most, range) + turn + 1, 1) * 6, part = hue - floorf(hue);
    float saturation = range / most;
    float low = most * (1 - saturation), falling = most * (1 - saturation * part);
    float rising = most * (1 - saturation * (1 - part));
    const float sixths[6][3] = {{most, rising, low}, {falling, most, low}, {low, most, rising},
                                {low, falling, most}, {rising, low, most}, {most, low, falling}};
    const float *turned = sixths[(int)hue % 6];
    for (int k = 0; k < 3; k++) pixel[k] = pixel_byte(turned[k] * (256 - 1e-3f));
}

ANYWHERE uint8_t pixel_posterized(uint8_t x, int bits)
{
    return (uint8_t)(x & 0xff00 >> bits);
}

ANYWHERE uint8_t pixel_solarized(uint8_t x, double threshold)
{
    return (uint8_t)(x >= threshold ? 255 - x : x);
}

/* The table that stretches the values that are counted to 0..255. */
ANYWHERE void pixel_stretch(const int64_t counts[256], uint8_t table[256])
{
    int low = 0, high = 255;
    while (!counts[low]) low++;
    while (!counts[high]) high--;
    float scale = low < high ? 255.0f / (float)(high - low) : 1;
    float from = low < high ? (float)low : 0;
    for (int x = 0; x < 256; x++) table[x] = pixel_byte(((float)x - from) * scale);
}

/* PIL's equalize: what lies below a value, in steps of 1/255 of all but the brightest. */
ANYWHERE void pixel_flatten(const int64_t counts[256], uint8_t table[256])
{
    int high = 255;
    int64_t sum = 0;
    while (!counts[high]) high--;
    for (int x = 0; x < high; x++) sum += counts[x];
    int64_t step = sum / 255, below = step / 2;
    for (int x = 0; x < 256; x++) {
        int64_t value = step ? below / step : x;
        table[x] = (uint8_t)(value < 255 ? value : 255);
        below += counts[x];
    }
}

/* A number from the middle one of three rows, c numbers a pixel, away from its surroundings. */
ANYWHERE uint8_t pixel_sharpened(const uint8_t *above, const uint8_t *row, const uint8_t *below, int c,
                                 float factor, float rest)
{
    int ring = above[-c] + above[0] + above[c] + row[-c] + row[c] + below[-c] + below[0] + below[c];
    float blurred = (float)((2 * (ring + 5 * row[0]) + 13) / 26);      /* rounded to the nearest */
    return pixel_blend(factor, rest, row[0], blurred);
}

/* Five numbers in a line by a symmetric filter: the weights of the middle one, its neighbours and theirs,
 * times 2^24. */
ANYWHERE uint8_t pixel_softened(const uint32_t weights[3], uint8_t a, uint8_t b, uint8_t c, uint8_t d,
                                uint8_t e)
{
    uint32_t sum = weights[0] * c + weights[1] * ((uint32_t)b + d) + weights[2] * ((uint32_t)a + e);
    return (uint8_t)((sum + (UINT32_C(1) << 23)) >> 24);
}

/* The place of a pixel beyond the edges, reflected. */
ANYWHERE int pixel_mirrored(int i, int size)
{
    if (size == 1) return 0;
    while (i < 0 || i >= size) i = i < 0 ? -i : 2 * size - 2 - i;
    return i;
}

ANYWHERE int pixel_near(int i, int size)
{
    return i < 0 ? 0 : i < size ? i : size - 1;
}

/* The pixel whose square holds a place; -1: outside. */
ANYWHERE int pixel_under(double place, int size)
{
    return place >= 0 && place < size ? (int)place : -1;
}
