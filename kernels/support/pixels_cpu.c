#include "kernels/support/pixels_cpu.h"

#include <string.h>

#define PIECES 64            /* at most */
#define PIECE 4096           /* elements, at least */

EVERY_MACHINE(void, pixels_multiply, (const float *a, const float *b, float *y, int64_t count),
              (a, b, y, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = a[i] * b[i];
}

EVERY_MACHINE(void, pixels_multiply_add,
              (const float *a, const float *b, const float *c, float *y, int64_t count), (a, b, c, y, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) y[i] = a[i] * b[i] + c[i];
}

EVERY_MACHINE(void, pixels_add, (const float *x, float *sum, int64_t count), (x, sum, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] += x[i];
}

EVERY_MACHINE(void, pixels_add_products, (const float *a, const float *b, float *sum, int64_t count),
              (a, b, sum, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sum[i] += a[i] * b[i];
}

struct cut {
    int64_t pixels, channels, each, pieces;
};

static struct cut cut_of(struct shape shape)
{
    struct cut cut = {.pixels = shape.n * shape.h * shape.w, .channels = shape.c};
    int64_t least = pieces(PIECE, shape.c), share = pieces(cut.pixels, PIECES);
    cut.each = share > least ? share : least;
    cut.pieces = pieces(cut.pixels, cut.each);
    return cut;
}

size_t pixels_workspace(struct shape shape, const struct pixels_work *work)
{
    struct cut cut = cut_of(shape);
    return (size_t)(cut.pieces * work->lines * cut.channels) * sizeof(float);
}

static EVERY_MACHINE(void, add_line, (const float *line, double *sums, int64_t count), (line, sums, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sums[i] += line[i];
}

static void total(const struct cut *cut, const float *lines, int64_t pitch, const struct tensor *to)
{
    for (int64_t first = 0; first < cut->channels; first += BLOCK) {
        int64_t count = min_count(BLOCK, cut->channels - first);
        ALIGNED double sums[BLOCK] = {0};
        for (int64_t piece = 0; piece < cut->pieces; piece++)
            add_line(lines + piece * pitch + first, sums, count);
        for (int64_t c = 0; c < count; c++) tensor_set(to, first + c, sums[c]);
    }
}

void pixels_run(const struct call *call, struct shape shape, const struct pixels_work *work)
{
    struct cut cut = cut_of(shape);
    int64_t pitch = work->lines * cut.channels;
    float *lines = call->workspace;
#pragma omp parallel for schedule(static) if (cut.pixels * cut.channels > PARALLEL)
    for (int64_t piece = 0; piece < cut.pieces; piece++) {
        float *mine = lines + piece * pitch;
        memset(mine, 0, (size_t)(work->sums * cut.channels) * sizeof *mine);
        work->piece(call, piece * cut.each, min_count((piece + 1) * cut.each, cut.pixels), mine);
    }
    for (int i = 0; i < work->sums; i++)
        if (work->totals[i]->data) total(&cut, lines + i * cut.channels, pitch, work->totals[i]);
}

static void add_pixels(const struct call *call, int64_t first, int64_t end, float *lines)
{
    int64_t channels = call->d_y.shape.c;
    for (int64_t pixel = first; pixel < end; pixel++)
        pixels_add(block_load(&call->d_y, pixel * channels, channels, lines + channels), lines, channels);
}

static struct pixels_work bias_work(const struct call *call)
{
    return (struct pixels_work){.sums = 1, .lines = 2, .piece = add_pixels, .totals = {&call->d_params[1]}};
}

size_t pixels_bias_workspace(const struct call *call)
{
    struct pixels_work work = bias_work(call);
    return pixels_workspace(call->d_y.shape, &work);
}

void pixels_bias_run(const struct call *call)
{
    struct pixels_work work = bias_work(call);
    pixels_run(call, call->d_y.shape, &work);
}
