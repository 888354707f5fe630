/* test_intensity: grey, gamma, blur and noise beside their definitions in plain loops, and how often they
 * happen. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/colour.h"
#include "data/augment/vary.h"
#include "tests/support/unit.h"

static struct image noise(int h, int w, int c, uint64_t name)
{
    struct image image = {0};
    struct reason reason;
    struct random random = random_open(1, PURPOSE_TEST, name, 0);
    assert_true(image_resize_buffer(&image, h, w, c, &reason));
    for (int i = 0; i < h * w * c; i++) image.pixels[i] = (uint8_t)random_next(&random);
    return image;
}

static uint8_t *copy_of(const struct image *image)
{
    size_t bytes = (size_t)(image->h * image->w * image->c);
    uint8_t *copy = memory_new(bytes, 1);
    memcpy(copy, image->pixels, bytes);
    return copy;
}

static int inside(int i, int size)
{
    int period = size > 1 ? 2 * size - 2 : 1;
    i = ((i % period) + period) % period;
    return i < size ? i : period - i;
}

/* GaussianBlur(2 reach + 1, deviation): a product of two Gaussians over the image, reflected at its edges. */
static double blurred(const uint8_t *pixels, const struct image *image, int y, int x, int k, double deviation,
                      int reach)
{
    double sum = 0, all = 0;
    for (int i = -reach; i <= reach; i++)
        for (int j = -reach; j <= reach; j++) {
            double w = exp(-(i * i + j * j) / (2 * deviation * deviation));
            int at = inside(y + i, image->h) * image->w + inside(x + j, image->w);
            sum += w * pixels[at * image->c + k];
            all += w;
        }
    return sum / all;
}

static void blur_is_a_gaussian(void **state)
{
    struct intensity_scratch scratch = {0};
    for (uint64_t i = 0; i < 20; i++) {
        struct random random = random_open(2, PURPOSE_TEST, i, 0);
        int h = 1 + (int)random_below(&random, 24), w = 1 + (int)random_below(&random, 24);
        int c = 1 + (int)random_below(&random, 4), reach = 1 + (int)random_below(&random, 9);
        double deviation = random_between(&random, 0.1, 3);
        struct image image = noise(h, w, c, i);
        struct reason reason;
        uint8_t *before = copy_of(&image);
        assert_true(intensity_blur(&image, deviation, reach, &scratch, &reason));
        for (int at = 0; at < h * w * c; at++) {
            double want = blurred(before, &image, at / c / w, at / c % w, at % c, deviation, reach);
            if (fabs(image.pixels[at] - want) > 0.51)
                fail_msg("image %d: number %d is %d, not %g", (int)i, at, image.pixels[at], want);
        }
        free(before);
        image_free(&image);
    }
    intensity_scratch_free(&scratch);
}

/* Mean, deviation, and the shares beyond one, two and three deviations; no two pixels alike. */
static void noise_is_normal(void **state)
{
    struct intensity_scratch scratch = {0};
    struct random random = random_open(3, PURPOSE_TEST, 0, 0);
    struct image image = noise(300, 301, 3, 0), other = noise(300, 301, 3, 0);
    int count = image.h * image.w * image.c, beyond[4] = {0};
    double sum = 0, squares = 0, beside = 0;
    const double deviation = 16.0 / 255;
    memset(image.pixels, 128, (size_t)count);
    memset(other.pixels, 128, (size_t)count);
    intensity_noise(&image, deviation, &random, 0, &scratch);
    intensity_noise(&other, deviation, &random, 0, &scratch);
    assert_memory_equal(image.pixels, other.pixels, (size_t)count);
    for (int i = 0; i < count; i++) {
        double x = (image.pixels[i] - 128.0) / 16;
        sum += x;
        squares += x * x;
        if (i > 0) beside += x * (image.pixels[i - 1] - 128.0) / 16;
        for (int k = 1; k < 4; k++) beyond[k] += fabs(x) > k;
    }
    /* 270,900 numbers, rounded to sixteenths of a deviation. */
    assert_true(fabs(sum / count) < 0.01 && fabs(squares / count - 1) < 0.012 && fabs(beside / count) < 0.01);
    for (int k = 1; k < 4; k++) {
        double want = count * erfc((k + 0.5 / 16) / sqrt(2));
        if (fabs(beyond[k] - want) > 5 * sqrt(want))
            fail_msg("%d of %d beyond %d deviations, not %g", beyond[k], count, k, want);
    }
    memset(image.pixels, 255, (size_t)count);
    intensity_noise(&image, 1, &random, 0, &scratch);
    int white = 0;
    for (int i = 0; i < count; i++) white += image.pixels[i] == 255;
    assert_in_range(white, count * 48 / 100, count * 52 / 100);
    image_free(&image);
    image_free(&other);
    intensity_scratch_free(&scratch);
}

/* adjust_gamma and rgb_to_grayscale. */
static void values_are_those_of_the_formulas(void **state)
{
    struct image image = noise(16, 16, 3, 4);
    uint8_t *before = copy_of(&image);
    const double gammas[] = {1, 0.5, 0.7, 1.5, 2.2};
    for (int i = 0; i < 5; i++) {
        memcpy(image.pixels, before, 768);
        colour_gamma(&image, gammas[i]);
        for (int k = 0; k < 768; k++)
            assert_true(fabs(image.pixels[k] - 255 * pow(before[k] / 255.0, gammas[i])) <= 1);
        for (int k = 0; k < 768 && i == 0; k++) assert_int_equal(image.pixels[k], before[k]);
    }
    memcpy(image.pixels, before, 768);
    colour_saturation(&image, 0);
    for (int k = 0; k < 768; k += 3) {
        double grey = 0.2989 * before[k] + 0.587 * before[k + 1] + 0.114 * before[k + 2];
        for (int j = 0; j < 3; j++) assert_true(fabs(image.pixels[k + j] - grey) <= 1);
    }
    free(before);
    image_free(&image);
}

static bool intensity_apply(const struct intensity *intensity, struct image *image, struct random *random,
                            struct intensity_scratch *scratch, struct reason *reason)
{
    struct variation variation = {0};
    uint64_t before = random->next;
    size_t count = (size_t)(image->h * image->w * image->c);
    intensity_draw(intensity, count, random, &variation);
    bool noise = variation.count > 0 && variation.changes[variation.count - 1].kind == CHANGE_NOISE;
    assert_true(!noise || random->next >= before + count / 2);
    return vary_apply(&variation, image, NULL, scratch, reason);
}

/* Deep images become the same as bytes of their range, unrounded. */
static void deep_images_change_alike(void **state)
{
    struct intensity_scratch scratch = {0};
    struct reason reason;
    for (int kind = 0; kind < 4; kind++) {
        const struct intensity intensity = {.gray = kind == 0, .gamma = {kind == 1, 1.5, 1.5},
                                            .blur = {kind == 2, 1, 1}, .noise = {kind == 3, 0.05, 0.05}};
        struct random random = random_open(10, PURPOSE_TEST, 0, 0), again = random;
        struct image bytes = noise(20, 30, 3, 11), deep = {0};
        assert_true(image_resize_deep(&deep, 20, 30, 3, 1000, 1510, &reason));
        for (int i = 0; i < 1800; i++) bytes.pixels[i] = (uint8_t)(60 + bytes.pixels[i] / 2);
        for (int i = 0; i < 1800; i++) image_numbers(&deep)[i] = 1000 + 2 * (float)bytes.pixels[i];
        assert_true(intensity_apply(&intensity, &bytes, &random, &scratch, &reason));
        assert_true(intensity_apply(&intensity, &deep, &again, &scratch, &reason));
        assert_true(random.next == again.next);
        for (int i = 0; i < 1800; i++)
            assert_true(fabs((image_numbers(&deep)[i] - 1000) / 2 - bytes.pixels[i]) <= 1.01);
        image_free(&bytes);
        image_free(&deep);
    }
    intensity_scratch_free(&scratch);
}

/* Each happens as often as is asked, by amounts within the limits; what is off draws nothing. */
static void changes_are_drawn(void **state)
{
    struct intensity_scratch scratch = {0};
    struct reason reason;
    struct image image = noise(1, 1, 3, 5);
    for (int kind = 0; kind < 4; kind++) {
        struct intensity intensity = {
            .gray = kind == 0 ? 0.3 : 0, .gamma = {kind == 1 ? 0.3 : 0, 0.5, 3},
            .blur = {kind == 2 ? 0.3 : 0, 0.5, 1}, .noise = {kind == 3 ? 0.3 : 0, 0.2, 0.3}};
        int changed = 0, lighter = 0, trials = 20000;
        assert_true(intensity_varies(&intensity));
        for (int i = 0; i < trials; i++) {
            struct random random = random_open(6, PURPOSE_AUGMENT, (uint64_t)kind, (uint64_t)i);
            memcpy(image.pixels, (uint8_t[]){200, 100, 50}, 3);
            assert_true(intensity_apply(&intensity, &image, &random, &scratch, &reason));
            bool other = memcmp(image.pixels, (uint8_t[]){200, 100, 50}, 3) != 0;
            changed += kind == 2 ? random.next > 1 : other;      /* one pixel cannot be blurred */
            lighter += kind == 1 && image.pixels[1] > 100;
            /* 100 to the powers of 3 and 1/2. */
            if (kind == 1) assert_in_range(image.pixels[1], 15, 160);
        }
        assert_in_range(changed, trials * 28 / 100, trials * 32 / 100);
        if (kind == 1) assert_in_range(lighter, trials * 13 / 100, trials * 17 / 100);
    }
    struct random random = random_open(7, PURPOSE_TEST, 0, 0);
    const struct intensity none = {.gamma = {0, 0.5, 2}};
    assert_false(intensity_varies(&none));
    assert_true(intensity_apply(&none, &image, &random, &scratch, &reason));
    assert_int_equal(random.next, 0);
    image_free(&image);
    intensity_scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blur_is_a_gaussian),
        cmocka_unit_test(noise_is_normal),
        cmocka_unit_test(values_are_those_of_the_formulas),
        cmocka_unit_test(deep_images_change_alike),
        cmocka_unit_test(changes_are_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
