#include "data/augment/mix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"

/* The logarithm of a gamma variate: Marsaglia and Tsang, A simple method for generating gamma
 * variables (2000); below 1 by a variate of alpha + 1, in logarithms because it can be tiny. */
static double log_gamma_variate(double alpha, struct random *random)
{
    double less = alpha < 1 ? log(1 - random_uniform(random)) / alpha : 0;
    double d = (alpha < 1 ? alpha + 1 : alpha) - 1 / 3.0, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = random_normal(random), v = 1 + c * x;
        double u = 1 - random_uniform(random);
        if (v <= 0) continue;
        v = v * v * v;
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return log(d * v) + less;
    }
}

double mix_beta(double alpha, struct random *random)
{
    double own = log_gamma_variate(alpha, random), other = log_gamma_variate(alpha, random);
    return 1 / (1 + exp(other - own));
}

/* The part within 0..size of a range of half length `half` around `middle`. */
static void mix_clip(int middle, int half, int size, int *from, int *count)
{
    int low = middle > half ? middle - half : 0, high = middle + half < size ? middle + half : size;
    *from = low;
    *count = high - low;
}

/* A box of 1 - share of the image, about any of its pixels; what lies outside is cut off. */
static struct mix draw_box(double share, struct random *random, int h, int w)
{
    struct mix mix = {.pasted = true};
    int x = (int)random_below(random, (uint32_t)w), y = (int)random_below(random, (uint32_t)h);
    double half = 0.5 * sqrt(1 - share);
    mix_clip(x, (int)(half * w), w, &mix.box.x, &mix.box.w);
    mix_clip(y, (int)(half * h), h, &mix.box.y, &mix.box.h);
    mix.share = (float)(1 - (double)mix.box.h * mix.box.w / ((double)h * w));
    return mix;
}

struct mix mix_draw(const struct mix_settings *settings, struct random *random, int h, int w)
{
    bool either = settings->mixup > 0 && settings->cutmix > 0;
    bool pasted = either ? random_below(random, 2) : settings->cutmix > 0;
    double share = mix_beta(pasted ? settings->cutmix : settings->mixup, random);
    return pasted ? draw_box(share, random, h, w) : (struct mix){.share = (float)share};
}

#define BLOCK 512

static EVERY_MACHINE(void, mix_blend, (float *restrict own, const float *restrict other, size_t count,
                     float share), (own, other, count, share))
{
    float rest = 1 - share;
    for (size_t i = 0; i < count; i++) own[i] = share * own[i] + rest * other[i];
}

/* Numbers are mixed in fp32 and rounded once. */
static void mix_numbers(enum dtype dtype, char *own, const char *other, size_t count, float share)
{
    float a[BLOCK], b[BLOCK];
    size_t size = dtype_bytes(dtype);
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        dtype_convert(F32, a, dtype, own + i * size, n);
        dtype_convert(F32, b, dtype, other + i * size, n);
        mix_blend(a, b, n, share);
        dtype_convert(dtype, own + i * size, F32, a, n);
    }
}

/* One image's row gets its part of another's, which starts at the same column. */
static void mix_row(const struct mix *mix, const struct mix_batch *batch, int y, char *own, const char *other)
{
    size_t pixel = (size_t)batch->c * dtype_bytes(batch->dtype);
    const struct box *box = &mix->box;
    if (!mix->pasted)
        mix_numbers(batch->dtype, own, other, (size_t)batch->w * (size_t)batch->c, mix->share);
    else if (y >= box->y && y < box->y + box->h)
        memcpy(own + (size_t)box->x * pixel, other + (size_t)box->x * pixel, (size_t)box->w * pixel);
}

/* Row y of images that are mixed among themselves, the first of which has it at `first`: from the last image
 * to the first, so that the one before is always as it was; for the first, the last one's row is kept. */
static void mix_together(const struct mix *mix, const struct mix_batch *batch, int y, char *first, char *last)
{
    size_t row = (size_t)batch->w * (size_t)batch->c * dtype_bytes(batch->dtype);
    size_t image = (size_t)batch->h * row;
    memcpy(last, first + (size_t)(mix->together - 1) * image, row);
    for (int i = mix->together - 1; i >= 0; i--) {
        char *own = first + (size_t)i * image;
        mix_row(mix, batch, y, own, i > 0 ? own - image : last);
    }
}

void mix_rows(const struct mix *mix, const struct mix_batch *batch, int from, int rows)
{
    size_t row = (size_t)batch->w * (size_t)batch->c * dtype_bytes(batch->dtype);
    char *last = memory_new(row, 1);
    for (int y = from; y < from + rows; y++)
        for (int i = 0; i < batch->count; i += mix->together) {
            char *first = (char *)batch->images + ((size_t)i * (size_t)batch->h + (size_t)y) * row;
            mix_together(mix, batch, y, first, last);
        }
    free(last);
}
