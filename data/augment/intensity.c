#include "data/augment/intensity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"
#include "data/augment/colour.h"

/* torchvision's kernel of GaussianBlur, if it is to reach three times the largest deviation. */
#define BLUR_REACH 3

void intensity_scratch_free(struct intensity_scratch *scratch)
{
    free(scratch->rows);
    free(scratch->normal);
    *scratch = (struct intensity_scratch){0};
}

bool intensity_varies(const struct intensity *intensity)
{
    return intensity->gray > 0 || intensity->gamma.p > 0 || intensity->blur.p > 0 || intensity->noise.p > 0;
}

/* ---- Blur ---- */

static int mirrored(int i, int size)
{
    if (size == 1) return 0;
    while (i < 0 || i >= size) i = i < 0 ? -i : 2 * size - 2 - i;
    return i;
}

/* sum += weight * from; */
static EVERY_MACHINE(void, add_weighted, (const float *from, float weight, size_t count, float *restrict sum),
                     (from, weight, count, sum))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) sum[i] += weight * from[i];
}

static EVERY_MACHINE(void, blur_read, (const uint8_t *from, size_t count, float *restrict to),
                     (from, count, to))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) to[i] = from[i];
}

static EVERY_MACHINE(void, blur_write, (const float *from, size_t count, uint8_t *restrict to),
                     (from, count, to))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) to[i] = (uint8_t)(int)(from[i] + 0.5f);
}

/* A row with `reach` pixels on either side, which are the row's own, reflected. */
static void blur_border(float *row, int w, int c, int reach)
{
    for (int x = -reach; x < w + reach; x += x == -1 ? w + 1 : 1)
        for (int k = 0; k < c; k++) row[x * c + k] = row[mirrored(x, w) * c + k];
}

static float *rows_of(struct intensity_scratch *scratch, size_t count, struct reason *reason)
{
    if (scratch->capacity < count) {
        free(scratch->rows);
        scratch->rows = memory_try(count, sizeof *scratch->rows);
        scratch->capacity = scratch->rows ? count : 0;
    }
    if (!scratch->rows) because(reason, "not enough memory for a blur");
    return scratch->rows;
}

bool intensity_blur(struct image *image, double deviation, int reach, struct intensity_scratch *scratch,
                    struct reason *reason)
{
    size_t c = (size_t)image->c, row = (size_t)image->w * c, border = (size_t)reach * c;
    size_t pixels = (size_t)image->h * row;
    float *from = rows_of(scratch, pixels + 2 * (row + border), reason), *down, *sums;
    if (!from) return false;
    down = from + pixels + border;
    sums = down + row + border;
    float *weight = memory_new((size_t)reach + 1, sizeof *weight);
    double sum = 0;
    for (int i = -reach; i <= reach; i++) sum += exp(-0.5 * i * i / (deviation * deviation));
    for (int i = 0; i <= reach; i++) weight[i] = (float)(exp(-0.5 * i * i / (deviation * deviation)) / sum);
    if (image->deep) memcpy(from, image_numbers(image), pixels * sizeof *from);
    else blur_read(image->pixels, pixels, from);
    for (int y = 0; y < image->h; y++) {
        for (size_t i = 0; i < row; i++) down[i] = sums[i] = 0;
        for (int i = -reach; i <= reach; i++)
            add_weighted(from + (size_t)mirrored(y + i, image->h) * row, weight[abs(i)], row, down);
        blur_border(down, image->w, image->c, reach);
        for (int i = -reach; i <= reach; i++)
            add_weighted(down + (ptrdiff_t)i * image->c, weight[abs(i)], row, sums);
        if (image->deep) memcpy(image_numbers(image) + (size_t)y * row, sums, row * sizeof *sums);
        else blur_write(sums, row, image->pixels + (size_t)y * row);
    }
    free(weight);
    return true;
}

/* ---- Noise ---- */

#define QUANTILES (1 << 16)

/* normal[i] is where (i + 1/2) / QUANTILES of the normal distribution lie below, by Newton's method. */
static float *normal_quantiles(void)
{
    float *normal = memory_new(QUANTILES, sizeof *normal);
    double x = 0;
    for (int i = QUANTILES / 2; i < QUANTILES; i++) {
        double above = 1 - (i + 0.5) / QUANTILES;
        for (int step = 0; step < 4; step++)
            x += (erfc(x * sqrt(0.5)) / 2 - above) * sqrt(2 * 3.14159265358979323846) * exp(x * x / 2);
        normal[i] = (float)x;
        normal[QUANTILES - 1 - i] = (float)-x;
    }
    return normal;
}

static inline uint8_t byte_of(float value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

void intensity_noise(struct image *image, double deviation, struct random *random,
                     struct intensity_scratch *scratch)
{
    size_t count = (size_t)image->h * (size_t)image->w * (size_t)image->c;
    uint64_t draw = (random->next + 3) / 4;      /* the first block of four words that is not begun */
    float scale = (float)(deviation * (image->deep ? (double)image->high - image->low : 255));
    float *numbers = image->deep ? image_numbers(image) : NULL;
    if (!scratch->normal) scratch->normal = normal_quantiles();
    for (size_t i = 0; i < count; i += 8, draw++) {
        uint32_t words[4];
        random_words(random, draw, words);
        for (size_t k = 0; k < 8 && i + k < count; k++) {
            float added = scale * scratch->normal[words[k / 2] >> 16 * (k % 2) & 0xffff];
            if (numbers) numbers[i + k] += added;
            else image->pixels[i + k] = byte_of((float)image->pixels[i + k] + added + 0.5f);
        }
    }
    random->next = 4 * draw;
}

/* ---- All of them ---- */

static bool happens(const struct chance *chance, struct random *random)
{
    return chance->p > 0 && random_uniform(random) < chance->p;
}

static double draw_gamma(const struct chance *gamma, struct random *random)
{
    bool below = gamma->low < 1 && (gamma->high <= 1 || random_below(random, 2));
    return below ? random_between(random, gamma->low, fmin(gamma->high, 1))
                 : random_between(random, fmax(gamma->low, 1), gamma->high);
}

bool intensity_apply(const struct intensity *intensity, struct image *image, struct random *random,
                     struct intensity_scratch *scratch, struct reason *reason)
{
    const struct chance *blur = &intensity->blur, *noise = &intensity->noise;
    if (intensity->gray > 0 && random_uniform(random) < intensity->gray) colour_grey(image);
    if (happens(&intensity->gamma, random)) colour_gamma(image, draw_gamma(&intensity->gamma, random));
    if (happens(blur, random) &&
        !intensity_blur(image, random_between(random, blur->low, blur->high),
                        (int)ceil(BLUR_REACH * blur->high), scratch, reason))
        return false;
    if (happens(noise, random))
        intensity_noise(image, random_between(random, noise->low, noise->high), random, scratch);
    return true;
}
