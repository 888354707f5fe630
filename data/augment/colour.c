#include "data/augment/colour.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/machine.h"
#include "data/augment/pixel.h"

static size_t pixels_of(const struct image *image) { return (size_t)image->h * (size_t)image->w; }

static size_t bytes_of(const struct image *image) { return pixels_of(image) * (size_t)image->c; }

/* Every byte of channel k becomes table[k][byte]. */
static void colour_look_up(struct image *image, uint8_t table[][256])
{
    size_t c = (size_t)image->c;
    for (size_t i = 0; i < pixels_of(image); i++)
        for (size_t k = 0; k < c; k++) image->pixels[i * c + k] = table[k][image->pixels[i * c + k]];
}

static void colour_look_up_all(struct image *image, const uint8_t table[256])
{
    for (size_t i = 0; i < bytes_of(image); i++) image->pixels[i] = table[image->pixels[i]];
}

static EVERY_MACHINE(void, blend_bytes, (uint8_t *pixels, size_t count, float factor, float rest,
                     float other), (pixels, count, factor, rest, other))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) pixels[i] = pixel_blend(factor, rest, pixels[i], other);
}

/* A blend with the same value everywhere. */
static void blend_with(struct image *image, double factor, float other)
{
    blend_bytes(image->pixels, bytes_of(image), (float)factor, (float)(1 - factor), other);
}

static EVERY_MACHINE(uint64_t, sum_grey, (const uint8_t *pixels, size_t count), (pixels, count))
{
    uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) sum += pixel_grey(pixels + 3 * i);
    return sum;
}

static uint64_t sum_bytes(const uint8_t *pixels, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += pixels[i];
    return sum;
}

/* Deep images have the range low to high in the place of 0 to 255, and are not clipped to it. */

static double deep_grey(const float *pixel, int c)
{
    return c == 3 ? 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2] : pixel[0];
}

static void blend_deep(struct image *image, double factor, double other)
{
    float *numbers = image_numbers(image);
    for (size_t i = 0; i < bytes_of(image); i++)
        numbers[i] = (float)(factor * numbers[i] + (1 - factor) * other);
}

static void contrast_deep(struct image *image, double factor)
{
    double sum = 0;
    for (size_t i = 0; i < pixels_of(image); i++)
        sum += deep_grey(image_numbers(image) + i * (size_t)image->c, image->c);
    blend_deep(image, factor, sum / (double)pixels_of(image));
}

static void saturate_deep(struct image *image, double factor)
{
    float *pixel = image_numbers(image);
    for (size_t i = 0; i < pixels_of(image); i++, pixel += 3) {
        double grey = deep_grey(pixel, 3);
        for (int k = 0; k < 3; k++) pixel[k] = (float)(factor * pixel[k] + (1 - factor) * grey);
    }
}

void colour_brightness(struct image *image, double factor)
{
    if (image->deep) blend_deep(image, factor, image->low);
    else blend_with(image, factor, 0);
}

void colour_contrast(struct image *image, double factor)
{
    uint64_t sum;
    if (image->deep) {
        contrast_deep(image, factor);
        return;
    }
    sum = (image->c == 3 ? sum_grey : sum_bytes)(image->pixels, pixels_of(image));
    blend_with(image, factor, (float)((double)sum / (double)pixels_of(image)));
}

static EVERY_MACHINE(void, colour_saturate, (uint8_t *pixels, size_t count, float factor, float rest),
                     (pixels, count, factor, rest))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        uint8_t *pixel = pixels + 3 * i;
        float grey = pixel_grey(pixel);
        for (int k = 0; k < 3; k++) pixel[k] = pixel_blend(factor, rest, pixel[k], grey);
    }
}

void colour_saturation(struct image *image, double factor)
{
    if (image->c == 3 && image->deep) saturate_deep(image, factor);
    else if (image->c == 3)
        colour_saturate(image->pixels, pixels_of(image), (float)factor, (float)(1 - factor));
}

void colour_hue(struct image *image, double turn)
{
    size_t count = image->c == 3 ? pixels_of(image) : 0;
    for (size_t i = 0; i < count; i++) pixel_turn_hue(image->pixels + 3 * i, (float)turn);
}

void colour_posterize(struct image *image, int bits)
{
    for (size_t i = 0; i < bytes_of(image); i++) image->pixels[i] = pixel_posterized(image->pixels[i], bits);
}

void colour_solarize(struct image *image, double threshold)
{
    uint8_t table[256];
    for (int x = 0; x < 256; x++) table[x] = pixel_solarized((uint8_t)x, threshold);
    colour_look_up_all(image, table);
}

/* Numbers below the range stay as they are. */
static void gamma_deep(struct image *image, double gamma)
{
    float *numbers = image_numbers(image);
    double low = image->low, width = image->high - low;
    for (size_t i = 0; i < bytes_of(image); i++)
        if (numbers[i] > low) numbers[i] = (float)(low + width * pow((numbers[i] - low) / width, gamma));
}

void colour_gamma_table(double gamma, uint8_t table[256])
{
    for (int x = 0; x < 256; x++) table[x] = pixel_byte((float)(pow(x / 255.0, gamma) * (256 - 1e-3)));
}

void colour_gamma(struct image *image, double gamma)
{
    uint8_t table[256];
    if (image->deep) {
        gamma_deep(image, gamma);
        return;
    }
    colour_gamma_table(gamma, table);
    colour_look_up_all(image, table);
}

static void count_values(const struct image *image, int64_t counts[][256])
{
    memset(counts, 0, (size_t)image->c * sizeof *counts);
    size_t c = (size_t)image->c;
    for (size_t i = 0; i < pixels_of(image); i++)
        for (size_t k = 0; k < c; k++) counts[k][image->pixels[i * c + k]]++;
}

void colour_autocontrast(struct image *image)
{
    int64_t counts[4][256];
    uint8_t table[4][256];
    count_values(image, counts);
    for (int k = 0; k < image->c; k++) pixel_stretch(counts[k], table[k]);
    colour_look_up(image, table);
}

void colour_equalize(struct image *image)
{
    int64_t counts[4][256];
    uint8_t table[4][256];
    count_values(image, counts);
    for (int k = 0; k < image->c; k++) pixel_flatten(counts[k], table[k]);
    colour_look_up(image, table);
}

/* Row y, between two others; a pixel on either side stays. */
static EVERY_MACHINE(void, sharpen_row, (const struct image *image, int y, float factor, float rest,
                     uint8_t *restrict to), (image, y, factor, rest, to))
{
    int c = image->c, bytes = image->w * c;
    ptrdiff_t stride = bytes;
    const uint8_t *row = image->pixels + y * stride;
    const uint8_t *above = row - stride, *below = row + stride;
#pragma omp simd
    for (int i = c; i < bytes - c; i++)
        to[i] = pixel_sharpened(above + i, row + i, below + i, c, factor, rest);
}

bool colour_sharpness(struct image *image, double factor, struct image *copy, struct reason *reason)
{
    if (image->h <= 2 || image->w <= 2) return true;
    if (!image_resize_buffer(copy, image->h, image->w, image->c, reason)) return false;
    memcpy(copy->pixels, image->pixels, bytes_of(image));
    size_t bytes = (size_t)image->w * (size_t)image->c;
    for (int y = 1; y < image->h - 1; y++)
        sharpen_row(copy, y, (float)factor, (float)(1 - factor), image->pixels + (size_t)y * bytes);
    return true;
}

#define BLUR_PASSES 3

/* The box of which so many passes have the variance of the Gaussian: of 2 whole + 1 pixels, and a fraction of
 * the two beyond. In float where PIL rounds to it. */
void colour_blur_weights(double deviation, uint32_t weights[3])
{
    float radius = (float)deviation;
    double variance = radius * radius / BLUR_PASSES, length = (float)sqrt(12.0 * variance + 1.0);
    float whole = (float)floor((length - 1.0) / 2.0), edge;
    edge = (float)((2 * whole + 1) * (whole * (whole + 1) - 3 * variance));
    edge = (float)(edge / (6 * (variance - (whole + 1) * (whole + 1))));
    uint32_t one = UINT32_C(1) << 24, inside = (uint32_t)((float)one / ((whole + edge) * 2 + 1));
    uint32_t outside = (one - (uint32_t)(2 * (int)whole + 1) * inside) / 2;
    assert(whole == 0 || whole == 1);
    weights[0] = inside;
    weights[1] = whole == 1 ? inside : outside;
    weights[2] = whole == 1 ? outside : 0;
}

/* Rows of `count` bytes: those two before the result's, one before, its own, one and two behind. */
struct blurred {
    const uint8_t *from[5];
    uint8_t *to;
    size_t count;
};

static EVERY_MACHINE(void, blur_bytes, (const uint32_t weights[3], const struct blurred *part),
                     (weights, part))
{
    const uint32_t own[3] = {weights[0], weights[1], weights[2]};
    const uint8_t *a = part->from[0], *b = part->from[1], *c = part->from[2], *d = part->from[3];
    const uint8_t *e = part->from[4];
    uint8_t *restrict to = part->to;
#pragma omp simd
    for (size_t i = 0; i < part->count; i++) to[i] = pixel_softened(own, a[i], b[i], c[i], d[i], e[i]);
}

static void blur_down(const uint32_t weights[3], const struct image *from, struct image *to)
{
    size_t stride = (size_t)from->w * (size_t)from->c;
    for (int y = 0; y < from->h; y++) {
        struct blurred row = {.to = to->pixels + (size_t)y * stride, .count = stride};
        for (int k = 0; k < 5; k++)
            row.from[k] = from->pixels + (size_t)pixel_near(y + k - 2, from->h) * stride;
        blur_bytes(weights, &row);
    }
}

/* All pixels that have two neighbours on either side at once, the others one by one. */
static void blur_row(const uint32_t weights[3], const struct image *image, const uint8_t *from, uint8_t *to)
{
    int w = image->w;
    size_t c = (size_t)image->c;
    for (int x = 0, count; x < w; x += count) {
        count = x == 2 && w > 4 ? w - 4 : 1;
        struct blurred part = {.to = to + (size_t)x * c, .count = (size_t)count * c};
        for (int k = 0; k < 5; k++) part.from[k] = from + (size_t)pixel_near(x + k - 2, w) * c;
        blur_bytes(weights, &part);
    }
}

static void blur_across(const uint32_t weights[3], const struct image *from, struct image *to)
{
    size_t stride = (size_t)from->w * (size_t)from->c;
    for (int y = 0; y < from->h; y++)
        blur_row(weights, from, from->pixels + (size_t)y * stride, to->pixels + (size_t)y * stride);
}

bool colour_blur(struct image *image, double radius, struct image *copy, struct reason *reason)
{
    assert(radius >= 0 && radius <= BLUR_MAX);
    uint32_t weights[3];
    colour_blur_weights(radius, weights);
    struct image *turn[2] = {image, copy};
    if (!image_resize_buffer(copy, image->h, image->w, image->c, reason)) return false;
    for (int i = 0; i < 2 * BLUR_PASSES; i++)
        (i < BLUR_PASSES ? blur_across : blur_down)(weights, turn[i % 2], turn[(i + 1) % 2]);
    return true;
}
