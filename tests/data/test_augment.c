/* test_augment: crops of images, and how they are resized, mirrored and normalised. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/augment.h"
#include "tests/support/unit.h"

/* Normalisation that leaves x / 255 alone. */
static struct augment plain(int channels)
{
    return (struct augment){
        .channels = channels, .std = {1, 1, 1, 1}, .scale = {0.08, 1}, .ratio = {0.75, 4.0 / 3}};
}

static struct image noise(int h, int w, int c, uint64_t name)
{
    struct image image = {0};
    struct reason reason;
    struct random random = random_open(1, PURPOSE_TEST, name, 0);
    assert_true(image_resize_buffer(&image, h, w, c, &reason));
    for (int i = 0; i < h * w * c; i++) image.pixels[i] = (uint8_t)random_next(&random);
    return image;
}

/* Pixel (y, x) of a grey image is 16 y + x + 1, so that it tells where it came from. */
static struct image map(int h, int w)
{
    struct image image = {0};
    struct reason reason;
    assert_true(image_resize_buffer(&image, h, w, 1, &reason));
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) image.pixels[y * w + x] = (uint8_t)(16 * y + x + 1);
    return image;
}

static void apply(const struct augment *augment, const struct image *image, struct random *random,
                  struct augment_output output)
{
    struct scratch scratch = {0};
    struct reason reason;
    if (!augment_image(&(struct augmenting){augment, random, &scratch}, image, &output, &reason))
        fail_msg("%s", reason.text);
    scratch_free(&scratch);
}

static void expect_bytes(const float *got, int count, const uint8_t *want)
{
    for (int i = 0; i < count; i++)
        if (lround(got[i] * 255) != want[i]) fail_msg("element %d is %g, not %d", i, got[i] * 255, want[i]);
}

/* Normalisation */

static void normalises_in_every_type(void **state)
{
    struct augment augment = plain(3);
    for (int k = 0; k < 3; k++) {
        augment.mean[k] = 0.4f + 0.05f * (float)k;
        augment.std[k] = 0.2f + 0.03f * (float)k;
    }
    struct image image = noise(4, 5, 3, 1);
    static const double slack[] = {[F32] = 1e-6, [F16] = 2e-3, [BF16] = 2e-2};
    for (enum dtype dtype = F32; dtype <= BF16; dtype++) {
        char out[4 * 5 * 3 * 4];
        apply(&augment, &image, NULL, (struct augment_output){4, 5, dtype, out});
        for (int i = 0; i < 60; i++) {
            double want = (image.pixels[i] / 255.0 - augment.mean[i % 3]) / augment.std[i % 3];
            double got = dtype_get(dtype, out, i);
            if (fabs(got - want) > slack[dtype])
                fail_msg("%s: element %d is %g, not %g", dtype_table[dtype].name, i, got, want);
        }
    }
    image_free(&image);
}

/* Cutting */

/* 2 x 4 pixels in 4 x 4: with two black rows, or every row twice. */
static void whole_images_fit(void **state)
{
    struct augment augment = plain(1);
    struct image image = map(2, 4);
    float out[64];
    augment.val_crop = augment.crop = true;
    augment.fit = IMAGE_FIT_LETTERBOX;
    apply(&augment, &image, NULL, (struct augment_output){4, 4, F32, out});
    expect_bytes(out, 16, (const uint8_t[]){0, 0, 0, 0, 1, 2, 3, 4, 17, 18, 19, 20, 0, 0, 0, 0});
    apply(&augment, &image, NULL, (struct augment_output){8, 8, F32, out});
    for (int i = 0; i < 64; i++) assert_true((out[i] > 0) == (i / 8 >= 2 && i / 8 < 6));
    augment.fit = IMAGE_FIT_STRETCH;
    apply(&augment, &image, NULL, (struct augment_output){2, 2, F32, out});
    expect_bytes(out, 4, (const uint8_t[]){2, 3, 18, 19});
    apply(&augment, &image, NULL, (struct augment_output){6, 3, F32, out});
    for (int i = 0; i < 18; i++) assert_true(out[i] > 0);
    augment.fit = IMAGE_FIT_LETTERBOX;
    augment.pad = 2;
    bool moved = false;
    for (uint64_t i = 0; i < 20; i++) {
        struct random random = random_open(i, PURPOSE_TEST, 9, 0);
        apply(&augment, &image, &random, (struct augment_output){4, 4, F32, out});
        moved = moved || out[4] != 1 / 255.0f;
    }
    assert_true(moved);
    image_free(&image);
}

/* The longest shapes have a row, or a column, of pixels. */
static void extreme_images_fit(void **state)
{
    struct augment augment = plain(1);
    struct image image = map(1, 15);
    float out[16];
    augment.val_crop = true;
    for (augment.fit = IMAGE_FIT_LETTERBOX; augment.fit <= IMAGE_FIT_STRETCH; augment.fit++) {
        apply(&augment, &image, NULL, (struct augment_output){4, 4, F32, out});
        int lit = 0;
        for (int i = 0; i < 16; i++) lit += out[i] > 0;
        assert_int_equal(lit, augment.fit == IMAGE_FIT_STRETCH ? 16 : 4);
    }
    image_free(&image);
}

static void centre_crop_rounds_as_torchvision(void **state)
{
    struct augment augment = plain(1);
    augment.val_crop = true;
    float out[16];
    struct image image = map(5, 4);
    apply(&augment, &image, NULL, (struct augment_output){2, 2, F32, out});   /* round(1.5) = 2, 1 */
    expect_bytes(out, 4, (uint8_t[]){34, 35, 50, 51});
    image_free(&image);
    image = map(7, 3);
    apply(&augment, &image, NULL, (struct augment_output){2, 2, F32, out});   /* 2, round(0.5) = 0 */
    expect_bytes(out, 4, (uint8_t[]){33, 34, 49, 50});
    image_free(&image);
    augment.val_crop = true;
    image = map(1, 5);
    /* Too low: a border, the larger half below. */
    apply(&augment, &image, NULL, (struct augment_output){4, 4, F32, out});
    expect_bytes(out, 16, (uint8_t[]){0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0});
    image_free(&image);
}

/* A 5 x 5 window over an image padded by 2 always shows three columns or more, from which the
 * place and the mirroring can be read. */
static void padded_crops_are_uniform(void **state)
{
    struct augment augment = plain(1);
    augment.pad = 2;
    augment.random_crop = true;
    augment.flip = 0.5;
    struct image image = map(5, 5);
    int seen[2][5][5] = {{{0}}}, trials = 50000;
    for (int i = 0; i < trials; i++) {
        struct random random = random_open(3, PURPOSE_AUGMENT, 0, (uint64_t)i);
        float out[25];
        apply(&augment, &image, &random, (struct augment_output){5, 5, F32, out});
        int value = (int)lround(out[12] * 255) - 1;        /* the middle is never black */
        bool flip = out[11] > 0 ? out[11] > out[12] : out[13] < out[12];
        int y = value / 16 - 2, x = value % 16 - 2;
        assert_in_range(y + 2, 0, 4);
        assert_in_range(x + 2, 0, 4);
        seen[flip][y + 2][x + 2]++;
    }
    /* Each of 50 outcomes 1,000 times, with a standard deviation of 31. */
    for (int i = 0; i < 50; i++) assert_in_range((&seen[0][0][0])[i], 1000 - 150, 1000 + 150);
    image_free(&image);
}

/* Beyond its edges an image goes on as in a mirror that stands on its outermost pixels. */
static void borders_are_reflected(void **state)
{
    struct augment augment = plain(1);
    augment.reflect = true;
    struct image image = map(3, 4);
    struct scratch scratch = {0};
    struct reason reason;
    struct augment_table table = augment_table_make(&augment, F32);
    struct cut cut = {.from = {.h = 3, .w = 4}, .h = 3, .w = 4, .window = {-2, -1, 7, 6}, .reflect = true};
    static const int rows[] = {2, 1, 0, 1, 2, 1, 0}, columns[] = {1, 0, 1, 2, 3, 2};
    for (int flip = 0; flip <= 1; flip++) {
        float out[42];
        uint8_t want[42];
        cut.flip = flip;
        for (int i = 0; i < 42; i++)
            want[i] = (uint8_t)(16 * rows[i / 6] + columns[flip ? 5 - i % 6 : i % 6] + 1);
        struct augmenting how = {&augment, NULL, &scratch};
        assert_true(augment_apply(&how, &table, &cut, &image, out, &reason));
        expect_bytes(out, 42, want);
    }
    augment_table_free(&table);
    scratch_free(&scratch);
    image_free(&image);
}

static void flips_as_often_as_asked(void **state)
{
    struct augment augment = plain(3);
    struct image image = noise(2, 5, 3, 9);
    for (int percent = 0; percent <= 100; percent += 25) {
        augment.flip = percent / 100.0;
        int flips = 0;
        for (int i = 0; i < 4000; i++) {
            struct random random = random_open(4, PURPOSE_AUGMENT, 1, (uint64_t)i);
            float out[30];
            uint8_t mirror[30];
            apply(&augment, &image, &random, (struct augment_output){2, 5, F32, out});
            for (int k = 0; k < 10; k++)
                memcpy(mirror + 3 * k, image.pixels + 3 * (k / 5 * 5 + 4 - k % 5), 3);
            bool flip = lround(out[0] * 255) == mirror[0];
            expect_bytes(out, 30, flip ? mirror : image.pixels);
            flips += flip;
        }
        assert_in_range(flips, percent ? percent * 40 - 120 : 0, percent < 100 ? percent * 40 + 120 : 4000);
    }
    image_free(&image);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    struct augment augment = plain(1);
    struct image image = map(4, 4);
    struct scratch scratch = {0};
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    struct reason reason;
    float out[64];
    struct augmenting how = {&augment, NULL, &scratch};
    assert_false(augment_image(&how, &image, &(struct augment_output){5, 5, F32, out}, &reason));
    assert_non_null(strstr(reason.text, "4x4"));
    augment.crop = true;
    augment.random_crop = true;
    how.random = &random;
    assert_false(augment_image(&how, &image, &(struct augment_output){8, 8, F32, out}, &reason));
    assert_non_null(strstr(reason.text, "too few"));
    augment.channels = 3;
    how.random = NULL;
    assert_false(augment_image(&how, &image, &(struct augment_output){4, 4, F32, out}, &reason));
    assert_non_null(strstr(reason.text, "channels"));
    image_free(&image);
}

/* Up to 0.7 of a square no box is too long (0.7 * 4/3 < 1), so that none is drawn again: areas and
 * logarithms of ratios are uniform and independent, and so is the place. */
static void random_boxes_have_the_right_distribution(void **state)
{
    struct augment augment = plain(3);
    augment.scale[1] = 0.7;
    int trials = 40000, seen[4][4] = {{0}}, left = 0, above = 0;
    for (int i = 0; i < trials; i++) {
        struct random random = random_open(5, PURPOSE_AUGMENT, 0, (uint64_t)i);
        struct box box = augment_random_box(&augment, 2000, 2000, &random);
        double area = (box.h * box.w / 4e6 - 0.08) / 0.62, ratio = log((double)box.w / box.h) / log(4.0 / 3);
        assert_true(box.y >= 0 && box.x >= 0 && box.y + box.h <= 2000 && box.x + box.w <= 2000);
        assert_true(area > -0.01 && area < 1.01 && fabs(ratio) < 1.01);
        seen[(int)fmin(3, fmax(0, area * 4))][(int)fmin(3, fmax(0, (ratio + 1) * 2))]++;
        left += 2 * box.x + box.w < 2000;
        above += 2 * box.y + box.h < 2000;
    }
    /* Standard deviations: 48 of 2,500; 100 of 20,000 (half of a spare pixel falls to the right). */
    for (int i = 0; i < 16; i++) assert_in_range((&seen[0][0])[i], 2500 - 220, 2500 + 220);
    assert_in_range(left, 20000 - 500, 20000 + 500);
    assert_in_range(above, 20000 - 500, 20000 + 500);
}

/* All of a square, where most boxes are too long: what is drawn again must still lie inside. */
static void refused_boxes_are_drawn_again(void **state)
{
    struct augment augment = plain(3);
    augment.scale[0] = 0.9;
    for (int i = 0; i < 2000; i++) {
        struct random random = random_open(7, PURPOSE_AUGMENT, 0, (uint64_t)i);
        struct box box = augment_random_box(&augment, 50, 50, &random);
        assert_true(box.h > 0 && box.w > 0 && box.y + box.h <= 50 && box.x + box.w <= 50);
        assert_true(box.h * box.w >= 0.88 * 2500);
    }
}

static void impossible_boxes_fall_back_to_the_centre(void **state)
{
    struct augment augment = plain(3);
    augment.scale[0] = 1;
    struct random random = random_open(6, PURPOSE_TEST, 0, 0);
    struct box box = augment_random_box(&augment, 10, 100, &random);
    assert_int_equal(box.h, 10);
    assert_int_equal(box.w, 13);
    assert_int_equal(box.y, 0);
    assert_int_equal(box.x, 43);
    box = augment_random_box(&augment, 100, 10, &random);
    assert_int_equal(box.h, 13);
    assert_int_equal(box.w, 10);
    assert_int_equal(box.y, 43);
}

/* Resizing */

/* The definition, written down once more in doubles: one axis's weight of source pixel k. */
static double weight(int size, int target, int i, int k)
{
    double scale = (double)size / target, reach = scale > 1 ? scale : 1, centre = (i + 0.5) * scale, sum = 0;
    int low = (int)(centre - reach + 0.5), high = (int)(centre + reach + 0.5);
    if (low < 0) low = 0;
    if (high > size) high = size;
    if (k < low || k >= high) return 0;
    for (int m = low; m < high; m++) sum += fmax(0, 1 - fabs(m + 0.5 - centre) / reach);
    return fmax(0, 1 - fabs(k + 0.5 - centre) / reach) / sum;
}

/* Pixel (y, x) of the resizing's window. */
static double reference(const struct image *image, const struct resizing *r, int y, int x, int channel)
{
    struct box box = r->from;
    double sum = 0;
    for (int i = 0; i < box.h; i++)
        for (int j = 0; j < box.w; j++)
            sum += weight(box.h, r->h, r->window.y + y, i) * weight(box.w, r->w, r->window.x + x, j) *
                   image->pixels[((box.y + i) * image->w + box.x + j) * image->c + channel];
    return sum;
}

static void resize_agrees_with_the_definition(void **state)
{
    static const struct {
        int c;
        struct box box;
        int h, w;
        struct box window;
    } cases[] = {
        {3, {0, 0, 20, 30}, 7, 9, {0, 0, 7, 9}},      {3, {3, 5, 11, 17}, 22, 40, {0, 0, 22, 40}},
        {1, {0, 0, 20, 30}, 13, 31, {2, 3, 5, 20}},   {3, {1, 2, 1, 1}, 4, 4, {0, 0, 4, 4}},
        {4, {2, 2, 16, 16}, 5, 5, {1, 1, 3, 4}},      {2, {0, 0, 20, 30}, 1, 1, {0, 0, 1, 1}},
        {3, {0, 0, 20, 30}, 20, 30, {0, 0, 20, 30}},  {3, {10, 20, 10, 10}, 9, 11, {0, 8, 9, 3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct image image = noise(20, 30, cases[i].c, i), target = {0};
        struct reason reason;
        struct box window = cases[i].window;
        const struct resizing resizing = {cases[i].box, cases[i].h, cases[i].w, window,
                                          RESIZE_BILINEAR};
        assert_true(resize_image(&image, &resizing, &target, &reason));
        assert_int_equal(target.h, window.h);
        assert_int_equal(target.w, window.w);
        for (int at = 0; at < window.h * window.w * target.c; at++) {
            int y = at / target.c / window.w, x = at / target.c % window.w, k = at % target.c;
            double want = reference(&image, &resizing, y, x, k);
            if (fabs(target.pixels[at] - want) > 0.501)
                fail_msg("case %zu: %d,%d,%d is %d, not %g", i, y, x, k, target.pixels[at], want);
        }
        image_free(&image);
        image_free(&target);
    }
}

/* Pillow 12's results for edges from 0 to 255, which bicubic interpolation overshoots: Image.resize(...,
 * Image.BICUBIC) of the whole image or of a box of it. */
static void bicubic_is_that_of_pillow(void **state)
{
    static const struct {
        int c, h, w;
        struct box box, window;
        uint8_t want[78];
    } cases[] = {
        {1, 4, 5, {0, 0, 9, 11}, {0, 0, 4, 5},
         {104, 109, 143, 130, 92, 113, 134, 128, 164, 80, 124, 132, 142, 144, 223, 125, 122, 116, 115, 59}},
        {1, 6, 13, {0, 0, 9, 11}, {0, 0, 6, 13},
         {0, 77, 147, 139, 98, 105, 157, 98, 90, 27, 92, 232, 0, 158, 231, 91, 53, 114, 110, 148, 231, 243,
          204, 142, 63, 0, 13, 93, 139, 145, 170, 222, 13, 88, 98, 148, 147, 75, 84, 157, 113, 125, 139, 130,
          110, 147, 231, 251, 96, 80, 255, 255, 12, 205, 168, 117, 123, 137, 117, 108, 22, 139, 229, 170, 170,
          165, 104, 95, 98, 116, 154, 98, 98, 152, 135, 61, 0, 0}},
        {3, 12, 4, {0, 0, 9, 11}, {3, 0, 3, 4},
         {167, 88, 159, 54, 201, 51, 240, 15, 195, 74, 181, 176, 90, 165, 20, 196, 59, 212, 51, 204, 65, 63,
          192, 96, 81, 174, 27, 133, 122, 131, 115, 140, 116, 150, 105, 133}},
        {3, 3, 4, {1, 2, 6, 6}, {0, 0, 3, 4},
         {70, 185, 153, 141, 114, 107, 152, 103, 133, 224, 31, 181, 133, 122, 125, 164, 91, 134, 99, 156, 144,
          156, 99, 118, 109, 146, 133, 127, 128, 110, 128, 127, 129, 146, 109, 134}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct image image = {0}, target = {0};
        struct reason reason;
        int c = cases[i].c;
        assert_true(image_resize_buffer(&image, 9, 11, c, &reason));
        for (int at = 0; at < 99; at++) {
            int y = at / 11, x = at % 11, next = (at + 98) % 99, left = next % 11, above = next / 11;
            uint8_t *pixel = image.pixels + (ptrdiff_t)at * c;
            pixel[0] = (x * x * 37 + y * 91 + x * y * 13) % 256 > 127 ? 255 : 0;
            if (c == 3) pixel[1] = (uint8_t)(255 - pixel[0]);
            if (c == 3) pixel[2] = (left * left * 37 + above * 91 + left * above * 13) % 256 > 127 ? 255 : 0;
        }
        const struct resizing resizing = {cases[i].box, cases[i].h, cases[i].w, cases[i].window,
                                          RESIZE_BICUBIC};
        assert_true(resize_image(&image, &resizing, &target, &reason));
        assert_int_equal(target.h, cases[i].window.h);
        assert_int_equal(target.w, cases[i].window.w);
        for (int at = 0; at < target.h * target.w * c; at++)
            if (target.pixels[at] != cases[i].want[at])
                fail_msg("case %zu: number %d is %d, not %d", i, at, target.pixels[at], cases[i].want[at]);
        image_free(&image);
        image_free(&target);
    }
}

/* One axis in doubles: the cubic of a = -1/2 about the place of pixel i, widened where the axis shrinks. */
static uint8_t cubic(const uint8_t *from, int step, int size, int target, int i)
{
    double scale = (double)size / target, wide = scale > 1 ? scale : 1, sum = 0, all = 0;
    for (int k = 0; k < size; k++) {
        double x = fabs(k + 0.5 - (i + 0.5) * scale) / wide;
        double w = x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
                   : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
        all += w;
        sum += w * from[k * step];
    }
    return (uint8_t)fmin(255, fmax(0, floor(sum / all + 0.5)));
}

/* Rows first, then columns; a window, a box and any number of channels. */
static void bicubic_agrees_with_the_definition(void **state)
{
    for (uint64_t i = 0; i < 60; i++) {
        struct random random = random_open(8, PURPOSE_TEST, i, 0);
        int c = 1 + (int)random_below(&random, 4), h = 1 + (int)random_below(&random, 40);
        int w = 1 + (int)random_below(&random, 40);
        struct image image = noise(20, 30, c, i), target = {0};
        struct box box = {.y = (int)random_below(&random, 10), .x = (int)random_below(&random, 10)};
        struct box window = {.y = (int)random_below(&random, (uint32_t)h),
                             .x = (int)random_below(&random, (uint32_t)w)};
        struct reason reason;
        box.h = 1 + (int)random_below(&random, (uint32_t)(20 - box.y));
        box.w = 1 + (int)random_below(&random, (uint32_t)(30 - box.x));
        window.h = h - window.y;
        window.w = w - window.x;
        const struct resizing resizing = {box, h, w, window, RESIZE_BICUBIC};
        assert_true(resize_image(&image, &resizing, &target, &reason));
        for (int at = 0; at < window.h * window.w * c; at++) {
            int x = window.x + at / c % window.w, y = window.y + at / c / window.w;
            uint8_t rows[20];
            for (int k = 0; k < box.h; k++)
                rows[k] = cubic(image.pixels + ((box.y + k) * 30 + box.x) * c + at % c, c, box.w, w, x);
            int want = cubic(rows, 1, box.h, h, y);
            if (abs(target.pixels[at] - want) > 1)
                fail_msg("case %d: number %d is %d, not %d", (int)i, at, target.pixels[at], want);
        }
        image_free(&image);
        image_free(&target);
    }
}

/* Only what an evaluation resizes. */
static void interpolation_is_of_evaluation(void **state)
{
    struct image image = noise(40, 61, 3, 7), small = {0};
    struct reason reason;
    struct augment augment = plain(3);
    augment.val_resize = augment.resize = image_size_square(16);
    augment.val_crop = augment.crop = true;
    augment.interpolation = RESIZE_BICUBIC;
    for (int training = 0; training < 2; training++) {
        struct random random = random_open(1, PURPOSE_TEST, 0, 0);
        const struct resizing resizing = {{0, 0, 40, 61}, 16, 24, {2, 6, 12, 12},
                                          training ? RESIZE_BILINEAR : RESIZE_BICUBIC};
        float out[12 * 12 * 3];
        apply(&augment, &image, training ? &random : NULL, (struct augment_output){12, 12, F32, out});
        assert_true(resize_image(&image, &resizing, &small, &reason));
        expect_bytes(out, 12 * 12 * 3, small.pixels);
    }
    image_free(&image);
    image_free(&small);
}

static void short_side_is_resized_then_cropped(void **state)
{
    struct augment augment = plain(3);
    augment.val_resize = image_size_square(16);
    augment.val_crop = true;
    struct image image = noise(40, 61, 3, 7), small = {0};
    struct reason reason;
    float out[12 * 12 * 3];
    apply(&augment, &image, NULL, (struct augment_output){12, 12, F32, out});
    /* 16 * 61 / 40 = 24.4: cut down to 24; the window begins at 2, 6. */
    const struct resizing resizing = {.from = {.h = 40, .w = 61}, 16, 24, .window = {.h = 16, .w = 24}};
    assert_true(resize_image(&image, &resizing, &small, &reason));
    for (int y = 0; y < 12; y++) expect_bytes(out + y * 36, 36, small.pixels + ((2 + y) * 24 + 6) * 3);
    image_free(&image);
    image_free(&small);
}

/* Sizes that cover 12 x 36, which is 3:1: what is too long is cut off, in the middle. */
static void long_images_are_covered(void **state)
{
    static const struct image_size own[] = {{20, 60}, {40, 61}, {20, 90}, {5, 20}, {12, 36}};
    static const struct image_size covering[] = {{12, 36}, {23, 36}, {12, 54}, {12, 48}, {12, 36}};
    struct augment augment = plain(3);
    augment.val_resize = (struct image_size){12, 36};
    augment.val_crop = true;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct image_size to = image_size_covering(own[i], augment.val_resize);
        assert_true(image_size_equal(to, covering[i]));
        struct image image = noise(own[i].h, own[i].w, 3, i), small = {0};
        const struct resizing resizing = {
            .from = {.h = own[i].h, .w = own[i].w}, to.h, to.w,
            .window = {.y = (int)nearbyint((to.h - 12) / 2.0), .x = (to.w - 36) / 2, .h = 12, .w = 36},
        };
        struct reason reason;
        float out[12 * 36 * 3];
        apply(&augment, &image, NULL, (struct augment_output){12, 36, F32, out});
        assert_true(resize_image(&image, &resizing, &small, &reason));
        expect_bytes(out, 12 * 36 * 3, small.pixels);
        image_free(&image);
        image_free(&small);
    }
}

static void small_images_resized_get_a_border(void **state)
{
    struct augment augment = plain(1);
    augment.val_resize = image_size_square(2);
    augment.val_crop = true;
    struct image image = {0};
    struct reason reason;
    image_resize_buffer(&image, 8, 8, 1, &reason);
    memset(image.pixels, 200, 64);
    float out[16];
    apply(&augment, &image, NULL, (struct augment_output){4, 4, F32, out});
    expect_bytes(out, 16, (uint8_t[]){0, 0, 0, 0, 0, 200, 200, 0, 0, 200, 200, 0, 0, 0, 0, 0});
    image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalises_in_every_type),
        cmocka_unit_test(whole_images_fit),
        cmocka_unit_test(extreme_images_fit),
        cmocka_unit_test(centre_crop_rounds_as_torchvision),
        cmocka_unit_test(padded_crops_are_uniform),
        cmocka_unit_test(borders_are_reflected),
        cmocka_unit_test(flips_as_often_as_asked),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(random_boxes_have_the_right_distribution),
        cmocka_unit_test(refused_boxes_are_drawn_again),
        cmocka_unit_test(impossible_boxes_fall_back_to_the_centre),
        cmocka_unit_test(resize_agrees_with_the_definition),
        cmocka_unit_test(bicubic_is_that_of_pillow),
        cmocka_unit_test(bicubic_agrees_with_the_definition),
        cmocka_unit_test(interpolation_is_of_evaluation),
        cmocka_unit_test(short_side_is_resized_then_cropped),
        cmocka_unit_test(long_images_are_covered),
        cmocka_unit_test(small_images_resized_get_a_border),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
