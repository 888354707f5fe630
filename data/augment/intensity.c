#include "data/augment/intensity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"
#include "data/augment/pixel.h"
#include "data/augment/variation.h"

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

/* Weighted sums of `count` numbers of rows, from the first row to the last; numbers that stay in registers
 * until they are done. */
#define BLUR_BLOCK 64

static EVERY_MACHINE(void, sum_weighted, (const float *const *rows, const float *weight, int reach,
                     size_t count, float *restrict sums), (rows, weight, reach, count, sums))
{
    for (size_t first = 0; first < count; first += BLUR_BLOCK) {
        float sum[BLUR_BLOCK] = {0};
        size_t own = count - first < BLUR_BLOCK ? count - first : BLUR_BLOCK;
        for (int i = -reach; i <= reach; i++) {
            const float *from = rows[i + reach] + first;
            float w = weight[abs(i)];
            if (own == BLUR_BLOCK)
#pragma omp simd
                for (size_t k = 0; k < BLUR_BLOCK; k++) sum[k] += w * from[k];
            else
                for (size_t k = 0; k < own; k++) sum[k] += w * from[k];
        }
        memcpy(sums + first, sum, own * sizeof *sum);
    }
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
        for (int k = 0; k < c; k++) row[x * c + k] = row[pixel_mirrored(x, w) * c + k];
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

void intensity_blur_weights(double deviation, int reach, float *weight)
{
    double sum = 0;
    for (int i = -reach; i <= reach; i++) sum += exp(-0.5 * i * i / (deviation * deviation));
    for (int i = 0; i <= reach; i++) weight[i] = (float)(exp(-0.5 * i * i / (deviation * deviation)) / sum);
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
    const float **rows = memory_new(2 * (size_t)reach + 1, sizeof *rows);
    intensity_blur_weights(deviation, reach, weight);
    if (image->deep) memcpy(from, image_numbers(image), pixels * sizeof *from);
    else blur_read(image->pixels, pixels, from);
    for (int y = 0; y < image->h; y++) {
        for (int i = -reach; i <= reach; i++)
            rows[i + reach] = from + (size_t)pixel_mirrored(y + i, image->h) * row;
        sum_weighted(rows, weight, reach, row, down);
        blur_border(down, image->w, image->c, reach);
        for (int i = -reach; i <= reach; i++) rows[i + reach] = down + (ptrdiff_t)i * image->c;
        sum_weighted(rows, weight, reach, row, sums);
        if (image->deep) memcpy(image_numbers(image) + (size_t)y * row, sums, row * sizeof *sums);
        else blur_write(sums, row, image->pixels + (size_t)y * row);
    }
    free(weight);
    free(rows);
    return true;
}

/* ---- Noise ---- */

/* Newton's method finds each. */
float *intensity_quantiles(void)
{
    float *normal = memory_new(INTENSITY_QUANTILES, sizeof *normal);
    double x = 0;
    for (int i = INTENSITY_QUANTILES / 2; i < INTENSITY_QUANTILES; i++) {
        double above = 1 - (i + 0.5) / INTENSITY_QUANTILES;
        for (int step = 0; step < 4; step++)
            x += (erfc(x * sqrt(0.5)) / 2 - above) * sqrt(2 * 3.14159265358979323846) * exp(x * x / 2);
        normal[i] = (float)x;
        normal[INTENSITY_QUANTILES - 1 - i] = (float)-x;
    }
    return normal;
}

/* Blocks of words that are drawn at once, eight numbers each. */
#define NOISE_BLOCKS 32
#define NOISE_NUMBERS (8 * NOISE_BLOCKS)

static EVERY_MACHINE(void, noise_words, (const struct random *random, uint64_t draw,
                     uint32_t (*restrict words)[NOISE_BLOCKS]), (random, draw, words))
{
#pragma omp simd
    for (int i = 0; i < NOISE_BLOCKS; i++) {
        uint32_t own[4];
        philox_words(random, draw + (uint64_t)i, own);
        for (int k = 0; k < 4; k++) words[k][i] = own[k];
    }
}

static EVERY_MACHINE(void, noise_add, (const float *noise, float scale, size_t count,
                     uint8_t *restrict pixels), (noise, scale, count, pixels))
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) pixels[i] = pixel_byte((float)pixels[i] + scale * noise[i] + 0.5f);
}

void intensity_noise(struct image *image, double deviation, const struct random *random, uint64_t draw,
                     struct intensity_scratch *scratch)
{
    size_t count = (size_t)image->h * (size_t)image->w * (size_t)image->c;
    float scale = (float)(deviation * (image->deep ? (double)image->high - image->low : 255));
    if (!scratch->normal) scratch->normal = intensity_quantiles();
    for (size_t first = 0; first < count; first += NOISE_NUMBERS, draw += NOISE_BLOCKS) {
        uint32_t words[4][NOISE_BLOCKS];
        float noise[NOISE_NUMBERS];
        noise_words(random, draw, words);
        for (int i = 0; i < NOISE_NUMBERS; i++)
            noise[i] = scratch->normal[words[i % 8 / 2][i / 8] >> 16 * (i % 2) & 0xffff];
        size_t own = count - first < NOISE_NUMBERS ? count - first : NOISE_NUMBERS;
        if (image->deep)
            for (size_t i = 0; i < own; i++) image_numbers(image)[first + i] += scale * noise[i];
        else
            noise_add(noise, scale, own, image->pixels + first);
    }
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

void intensity_draw(const struct intensity *intensity, size_t count, struct random *random,
                    struct variation *variation)
{
    const struct chance *blur = &intensity->blur, *noise = &intensity->noise;
    if (intensity->gray > 0 && random_uniform(random) < intensity->gray)
        variation_add(variation, CHANGE_SATURATION, 0);
    if (happens(&intensity->gamma, random))
        variation_add(variation, CHANGE_GAMMA, draw_gamma(&intensity->gamma, random));
    if (happens(blur, random)) {
        double deviation = random_between(random, blur->low, blur->high);
        variation_add(variation, CHANGE_BLUR, deviation)->reach = (int32_t)ceil(BLUR_REACH * blur->high);
    }
    if (happens(noise, random)) {
        variation_add(variation, CHANGE_NOISE, random_between(random, noise->low, noise->high));
        variation->random = *random;
        variation->draw = (random->next + 3) / 4;      /* the first block that is not begun */
        random->next = 4 * (variation->draw + (count + 7) / 8);
    }
}
