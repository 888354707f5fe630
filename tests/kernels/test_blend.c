/* test_blend: tiles cover an image as promised, and blending in bands and strips gives what plain loops over
 * the whole image give. On a GPU, its code is compared with the same loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "kernels/images/blend.h"
#include "kernels/op.h"
#include "tests/support/place.h"
#include "tests/support/unit.h"

static void test_places(void **state)
{
    static const double overlaps[] = {0, 0.25, 0.5, 0.7, 0.9};
    for (int tile = 1; tile <= 33; tile += 4)
        for (int length = 1; length < 150; length++)
            for (size_t o = 0; o < sizeof overlaps / sizeof *overlaps; o++) {
                int count = blend_count(length, tile, overlaps[o]);
                int most = (int)fmax(1, floor(tile * (1 - overlaps[o]) + 1e-6));
                int last = blend_position(length, tile, count, 0);
                assert_int_equal(last, length < tile ? -((tile - length) / 2) : 0);
                for (int i = 1; i < count; i++) {
                    int at = blend_position(length, tile, count, i);
                    assert_in_range(at - last, length - tile >= count - 1, most);
                    last = at;
                }
                assert_true(length < tile || last + tile == length);
                assert_true(count == 1 || (count - 2) * most < length - tile);      /* none too many */
            }
}

static void test_reflection(void **state)
{
    static const int three[] = {0, 1, 2, 1, 0, 1, 2, 1, 0};
    for (int i = 0; i < 9; i++) assert_int_equal(blend_reflect(i - 4, 3), three[i]);
    for (int i = -9; i < 9; i++) assert_int_equal(blend_reflect(i, 1), 0);
    for (int i = -9; i < 9; i++) assert_int_equal(blend_reflect(i, 2), abs(i) % 2);
}

static void test_window(void **state)
{
    float window[512];
    blend_window(512, window);
    for (int i = 0; i < 256; i++) assert_true(window[i] == window[511 - i]);
    assert_true(fabs((double)window[256] - 1) < 1e-4 && window[255 + 64] > 0.6f && window[255 + 64] < 0.62f);
    assert_true(blend_weight(window[0], window[0]) == BLEND_LEAST);
}

struct setting {
    int image_h, image_w, h, w;          /* as tiled, and the result */
    int tile_h, tile_w, classes;
    double overlap;
    int strip;                           /* the columns of a band */
    bool mirrored;
};

static double logit(const struct setting *s, int ty, int tx, bool mirrored, int row, int column, int c)
{
    struct random random = random_open(3, PURPOSE_TEST, (uint64_t)((ty * 64 + tx) * 2 + mirrored),
                                       (uint64_t)((row * s->tile_w + column) * s->classes + c));
    return (double)(float)(8 * random_uniform(&random) - 4);
}

static uint8_t truth_of(const struct setting *s, int i)
{
    return i % 7 == 0 ? 255 : (uint8_t)((unsigned)i * 2654435761u % (unsigned)s->classes);
}

/* The blended probabilities of a pixel of the image: every tile is looked at. */
static void blend_plainly(const struct setting *s, int y, int x, double *p)
{
    int down = blend_count(s->image_h, s->tile_h, s->overlap);
    int across = blend_count(s->image_w, s->tile_w, s->overlap);
    double weights = 0;
    for (int c = 0; c < s->classes; c++) p[c] = 0;
    for (int i = 0; i < down * across * (1 + s->mirrored); i++) {
        int ty = i / (1 + s->mirrored) / across, tx = i / (1 + s->mirrored) % across;
        bool mirrored = s->mirrored && i % 2;
        int row = y - blend_position(s->image_h, s->tile_h, down, ty);
        int column = x - blend_position(s->image_w, s->tile_w, across, tx);
        if (row < 0 || row >= s->tile_h || column < 0 || column >= s->tile_w) continue;
        double v = (row - (s->tile_h - 1) / 2.0) / s->tile_h * 8, sum = 0;
        double u = (column - (s->tile_w - 1) / 2.0) / s->tile_w * 8;
        double weight = fmax(exp(-(u * u + v * v) / 2), 0.001);
        int from = mirrored ? s->tile_w - 1 - column : column;
        for (int c = 0; c < s->classes; c++) sum += exp(logit(s, ty, tx, mirrored, row, from, c));
        for (int c = 0; c < s->classes; c++)
            p[c] += weight * exp(logit(s, ty, tx, mirrored, row, from, c)) / sum;
        weights += weight;
    }
    for (int c = 0; c < s->classes; c++) p[c] /= weights;
}

struct bench {
    struct device *device;
    const struct blend_code *code;
    struct blend_tile tile;
    struct blend_part part;
    float *logits;                       /* host */
    uint8_t *best;                       /* the result, host memory */
    float *probabilities;
    double loss;
};

static void *room(struct bench *bench, size_t bytes)
{
    void *memory = bench->device->backend->memory.allocate(bench->device, bytes);
    assert_non_null(memory);
    place_poison(bench->device, memory, bytes);
    return memory;
}

static void copy(struct bench *bench, bool up, void *to, const void *from, size_t bytes)
{
    const struct device_backend *backend = bench->device->backend;
    assert_int_equal((up ? backend->transfers.upload : backend->transfers.download)(
        bench->device, 0, to, from, bytes), OK);
    assert_int_equal(backend->synchronize(bench->device), OK);
}

static void add_tile(struct bench *bench, const struct setting *s, int ty, int tx, bool mirrored)
{
    struct blend_tile *tile = &bench->tile;
    int64_t count = (int64_t)s->tile_h * s->tile_w * s->classes;
    for (int64_t i = 0; i < count; i++)
        bench->logits[i] = (float)logit(s, ty, tx, mirrored, (int)(i / s->classes / s->tile_w),
                                        (int)(i / s->classes % s->tile_w), (int)(i % s->classes));
    copy(bench, true, (float *)tile->logits, bench->logits, (size_t)count * sizeof(float));
    tile->y = blend_position(s->image_h, s->tile_h, blend_count(s->image_h, s->tile_h, s->overlap), ty);
    tile->x = blend_position(s->image_w, s->tile_w, blend_count(s->image_w, s->tile_w, s->overlap), tx);
    tile->mirrored = mirrored;
    assert_int_equal(bench->code->add(bench->device, bench->device->backend->stream(bench->device, 0), tile),
                     OK);
}

static void clear_rows(struct bench *bench, int from, int end)
{
    const struct blend_band *band = &bench->tile.band;
    for (int y = from; y < end; y++)
        assert_int_equal(bench->device->backend->transfers.fill_zero(
            bench->device, 0, band->sums + (int64_t)(y % band->rows) * band->w * band->classes,
            (size_t)(band->w * band->classes) * sizeof(float)), OK);
}

/* Finishes the rows of the result that lie before row `end` of the image. */
static void finish_rows(struct bench *bench, const struct setting *s, int end)
{
    struct blend_part *part = &bench->part;
    struct box *box = &part->box;
    box->y += box->h;
    box->h = 0;
    while (box->y + box->h < s->h && blend_nearest(box->y + box->h, s->h, s->image_h) < end) box->h++;
    size_t pixels = (size_t)box->h * (size_t)box->w;
    if (pixels == 0) return;
    uint8_t *truth = memory_new(pixels, 1), *best = memory_new(pixels, 1);
    float *probabilities = memory_new(pixels * (size_t)s->classes, sizeof *probabilities);
    double *losses = memory_new((size_t)box->h, sizeof *losses);
    for (size_t i = 0; i < pixels; i++)
        truth[i] = truth_of(s, (box->y + (int)(i / (size_t)box->w)) * s->w + box->x + (int)(i % (size_t)box->w));
    copy(bench, true, (uint8_t *)part->truth, truth, pixels);
    part->band = bench->tile.band;
    assert_int_equal(
        bench->code->finish(bench->device, bench->device->backend->stream(bench->device, 0), part), OK);
    copy(bench, false, best, part->best, pixels);
    copy(bench, false, probabilities, part->probabilities, pixels * (size_t)s->classes * sizeof(float));
    copy(bench, false, losses, part->losses, (size_t)box->h * sizeof(double));
    for (int row = 0; row < box->h; row++) {
        size_t at = (size_t)(box->y + row) * (size_t)s->w + (size_t)box->x, from = (size_t)(row * box->w);
        memcpy(bench->best + at, best + from, (size_t)box->w);
        memcpy(bench->probabilities + at * (size_t)s->classes, probabilities + from * (size_t)s->classes,
               (size_t)(box->w * s->classes) * sizeof(float));
        bench->loss += losses[row];
    }
    free(truth);
    free(best);
    free(probabilities);
    free(losses);
}

static void blend_strip(struct bench *bench, const struct setting *s, int x, int w)
{
    struct blend_tile *tile = &bench->tile;
    int down = blend_count(s->image_h, s->tile_h, s->overlap);
    int across = blend_count(s->image_w, s->tile_w, s->overlap);
    tile->band.x = x;
    tile->band.w = w;
    struct box *box = &bench->part.box;
    *box = (struct box){0};
    while (blend_nearest(box->x, s->w, s->image_w) < x) box->x++;
    while (box->x + box->w < s->w && blend_nearest(box->x + box->w, s->w, s->image_w) < x + w) box->w++;
    assert_int_equal(bench->device->backend->transfers.fill_zero(
        bench->device, 0, tile->band.sums, (size_t)(s->tile_h * s->strip * s->classes) * sizeof(float)), OK);
    for (int ty = 0; ty < down; ty++) {
        for (int tx = 0; tx < across; tx++) {
            int at = blend_position(s->image_w, s->tile_w, across, tx);
            if (at >= x + w || at + s->tile_w <= x) continue;
            for (int m = 0; m <= s->mirrored; m++) add_tile(bench, s, ty, tx, m);
        }
        int last = blend_position(s->image_h, s->tile_h, down, ty);
        int end = ty + 1 == down ? s->image_h : blend_position(s->image_h, s->tile_h, down, ty + 1);
        finish_rows(bench, s, end);
        clear_rows(bench, last > 0 ? last : 0, end);
    }
}

static void check(struct device *device, const struct setting *s)
{
    struct bench bench = {.device = device};
    bench.code = device->backend->kind == DEVICE_CPU ? &blend_cpu : ON_CUDA(blend_cuda);
    assert_non_null(bench.code);
    size_t classes = (size_t)s->classes, pixels = (size_t)(s->h * s->w), ends = (size_t)(s->h + 1) * 8;
    size_t tile = (size_t)(s->tile_h * s->tile_w) * classes * sizeof(float);
    size_t band = (size_t)(s->tile_h * s->strip) * classes * sizeof(float);
    float *down = memory_new((size_t)s->tile_h, sizeof *down);
    float *across = memory_new((size_t)s->tile_w, sizeof *across);
    blend_window(s->tile_h, down);
    blend_window(s->tile_w, across);
    void *rooms[] = {room(&bench, band), room(&bench, tile), room(&bench, (size_t)s->tile_h * 4),
                     room(&bench, (size_t)s->tile_w * 4), room(&bench, pixels), room(&bench, pixels),
                     room(&bench, pixels * classes * 4), room(&bench, ends)};
    const size_t sizes[] = {band, tile, (size_t)s->tile_h * 4, (size_t)s->tile_w * 4, pixels, pixels,
                            pixels * classes * 4, ends};
    copy(&bench, true, rooms[2], down, (size_t)s->tile_h * 4);
    copy(&bench, true, rooms[3], across, (size_t)s->tile_w * 4);
    bench.tile = (struct blend_tile){
        .band = {rooms[0], s->tile_h, 0, s->strip, s->classes}, .logits = rooms[1], .down = rooms[2],
        .across = rooms[3], .h = s->tile_h, .w = s->tile_w, .image_h = s->image_h, .image_w = s->image_w};
    bench.part = (struct blend_part){.image_h = s->image_h, .image_w = s->image_w, .h = s->h, .w = s->w,
                                     .truth = rooms[4], .best = rooms[5], .probabilities = rooms[6],
                                     .losses = rooms[7]};
    bench.logits = memory_new(tile, 1);
    bench.best = memory_new(pixels, 1);
    bench.probabilities = memory_new(pixels * classes, sizeof(float));
    memset(bench.best, 0xee, pixels);
    for (int x = 0; x < s->image_w; x += s->strip)
        blend_strip(&bench, s, x, x + s->strip < s->image_w ? s->strip : s->image_w - x);
    double p[300], loss = 0;
    for (int i = 0; i < s->h * s->w; i++) {
        int best = 0;
        blend_plainly(s, (int)((i / s->w + 0.5) * s->image_h / s->h),
                      (int)((i % s->w + 0.5) * s->image_w / s->w), p);
        for (int c = 0; c < s->classes; c++) {
            assert_true(fabs(p[c] - (double)bench.probabilities[i * s->classes + c]) < 2e-6);
            if (p[c] > p[best]) best = c;
        }
        assert_true(bench.best[i] < s->classes && p[best] - p[bench.best[i]] < 2e-6);
        if (truth_of(s, i) < s->classes) loss -= log(p[truth_of(s, i)]);
    }
    assert_true(fabs(loss - bench.loss) < 1e-5 * (1 + loss));
    for (int i = 0; i < 8; i++) device->backend->memory.free(device, rooms[i], sizes[i]);
    free(bench.logits);
    free(bench.best);
    free(bench.probabilities);
    free(down);
    free(across);
}

static void test_blending(void **state)
{
    static const struct setting settings[] = {
        {1, 1, 1, 1, 8, 8, 2, 0.5, 8, false},    {1, 29, 1, 29, 8, 8, 3, 0.5, 32, false},
        {29, 1, 29, 1, 8, 6, 3, 0.5, 8, true},   {7, 7, 7, 7, 8, 8, 2, 0.5, 8, false},
        {8, 8, 8, 8, 8, 8, 21, 0.5, 8, true},    {9, 9, 9, 9, 8, 8, 2, 0.5, 16, false},
        {9, 9, 9, 9, 8, 8, 1, 0, 9, false},      {41, 67, 41, 67, 8, 12, 4, 0.5, 67, true},
        {41, 67, 41, 67, 8, 12, 4, 0.5, 24, false}, {33, 40, 33, 40, 7, 7, 5, 0.8, 13, true},
        {20, 31, 47, 90, 8, 8, 3, 0.5, 16, false},  {47, 90, 20, 31, 8, 8, 3, 0.5, 32, false},
        {5, 6, 50, 61, 8, 8, 3, 0.5, 16, false},    {300, 11, 300, 11, 16, 16, 255, 0.25, 11, false},
    };
    struct device *device = place_open(2);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) check(device, &settings[i]);
    device_close(device);
}

/* Numbers that are not finite are seen, also where nothing is compared. */
static void test_not_finite(void **state)
{
    float sums[6] = {1, 2, NAN, 1, INFINITY, 0};
    uint8_t best[3];
    double losses[1];
    struct blend_part part = {.band = {sums, 1, 0, 1, 2}, .image_h = 1, .image_w = 1, .h = 1, .w = 1,
                              .box = {0, 0, 1, 1}, .best = best, .losses = losses};
    for (int i = 0; i < 3; i++) {
        part.band.sums = sums + 2 * i;
        assert_int_equal(blend_cpu.finish(NULL, NULL, &part), OK);
        assert_true(isnan(losses[0]) == (i > 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),   cmocka_unit_test(test_reflection), cmocka_unit_test(test_window),
        cmocka_unit_test(test_blending), cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
