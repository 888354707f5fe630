/* Random changes of training images: each as torchvision has it, drawn as often as it should be. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/augment/augment.h"
#include "data/augment/colour.h"
#include "data/augment/vary.h"
#include "data/augment/warp.h"
#include "tests/support/unit.h"

static struct image blank(int h, int w, int c, int value)
{
    struct image image = {0};
    struct reason reason;
    assert_true(image_resize_buffer(&image, h, w, c, &reason));
    memset(image.pixels, value, (size_t)(h * w * c));
    return image;
}

/* Values from 20 to 230. */
static struct image sized_picture(int h, int w)
{
    struct image image = blank(h, w, 3, 0);
    for (int i = 0; i < h * w * 3; i++) image.pixels[i] = (uint8_t)(20 + (i * i * 7 + i * 13) % 1009 % 211);
    return image;
}

/* The picture of which the sums below are. */
static struct image picture(void) { return sized_picture(23, 31); }

/* FNV-1a. */
static uint64_t sum_of(const struct image *image)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (int i = 0; i < image->h * image->w * image->c; i++) sum = (sum ^ image->pixels[i]) * 0x100000001b3u;
    return sum;
}

static void warps_are_those_of_torchvision(void **state)
{
    const struct {
        struct warp warp;
        uint64_t sum;          /* of torchvision 0.29's picture */
    } cases[] = {
        {warp_shear(0.33, 0), 0x6de2ba7b6bd15bbb},  {warp_shear(-0.99, 0), 0xfac0cfa1a0ea0a5c},
        {warp_shear(0, 0.7), 0x7b66d6ba812c0dc1},   {warp_shift(9, 0), 0x925565914d3738b},
        {warp_shift(0, -7), 0xd6838c6a1fbd903a},    {warp_turn(45, 23, 31), 0x1b56f374c9bf847a},
        {warp_turn(-121.5, 23, 31), 0x2dcb938ed7e044f3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct image image = picture(), copy = {0};
        struct reason reason;
        assert_true(warp_image(&image, &cases[i].warp, &copy, &reason));
        if (sum_of(&image) != cases[i].sum) fail_msg("warp %zu differs", i);
        image_free(&image);
        image_free(&copy);
    }
}

static void autocontrast(struct image *image, double unused) { (void)unused, colour_autocontrast(image); }
static void equalize(struct image *image, double unused) { (void)unused, colour_equalize(image); }
static void posterize(struct image *image, double bits) { colour_posterize(image, (int)bits); }

static void sharpen(struct image *image, double factor)
{
    struct image copy = {0};
    struct reason reason;
    assert_true(colour_sharpness(image, factor, &copy, &reason));
    image_free(&copy);
}

static void grey(struct image *image, double unused) { (void)unused, colour_saturation(image, 0); }

static void blur(struct image *image, double radius)
{
    struct image copy = {0};
    struct reason reason;
    assert_true(colour_blur(image, radius, &copy, &reason));
    image_free(&copy);
}

static void colours_are_those_of_torchvision(void **state)
{
    static const struct {
        void (*change)(struct image *image, double strength);
        double strength;
        uint64_t sum;          /* of torchvision 0.29's picture */
    } cases[] = {
        {colour_brightness, 1.5, 0xa53360892813f67f}, {colour_brightness, 0.3, 0xacb53574f1e64b2a},
        {colour_saturation, 1.9, 0xe6f32bc8e67c454f}, {colour_saturation, 0.4, 0x100bf4bee1c200bf},
        {colour_contrast, 1.8, 0x51b7d87a95a9745b},   {colour_contrast, 0.6, 0xe0f0199668b6b2a5},
        {sharpen, 1.5, 0x134da205d7370786},           {sharpen, 0.25, 0xa2bc157259607e7c},
        {posterize, 3, 0x9cfc9c8aaebdab77},           {posterize, 7, 0xf7cc3086a724f6e1},
        {colour_solarize, 119, 0xd2ca49f81e6b019d},   {autocontrast, 0, 0x66cd7d12300bed32},
        {colour_solarize, 128, 0x1be1a4c6c5f4c016},   {grey, 0, 0x8a3ac67c8d15ab4a},
        {equalize, 0, 0x8b8b183586f140fc},            {colour_hue, 0.1, 0xe8ee0276c4cd58a3},
        {colour_hue, -0.35, 0xcab8fae1821a847f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct image image = picture();
        cases[i].change(&image, cases[i].strength);
        if (sum_of(&image) != cases[i].sum) fail_msg("change %zu differs", i);
        image_free(&image);
    }
}

/* Pillow 13's, which rounds to bytes between its passes; of small images, beyond their edges. */
static void blur_is_that_of_pillow(void **state)
{
    static const struct {
        int h, w;
        double radius;
        uint64_t sum;
    } cases[] = {
        {23, 31, 0.1, 0x6bad2c3339ce4b3c},    {23, 31, 0.5, 0x2dff8176230e5804},
        {23, 31, 0.7, 0x3067dfd02ee94990},    {23, 31, 1, 0x9ab4e48c1a37471e},
        {23, 31, 1.3, 0xb7bdcb9a277bc0ae},    {23, 31, 1.5, 0xf6bf006adfe0e28e},
        {23, 31, 1.9999, 0xb1a2f670fb3bb4c2}, {23, 31, 2, 0xe540e923ed63fd2c},
        {1, 1, 1.7, 0x41c69018a7624261},      {2, 3, 1.7, 0xa9efb7253e73726b},
        {3, 2, 1.7, 0x2e99c434d817a57f},      {4, 5, 1.7, 0x84d8a3dc055c745},
        {5, 1, 1.7, 0x9d009890f1a224bd},      {1, 4, 1.7, 0xfc72ee6600874b45},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct image image = sized_picture(cases[i].h, cases[i].w);
        blur(&image, cases[i].radius);
        if (sum_of(&image) != cases[i].sum) fail_msg("blur %zu differs", i);
        image_free(&image);
    }
}

static void plain_images_survive(void **state)
{
    for (int c = 1; c <= 3; c += 2) {
        for (int side = 1; side < 4; side++) {
            struct image image = blank(side, side, c, 90);
            autocontrast(&image, 0), equalize(&image, 0), sharpen(&image, 1.9), colour_hue(&image, 0.3);
            colour_contrast(&image, 1.7), colour_saturation(&image, 0.2);
            for (int i = 0; i < side * side * c; i++) assert_in_range(image.pixels[i], 89, 90);
            image_free(&image);
        }
    }
}

/* An image as a policy, and a jitter, change it. */
static bool policy_apply(enum policy policy, struct image *image, struct random *random, struct image *copy,
                         struct reason *reason)
{
    struct variation variation = {0};
    policy_draw(policy, image->h, image->w, random, &variation);
    return vary_apply(&variation, image, copy, NULL, reason);
}

static void jitter(const double amount[4], struct image *image, struct random *random)
{
    struct variation variation = {0};
    policy_jitter(amount, random, &variation);
    assert_true(vary_apply(&variation, image, NULL, NULL, NULL));
}

static struct random stream(int i) { return random_open(11, PURPOSE_AUGMENT, 0, (uint64_t)i); }

/* How often the picture stays as it is, and how often it does not say which way it went. */
static int count_unchanged(enum policy policy, int trials)
{
    struct image image = {0}, copy = {0}, original = picture();
    struct reason reason;
    int unchanged = 0;
    for (int i = 0; i < trials; i++) {
        struct random random = stream(i);
        image_resize_buffer(&image, original.h, original.w, 3, &reason);
        memcpy(image.pixels, original.pixels, 23 * 31 * 3);
        assert_true(policy_apply(policy, &image, &random, &copy, &reason));
        unchanged += sum_of(&image) == sum_of(&original);
    }
    image_free(&image), image_free(&copy), image_free(&original);
    return unchanged;
}

static void expect_share(int count, int trials, double share)
{
    double slack = 5 * sqrt(trials * share * (1 - share));
    if (fabs(count - trials * share) > slack)
        fail_msg("%d of %d are not a share of %g", count, trials, share);
}

/* Identity, one of 14 changes, leaves all as it is; so do 9 at their weakest of 31 levels, posterize at 3
 * of them and solarize at those whose threshold is above the picture's brightest, 230: 0, 1, 2. */
static void trivial_augment_is_drawn_evenly(void **state)
{
    expect_share(count_unchanged(POLICY_TRIVIAL, 20000), 20000, (1 + 9 / 31.0 + 3 / 31.0 + 3 / 31.0) / 14);
    assert_int_equal(count_unchanged(POLICY_NONE, 3), 3);
}

/* Twice in a row identity; or the same change in opposite directions, which seldom gives all back. */
static void rand_augment_changes_twice(void **state)
{
    int unchanged = count_unchanged(POLICY_RAND, 20000);
    assert_true(unchanged > 20000 / 196 - 50 && unchanged < 20000 / 196 + 120);
}

/* Each of the three a third of the time, and nothing else; the blur is of at least 0.1. */
static void three_augment_is_drawn_evenly(void **state)
{
    struct image image = {0}, copy = {0}, original = picture(), turned = picture(), faded = picture();
    struct reason reason;
    int inverted = 0, faint = 0, trials = 6000;
    colour_solarize(&turned, 128), colour_saturation(&faded, 0);
    for (int i = 0; i < trials; i++) {
        struct random random = stream(i);
        image_resize_buffer(&image, original.h, original.w, 3, &reason);
        memcpy(image.pixels, original.pixels, 23 * 31 * 3);
        assert_true(policy_apply(POLICY_THREE, &image, &random, &copy, &reason));
        inverted += sum_of(&image) == sum_of(&turned);
        faint += sum_of(&image) == sum_of(&faded);
        assert_true(sum_of(&image) != sum_of(&original));
    }
    expect_share(inverted, trials, 1 / 3.0);
    expect_share(faint, trials, 1 / 3.0);
    image_free(&image), image_free(&copy), image_free(&original), image_free(&turned), image_free(&faded);
}

/* The largest distance between the shares seen and a uniform distribution over low..high
 * (Kolmogorov and Smirnov): over 1.95 / sqrt(n) once in 1,000 times. */
static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void expect_near_uniform(double *values, int count, double low, double high, double slack)
{
    double most = 0;
    qsort(values, (size_t)count, sizeof *values, compare);
    for (int i = 0; i < count; i++) {
        double share = (values[i] - low) / (high - low);
        most = fmax(most, fmax(fabs(share - (double)i / count), fabs(share - (i + 1.0) / count)));
    }
    if (most > 1.95 / sqrt(count) + slack) fail_msg("%g from uniform", most);
}

/* Expects a uniform distribution of numbers that are rounded to bytes. */
static void expect_uniform(double *values, int count, double low, double high)
{
    expect_near_uniform(values, count, low, high, 0.5 / (high - low));
}

#define TRIALS 4000

/* The variance of a blurred edge's slope is the square of the radius. */
static void three_augment_blurs_by_0_1_to_2(void **state)
{
    static double values[TRIALS];
    int count = 0;
    struct image image = {0}, copy = {0};
    struct reason reason;
    for (int i = 0; count < TRIALS; i++) {
        struct random random = stream(i), again = stream(i);
        if (random_below(&again, 3) != 2) continue;
        image_resize_buffer(&image, 1, 64, 1, &reason);
        for (int x = 0; x < 64; x++) image.pixels[x] = x < 32 ? 0 : 200;
        assert_true(policy_apply(POLICY_THREE, &image, &random, &copy, &reason));
        double variance = 0;
        for (int x = 0; x < 63; x++)
            variance += (image.pixels[x + 1] - image.pixels[x]) / 200.0 * (x - 31) * (x - 31);
        values[count++] = sqrt(variance);
    }
    expect_near_uniform(values, TRIALS, 0.1, 2, 0.06);
    image_free(&image), image_free(&copy);
}

/* Grey has no saturation and, where it is all alike, no contrast: what is left is brightness. */
static void jitter_changes_brightness_evenly(void **state)
{
    double values[TRIALS];
    struct image image = blank(2, 2, 3, 0);
    for (int i = 0; i < TRIALS; i++) {
        struct random random = stream(i);
        memset(image.pixels, 100, 12);
        jitter((double[4]){0.4, 0.7, 0.3, 0.2}, &image, &random);
        values[i] = image.pixels[0] + 0.5;
    }
    expect_uniform(values, TRIALS, 60, 140);
    image_free(&image);
}

static void jitter_changes_contrast_evenly(void **state)
{
    double values[TRIALS];
    struct image image = blank(1, 2, 1, 0);
    for (int i = 0; i < TRIALS; i++) {
        struct random random = stream(i);
        image.pixels[0] = 40, image.pixels[1] = 160;
        jitter((double[4]){0, 1.5, 0, 0}, &image, &random);
        values[i] = image.pixels[1] + 0.5;
    }
    expect_uniform(values, TRIALS, 100, 250);       /* 100 + 60 f, with f from 0 (not below) to 2.5 */
    image_free(&image);
}

static void erased_boxes_have_the_right_distribution(void **state)
{
    static double areas[TRIALS], ratios[TRIALS], left[TRIALS];
    int count = 0;
    for (int i = 0; count < TRIALS; i++) {
        struct random random = stream(i);
        struct box box;
        assert_true(augment_erased_box(3000, 3000, &random, &box));
        assert_true(box.y >= 0 && box.x >= 0 && box.y + box.h <= 3000 && box.x + box.w <= 3000);
        if (random.next > 4) continue;                /* drawn again: long boxes are fewer then */
        areas[count] = box.h * box.w / 9e6, ratios[count] = log((double)box.h / box.w);
        left[count++] = (box.x + 0.5) / (3001 - box.w) ;
    }
    /* Only the smallest 0.09 always fit (0.09 * 3.3 < 0.3 < 1); all but a few do. */
    double mean = 0;
    for (int i = 0; i < TRIALS; i++) mean += areas[i] / TRIALS;
    assert_true(fabs(mean - (0.02 + 1 / 3.0) / 2) < 0.01);
    expect_uniform(ratios, TRIALS, log(0.3), log(3.3));
    expect_uniform(left, TRIALS, 0, 1);
}

static void erasing_blanks_as_often_as_asked(void **state)
{
    struct augment augment = {.channels = 3, .erase = 0.3, .mean = {0.5, 0.5, 0.5}, .std = {1, 1, 1}};
    struct image image = blank(16, 16, 3, 200);
    struct scratch scratch = {0};
    struct reason reason;
    int erased = 0;
    for (int i = 0; i < TRIALS; i++) {
        struct random random = stream(i);
        float out[16 * 16 * 3];
        const struct augmenting how = {&augment, &random, &scratch};
        assert_true(augment_image(&how, &image, &(struct augment_output){16, 16, F32, out}, &reason));
        int blanked = 0;
        for (int k = 0; k < 16 * 16 * 3; k++) blanked += out[k] == 0;
        assert_in_range(blanked, 0, 16 * 16 * 3 * 0.45);
        erased += blanked > 0;
    }
    expect_share(erased, TRIALS, 0.3);
    image_free(&image);
    scratch_free(&scratch);
}

/* The crop comes first: a flipped padded crop is jittered as a whole, black and all. */
static void variation_follows_the_cut(void **state)
{
    struct augment augment = {.channels = 1, .crop = 8, .pad = 3, .random_crop = true, .flip = 1,
                              .policy = POLICY_TRIVIAL, .std = {1}};
    struct image image = blank(8, 8, 1, 100), copy = {0}, whole = {0};
    for (int i = 0; i < 64; i++) image.pixels[i] = (uint8_t)(40 + 3 * i);
    struct scratch scratch = {0};
    struct reason reason;
    for (int i = 0; i < 300; i++) {
        struct random random = stream(i), again = stream(i);
        struct augment plain = augment;
        plain.policy = POLICY_NONE;
        float varied[64], bytes[64];
        const struct augmenting how = {&augment, &random, &scratch}, how_plain = {&plain, &again, &scratch};
        assert_true(augment_image(&how, &image, &(struct augment_output){8, 8, F32, varied}, &reason));
        assert_true(augment_image(&how_plain, &image, &(struct augment_output){8, 8, F32, bytes}, &reason));
        image_resize_buffer(&whole, 8, 8, 1, &reason);
        for (int k = 0; k < 64; k++) whole.pixels[k] = (uint8_t)lround(bytes[k] * 255);
        assert_true(policy_apply(POLICY_TRIVIAL, &whole, &again, &copy, &reason));
        for (int k = 0; k < 64; k++) assert_int_equal(lround(varied[k] * 255), whole.pixels[k]);
    }
    image_free(&image), image_free(&copy), image_free(&whole);
    scratch_free(&scratch);
}

/* 3-Augment is followed by the jitter, other policies follow it. */
static void jitter_follows_three_augment(void **state)
{
    struct augment augment = {.channels = 3, .jitter = {0.4, 0.4, 0.4}, .std = {1, 1, 1}};
    struct image image = picture(), copy = {0}, whole = {0};
    struct scratch scratch = {0};
    struct reason reason;
    for (int i = 0; i < 200; i++) {
        struct random random = stream(i), again = stream(i);
        bool three = i % 2;
        float varied[23 * 31 * 3];
        const struct augmenting how = {&augment, &random, &scratch};
        augment.policy = three ? POLICY_THREE : POLICY_TRIVIAL;
        assert_true(augment_image(&how, &image, &(struct augment_output){23, 31, F32, varied}, &reason));
        image_resize_buffer(&whole, 23, 31, 3, &reason);
        memcpy(whole.pixels, image.pixels, sizeof varied / sizeof *varied);
        if (!three) jitter(augment.jitter, &whole, &again);
        assert_true(policy_apply(augment.policy, &whole, &again, &copy, &reason));
        if (three) jitter(augment.jitter, &whole, &again);
        for (int k = 0; k < 23 * 31 * 3; k++) assert_int_equal(lround(varied[k] * 255), whole.pixels[k]);
    }
    image_free(&image), image_free(&copy), image_free(&whole);
    scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warps_are_those_of_torchvision),
        cmocka_unit_test(colours_are_those_of_torchvision),
        cmocka_unit_test(blur_is_that_of_pillow),
        cmocka_unit_test(plain_images_survive),
        cmocka_unit_test(trivial_augment_is_drawn_evenly),
        cmocka_unit_test(rand_augment_changes_twice),
        cmocka_unit_test(three_augment_is_drawn_evenly),
        cmocka_unit_test(three_augment_blurs_by_0_1_to_2),
        cmocka_unit_test(jitter_changes_brightness_evenly),
        cmocka_unit_test(jitter_changes_contrast_evenly),
        cmocka_unit_test(erased_boxes_have_the_right_distribution),
        cmocka_unit_test(erasing_blanks_as_often_as_asked),
        cmocka_unit_test(variation_follows_the_cut),
        cmocka_unit_test(jitter_follows_three_augment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
