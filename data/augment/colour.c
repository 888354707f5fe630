#include "data/augment/colour.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/machine.h"

static size_t pixels_of(const struct image *image) { return (size_t)image->h * (size_t)image->w; }

static size_t bytes_of(const struct image *image) { return pixels_of(image) * (size_t)image->c; }

static inline uint8_t byte_of(float value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

/* factor * x + (1 - factor) * other */
static inline uint8_t colour_blend(float factor, float rest, uint8_t x, float other)
{
    return byte_of(factor * (float)x + rest * other);
}

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

/* A blend with the same value everywhere. */
static void blend_with(struct image *image, double factor, float other)
{
    uint8_t table[256];
    for (int x = 0; x < 256; x++)
        table[x] = colour_blend((float)factor, (float)(1 - factor), (uint8_t)x, other);
    colour_look_up_all(image, table);
}

static inline uint8_t grey_of(const uint8_t *pixel)
{
    return (uint8_t)(0.2989f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2]);
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
    uint64_t sum = 0;
    if (image->deep) {
        contrast_deep(image, factor);
        return;
    }
    for (size_t i = 0; i < pixels_of(image); i++)
        sum += image->c == 3 ? grey_of(image->pixels + 3 * i) : image->pixels[i];
    blend_with(image, factor, (float)((double)sum / (double)pixels_of(image)));
}

static EVERY_MACHINE(void, colour_saturate, (uint8_t *pixels, size_t count, float factor, float rest),
                     (pixels, count, factor, rest))
{
    for (size_t i = 0; i < count; i++, pixels += 3) {
        float grey = grey_of(pixels);
        for (int k = 0; k < 3; k++) pixels[k] = colour_blend(factor, rest, pixels[k], grey);
    }
}

void colour_saturation(struct image *image, double factor)
{
    if (image->c == 3 && image->deep) saturate_deep(image, factor);
    else if (image->c == 3)
        colour_saturate(image->pixels, pixels_of(image), (float)factor, (float)(1 - factor));
}

void colour_grey(struct image *image) { colour_saturation(image, 0); }

/* Hue in 0..1, after A. R. Smith's hexcone model (SIGGRAPH 1978). */
static float hue_of(const float rgb[3], float most, float range)
{
    float red = (most - rgb[0]) / range, green = (most - rgb[1]) / range, blue = (most - rgb[2]) / range;
    float hue = most == rgb[0] ? blue - green : most == rgb[1] ? 2 + red - blue : 4 + green - red;
    return fmodf(hue / 6 + 1, 1);
}

static void turn_pixel(uint8_t *pixel, float turn)
{
    float rgb[3] = {pixel[0] / 255.0f, pixel[1] / 255.0f, pixel[2] / 255.0f};
    float most = fmaxf(rgb[0], fmaxf(rgb[1], rgb[2])), least = fminf(rgb[0], fminf(rgb[1], rgb[2]));
    float range = most - least;
    if (range == 0) return;
    float hue = fmodf(hue_of(rgb, most, range) + turn + 1, 1) * 6, part = hue - floorf(hue);
    float saturation = range / most;
    float low = most * (1 - saturation), falling = most * (1 - saturation * part);
    float rising = most * (1 - saturation * (1 - part));
    const float sixths[6][3] = {{most, rising, low}, {falling, most, low}, {low, most, rising},
                                {low, falling, most}, {rising, low, most}, {most, low, falling}};
    const float *turned = sixths[(int)hue % 6];
    for (int k = 0; k < 3; k++) pixel[k] = byte_of(turned[k] * (256 - 1e-3f));
}

void colour_hue(struct image *image, double turn)
{
    size_t count = image->c == 3 ? pixels_of(image) : 0;
    for (size_t i = 0; i < count; i++) turn_pixel(image->pixels + 3 * i, (float)turn);
}

void colour_posterize(struct image *image, int bits)
{
    uint8_t mask = (uint8_t)(0xff00 >> bits);
    for (size_t i = 0; i < bytes_of(image); i++) image->pixels[i] &= mask;
}

void colour_solarize(struct image *image, double threshold)
{
    uint8_t table[256];
    for (int x = 0; x < 256; x++) table[x] = (uint8_t)(x >= threshold ? 255 - x : x);
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

void colour_gamma(struct image *image, double gamma)
{
    uint8_t table[256];
    if (image->deep) {
        gamma_deep(image, gamma);
        return;
    }
    for (int x = 0; x < 256; x++) table[x] = byte_of((float)(pow(x / 255.0, gamma) * (256 - 1e-3)));
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
    for (int k = 0; k < image->c; k++) {
        int low = 0, high = 255;
        while (!counts[k][low]) low++;
        while (!counts[k][high]) high--;
        float scale = low < high ? 255.0f / (float)(high - low) : 1;
        float from = low < high ? (float)low : 0;
        for (int x = 0; x < 256; x++) table[k][x] = byte_of(((float)x - from) * scale);
    }
    colour_look_up(image, table);
}

/* PIL's equalize: what lies below a value, in steps of 1/255 of all but the brightest. */
static void colour_flatten(const int64_t counts[256], uint8_t table[256])
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

void colour_equalize(struct image *image)
{
    int64_t counts[4][256];
    uint8_t table[4][256];
    count_values(image, counts);
    for (int k = 0; k < image->c; k++) colour_flatten(counts[k], table[k]);
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
    for (int i = c; i < bytes - c; i++) {
        int ring = above[i - c] + above[i] + above[i + c] + row[i - c] + row[i + c] + below[i - c] +
                   below[i] + below[i + c];
        float blurred = (float)((2 * (ring + 5 * row[i]) + 13) / 26);      /* rounded to the nearest */
        to[i] = colour_blend(factor, rest, row[i], blurred);
    }
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

/* A symmetric filter of five pixels: the weights of the middle one, its neighbours, and theirs, times
 * 2^24. */
struct blur {
    uint32_t weights[3];
};

#define BLUR_PASSES 3

/* The box of which so many passes have the variance of the Gaussian: of 2 whole + 1 pixels, and a fraction of
 * the two beyond. In float where PIL rounds to it. */
static struct blur blur_of(float radius)
{
    double variance = radius * radius / BLUR_PASSES, length = (float)sqrt(12.0 * variance + 1.0);
    float whole = (float)floor((length - 1.0) / 2.0), edge;
    edge = (float)((2 * whole + 1) * (whole * (whole + 1) - 3 * variance));
    edge = (float)(edge / (6 * (variance - (whole + 1) * (whole + 1))));
    uint32_t one = UINT32_C(1) << 24, inside = (uint32_t)((float)one / ((whole + edge) * 2 + 1));
    uint32_t outside = (one - (uint32_t)(2 * (int)whole + 1) * inside) / 2;
    assert(whole == 0 || whole == 1);
    return (struct blur){{inside, whole == 1 ? inside : outside, whole == 1 ? outside : 0}};
}

/* Rows of `count` bytes: those two before the result's, one before, its own, one and two behind. */
struct blurred {
    const uint8_t *from[5];
    uint8_t *to;
    size_t count;
};

static EVERY_MACHINE(void, blur_bytes, (const struct blur *blur, const struct blurred *part), (blur, part))
{
    const uint32_t w0 = blur->weights[0], w1 = blur->weights[1], w2 = blur->weights[2];
    const uint8_t *a = part->from[0], *b = part->from[1], *c = part->from[2], *d = part->from[3];
    const uint8_t *e = part->from[4];
    uint8_t *restrict to = part->to;
    for (size_t i = 0; i < part->count; i++) {
        uint32_t sum = w0 * c[i] + w1 * ((uint32_t)b[i] + d[i]) + w2 * ((uint32_t)a[i] + e[i]);
        to[i] = (uint8_t)((sum + (UINT32_C(1) << 23)) >> 24);
    }
}

static size_t near_edge(int i, int size) { return (size_t)(i < 0 ? 0 : i < size ? i : size - 1); }

static void blur_down(const struct blur *blur, const struct image *from, struct image *to)
{
    size_t stride = (size_t)from->w * (size_t)from->c;
    for (int y = 0; y < from->h; y++) {
        struct blurred row = {.to = to->pixels + (size_t)y * stride, .count = stride};
        for (int k = 0; k < 5; k++) row.from[k] = from->pixels + near_edge(y + k - 2, from->h) * stride;
        blur_bytes(blur, &row);
    }
}

/* All pixels that have two neighbours on either side at once, the others one by one. */
static void blur_row(const struct blur *blur, const struct image *image, const uint8_t *from, uint8_t *to)
{
    int w = image->w;
    size_t c = (size_t)image->c;
    for (int x = 0, count; x < w; x += count) {
        count = x == 2 && w > 4 ? w - 4 : 1;
        struct blurred part = {.to = to + (size_t)x * c, .count = (size_t)count * c};
        for (int k = 0; k < 5; k++) part.from[k] = from + near_edge(x + k - 2, w) * c;
        blur_bytes(blur, &part);
    }
}

static void blur_across(const struct blur *blur, const struct image *from, struct image *to)
{
    size_t stride = (size_t)from->w * (size_t)from->c;
    for (int y = 0; y < from->h; y++)
        blur_row(blur, from, from->pixels + (size_t)y * stride, to->pixels + (size_t)y * stride);
}

bool colour_blur(struct image *image, double radius, struct image *copy, struct reason *reason)
{
    assert(radius >= 0 && radius <= BLUR_MAX);
    const struct blur blur = blur_of((float)radius);
    struct image *turn[2] = {image, copy};
    if (!image_resize_buffer(copy, image->h, image->w, image->c, reason)) return false;
    for (int i = 0; i < 2 * BLUR_PASSES; i++)
        (i < BLUR_PASSES ? blur_across : blur_down)(&blur, turn[i % 2], turn[(i + 1) % 2]);
    return true;
}
