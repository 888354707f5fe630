/* lrn_cpu.c: lrn on threads, one pixel at a time, with one power per channel. */
#include "kernels/norm/lrn.h"

#include <math.h>
#include <stddef.h>

#include "kernels/cpu.h"

/* Scratch of one row of pixels: fp32 copies of a pixel's x and d_y, and its results. */
#define ARRAYS 6

static size_t lrn_cpu_workspace(const struct call *call)
{
    struct shape x = call->x[0].shape;
    return (size_t)(x.n * x.h * x.c) * ARRAYS * sizeof(float);
}

/* d of every channel, by a sum over the window; windows are short. */
static void lrn_cpu_divisors(const struct lrn *s, const float *x, float *d, int64_t channels)
{
    for (int64_t c = 0; c < channels; c++) {
        float sum = 0;
        int64_t first = c > s->size / 2 ? c - s->size / 2 : 0;
        int64_t last = min_count(c + (s->size - 1) / 2, channels - 1);
        for (int64_t i = first; i <= last; i++) sum += x[i] * x[i];
        d[c] = (float)s->k + (float)(s->alpha / (double)s->size) * sum;
    }
}

static void lrn_cpu_forward_pixel(const struct call *call, int64_t first, float *scratch)
{
    const struct lrn *s = call->settings;
    int64_t channels = call->y.shape.c;
    float *d = scratch + channels;
    const float *x = block_load(&call->x[0], first, channels, scratch);
    float *y = block_open(&call->y, first, scratch + 2 * channels);
    lrn_cpu_divisors(s, x, d, channels);
    for (int64_t c = 0; c < channels; c++) y[c] = x[c] * powf(d[c], (float)-s->beta);
    block_store(&call->y, first, channels, y);
}

static enum status lrn_cpu_forward(const struct call *call)
{
    struct shape y = call->y.shape;
#pragma omp parallel for schedule(static) if (shape_count(y) > BLOCK)
    for (int64_t row = 0; row < y.n * y.h; row++)
        for (int64_t w = 0; w < y.w; w++)
            lrn_cpu_forward_pixel(call, (row * y.w + w) * y.c, (float *)call->workspace + row * y.c * ARRAYS);
    return OK;
}

static void lrn_cpu_backward_pixel(const struct call *call, int64_t first, float *scratch)
{
    const struct lrn *s = call->settings;
    int64_t channels = call->d_y.shape.c;
    float *d = scratch + channels, *power = scratch + 2 * channels, *term = scratch + 3 * channels;
    const float *x = block_load(&call->x[0], first, channels, scratch);
    const float *d_y = block_load(&call->d_y, first, channels, scratch + 4 * channels);
    float *d_x = block_open(&call->d_x[0], first, scratch + 5 * channels);
    float factor = (float)(2 * s->alpha * s->beta / (double)s->size);
    lrn_cpu_divisors(s, x, d, channels);
    for (int64_t c = 0; c < channels; c++) {
        power[c] = powf(d[c], (float)-s->beta);
        term[c] = d_y[c] * x[c] * power[c] / d[c];
    }
    for (int64_t i = 0; i < channels; i++) {
        float sum = 0;
        int64_t begin = i > (s->size - 1) / 2 ? i - (s->size - 1) / 2 : 0;
        int64_t last = min_count(i + s->size / 2, channels - 1);
        for (int64_t c = begin; c <= last; c++) sum += term[c];
        d_x[i] = d_y[i] * power[i] - factor * x[i] * sum;
    }
    block_store(&call->d_x[0], first, channels, d_x);
}

static enum status lrn_cpu_backward(const struct call *call)
{
    if (!call->d_x[0].data) return OK;
    struct shape y = call->d_y.shape;
#pragma omp parallel for schedule(static) if (shape_count(y) > BLOCK)
    for (int64_t row = 0; row < y.n * y.h; row++)
        for (int64_t w = 0; w < y.w; w++)
            lrn_cpu_backward_pixel(call, (row * y.w + w) * y.c,
                                   (float *)call->workspace + row * y.c * ARRAYS);
    return OK;
}

const struct op_code lrn_cpu = {
    .workspace = lrn_cpu_workspace,
    .forward = lrn_cpu_forward,
    .backward = lrn_cpu_backward,
};
