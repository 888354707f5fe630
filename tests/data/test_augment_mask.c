/* A mask is cut, resized, padded, mirrored and turned as its image is; crops that must hold some foreground
 * do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/augment.h"
#include "data/image/mask.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define SIDE_MAX 40

/* An image and its mask: classes 0 to `classes` - 1, and MASK_IGNORE; pixels of the image are the classes. */
struct pair {
    struct image image, mask;
};

static struct pair pair_make(struct random *random, int h, int w, int classes)
{
    struct pair pair = {0};
    struct reason reason;
    assert_true(image_resize_buffer(&pair.image, h, w, 1, &reason));
    assert_true(image_resize_buffer(&pair.mask, h, w, 1, &reason));
    for (int i = 0; i < h * w; i++) {
        int class = (int)random_below(random, (uint32_t)classes + 1);
        pair.mask.pixels[i] = class == classes ? MASK_IGNORE : (uint8_t)class;
        pair.image.pixels[i] = pair.mask.pixels[i];
    }
    return pair;
}

static void pair_free(struct pair *pair)
{
    image_free(&pair->image);
    image_free(&pair->mask);
}

static int side(struct random *random) { return 1 + (int)random_below(random, SIDE_MAX); }

/* Writes what the image becomes, as bytes: a table of mean 0 and deviation 1 / 255 keeps them. */
static void apply(const struct augment *augment, struct random *random, const struct cut *cut,
                  const struct image *image, uint8_t *out)
{
    struct scratch scratch = {0};
    struct reason reason;
    const struct augmenting how = {augment, random, &scratch};
    struct augment_table table = augment_table_make(augment, F32);
    size_t count = (size_t)cut->window.h * (size_t)cut->window.w;
    float *values = memory_new(count, sizeof *values);
    assert_true(augment_apply(&how, &table, cut, image, values, &reason));
    for (size_t i = 0; i < count; i++) out[i] = (uint8_t)lrintf(values[i]);
    free(values);
    augment_table_free(&table);
    scratch_free(&scratch);
}

static struct augment augment_of(struct random *random)
{
    return (struct augment){
        .crop = true, .random_crop = random_below(random, 4) > 0, .reflect = random_below(random, 2) > 0,
        .pad = (int)random_below(random, 3), .flip = 0.5, .vflip = 0.5, .channels = 1, .mean = {0},
        .std = {1 / 255.0},
    };
}

/* Without resizing and turning, the mask is to the bit what happens to an image of the same bytes; beyond it
 * the image is black. */
static void masks_are_cut_as_images_are(void **state)
{
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    for (int round = 0; round < rounds(400, 20000); round++) {
        struct augment augment = augment_of(&random);
        int h = side(&random), w = side(&random);
        struct pair pair = pair_make(&random, h, w, 3);
        const struct cut_sizes sizes = {h, w, side(&random), side(&random)};
        struct cut cut;
        struct reason reason;
        if (augment_cut_masked(&augment, &random, &sizes, &pair.mask, &cut, &reason)) {
            uint8_t image[SIDE_MAX * SIDE_MAX], mask[SIDE_MAX * SIDE_MAX];
            apply(&augment, &random, &cut, &pair.image, image);
            augment_mask(&cut, &pair.mask, mask);
            for (int i = 0; i < sizes.h * sizes.w; i++)
                assert_true(mask[i] == image[i] || (mask[i] == MASK_IGNORE && image[i] == 0));
        }
        pair_free(&pair);
    }
}

/* A plain loop: pixel i of `to` shows the middle of its cell in `size` pixels. */
static int plain_nearest(int i, int size, int to, bool reflect)
{
    if (reflect && i < 0) i = -i;
    else if (reflect && i >= to) i = 2 * to - 2 - i;
    return i < 0 || i >= to ? -1 : (int)((i + 0.5) * size / to);
}

static void masks_are_resized_to_the_nearest_pixel(void **state)
{
    struct random random = random_open(2, PURPOSE_TEST, 0, 0);
    for (int round = 0; round < rounds(400, 20000); round++) {
        int h = side(&random), w = side(&random);
        struct pair pair = pair_make(&random, h, w, 4);
        uint8_t mask[SIDE_MAX * SIDE_MAX];
        struct cut cut = {
            .from = {.h = 1 + (int)random_below(&random, (uint32_t)h),
                     .w = 1 + (int)random_below(&random, (uint32_t)w)},
            .h = side(&random), .w = side(&random), .flip = random_below(&random, 2) > 0,
            .vflip = random_below(&random, 2) > 0, .reflect = random_below(&random, 2) > 0,
            .window = {.h = side(&random), .w = side(&random)},
        };
        cut.from.y = (int)random_below(&random, (uint32_t)(h - cut.from.h + 1));
        cut.from.x = (int)random_below(&random, (uint32_t)(w - cut.from.w + 1));
        cut.window.y = (int)random_below(&random, 20) - 10;
        cut.window.x = (int)random_below(&random, 20) - 10;
        augment_mask(&cut, &pair.mask, mask);
        for (int y = 0; y < cut.window.h; y++)
            for (int x = 0; x < cut.window.w; x++) {
                int down = cut.window.y + (cut.vflip ? cut.window.h - 1 - y : y);
                int across = cut.window.x + (cut.flip ? cut.window.w - 1 - x : x);
                int row = plain_nearest(down, cut.from.h, cut.h, cut.reflect);
                int column = plain_nearest(across, cut.from.w, cut.w, cut.reflect);
                int expected = row < 0 || column < 0
                                   ? MASK_IGNORE
                                   : pair.mask.pixels[(cut.from.y + row) * w + cut.from.x + column];
                assert_int_equal(mask[y * cut.window.w + x], expected);
            }
        pair_free(&pair);
    }
}

/* Right angles turn image and mask to the bit, and to the left: the right column becomes the top. */
static void turns_are_those_of_the_image(void **state)
{
    struct random random = random_open(3, PURPOSE_TEST, 0, 0);
    struct augment augment = {.crop = true, .rotate = 180, .channels = 1, .std = {1 / 255.0}};
    for (int turn = -180; turn <= 180; turn += 90) {
        int n = 1 + (int)random_below(&random, 12);
        struct pair pair = pair_make(&random, n, n, 3);
        uint8_t image[SIDE_MAX * SIDE_MAX], mask[SIDE_MAX * SIDE_MAX];
        struct box all = {.h = n, .w = n};
        struct cut cut = {.from = all, .h = n, .w = n, .window = all, .turn = turn == 0 ? 360 : turn};
        apply(&augment, &random, &cut, &pair.image, image);
        augment_mask(&cut, &pair.mask, mask);
        for (int y = 0; y < n; y++)
            for (int x = 0; x < n; x++) {
                int row = turn == 90 ? x : turn == -90 ? n - 1 - x : turn == 0 ? y : n - 1 - y;
                int column = turn == 90 ? n - 1 - y : turn == -90 ? y : turn == 0 ? x : n - 1 - x;
                assert_int_equal(mask[y * n + x], pair.mask.pixels[row * n + column]);
                assert_int_equal(image[y * n + x], pair.image.pixels[row * n + column]);
            }
        pair_free(&pair);
    }
}

/* A pixel, 0 beyond the edges. */
static int pixel_of(const struct image *image, int y, int x)
{
    return y < 0 || y >= image->h || x < 0 || x >= image->w ? 0 : image->pixels[y * image->w + x];
}

/* RandomAffine, by its factors: the image is sheared along x, then along y, then rotated clockwise, all about
 * its middle, and moved. Pixel x, y of the output shows the place of the image that so comes to it. */
static struct place affine(const struct cut *cut, int y, int x)
{
    const double degree = 3.14159265358979323846 / 180, r = -cut->turn * degree;
    double tx = tan(cut->shear[0] * degree), ty = tan(cut->shear[1] * degree);
    double a = cos(r) + sin(r) * ty, b = -tx * cos(r) - sin(r) * (1 + tx * ty);
    double c = sin(r) - cos(r) * ty, d = -tx * sin(r) + cos(r) * (1 + tx * ty);
    double middle_y = cut->window.h / 2.0, middle_x = cut->window.w / 2.0;
    double right = x + 0.5 - middle_x - cut->shift[0], below = y + 0.5 - middle_y - cut->shift[1];
    double determinant = a * d - b * c;
    return (struct place){middle_y + (a * below - c * right) / determinant,
                          middle_x + (d * right - b * below) / determinant};
}

static void sheared_as_by_torchvision(void **state)
{
    struct random random = random_open(8, PURPOSE_TEST, 0, 0);
    struct augment augment = {.crop = true, .shear = {60, 60}, .channels = 1, .std = {1 / 255.0}};
    for (int round = 0; round < 20; round++) {
        int h = side(&random), w = side(&random);
        struct pair pair = pair_make(&random, h, w, 5);
        struct box all = {.h = h, .w = w};
        struct cut cut = {
            .from = all, .h = h, .w = w, .window = all, .flip = round % 2, .vflip = round % 3 == 0,
            .turn = round % 4 ? random_between(&random, -180, 180) : 0,
            .shear = {random_between(&random, -60, 60), round % 5 ? random_between(&random, -60, 60) : 0},
            .shift = {(int)random_below(&random, 9) - 4, (int)random_below(&random, 9) - 4}};
        uint8_t image[SIDE_MAX * SIDE_MAX], mask[SIDE_MAX * SIDE_MAX];
        apply(&augment, &random, &cut, &pair.image, image);
        augment_mask(&cut, &pair.mask, mask);
        for (int i = 0; i < h * w; i++) {
            int y = cut.vflip ? h - 1 - i / w : i / w, x = cut.flip ? w - 1 - i % w : i % w;
            struct place place = affine(&cut, y, x);
            double top = floor(place.y - 0.5), left = floor(place.x - 0.5);
            double down = place.y - 0.5 - top, across = place.x - 0.5 - left, sum = 0;
            for (int k = 0; k < 4; k++)
                sum += (k / 2 ? down : 1 - down) * (k % 2 ? across : 1 - across) *
                       pixel_of(&pair.image, (int)top + k / 2, (int)left + k % 2);
            assert_true(fabs(image[i] - sum) <= 0.51);
            double near = 1e-9, fy = place.y - floor(place.y), fx = place.x - floor(place.x);
            if (fy < near || fy > 1 - near || fx < near || fx > 1 - near) continue;
            bool outside = place.y < 0 || place.y >= h || place.x < 0 || place.x >= w;
            int class = outside ? MASK_IGNORE : pair.mask.pixels[(int)place.y * w + (int)place.x];
            assert_int_equal(mask[i], class);
        }
        pair_free(&pair);
    }
}

/* Angles and distances are uniform; a translation alone moves the window, and with it image and mask. */
static void affine_is_drawn(void **state)
{
    struct augment augment = {.crop = true, .channels = 1, .std = {1}, .translate = {0.25, 0.5}};
    const struct cut_sizes sizes = {40, 80, 40, 80};
    int trials = 20000, angles[4] = {0}, across[41] = {0}, down[41] = {0};
    for (int turned = 0; turned < 2; turned++) {
        augment.shear[0] = 20 * turned;
        for (int i = 0; i < trials; i++) {
            struct random random = random_open(9, PURPOSE_AUGMENT, (uint64_t)turned, (uint64_t)i);
            struct reason reason;
            struct cut cut;
            assert_true(augment_cut(&augment, &random, &sizes, &cut, &reason));
            int x = turned ? cut.shift[0] : -cut.window.x, y = turned ? cut.shift[1] : -cut.window.y;
            assert_true(x >= -20 && x <= 20 && y >= -20 && y <= 20);
            const int *shift = cut.shift;
            assert_true(turned ? cut.window.x == 0 && cut.window.y == 0 : shift[0] == 0 && shift[1] == 0);
            assert_true(cut.shear[1] == 0 && fabs(cut.shear[0]) <= (turned ? 20 : 0));
            if (turned) angles[(int)((cut.shear[0] + 20) / 10.001)]++;
            across[x + 20]++;
            down[y + 20]++;
        }
    }
    for (int i = 0; i < 4; i++) assert_in_range(angles[i], trials / 4 - 300, trials / 4 + 300);
    for (int i = 1; i < 40; i++) {
        assert_in_range(across[i], trials / 20 - 160, trials / 20 + 160);
        assert_in_range(down[i], trials / 20 - 160, trials / 20 + 160);
    }
}

/* Image and mask of one soft disc: where the mask says inside, the image is bright, whatever the crop. */
static void turned_images_and_masks_show_the_same(void **state)
{
    struct random random = random_open(4, PURPOSE_TEST, 0, 0);
    struct augment augment = {.crop = true, .random_crop = true, .pad = 4, .flip = 0.5, .vflip = 0.5,
                              .rotate = 180, .resize = {30, 30}, .channels = 1, .std = {1 / 255.0}};
    for (int round = 0; round < rounds(100, 3000); round++) {
        struct pair pair = pair_make(&random, 40, 52, 2);
        for (int i = 0; i < 40 * 52; i++) {
            bool inside = hypot(i / 52 - 18.0, i % 52 - 20.0) < 9;
            pair.mask.pixels[i] = inside;
            pair.image.pixels[i] = inside ? 200 : 100;
        }
        const struct cut_sizes sizes = {40, 52, 24, 26};
        struct cut cut;
        struct reason reason;
        uint8_t image[SIDE_MAX * SIDE_MAX], mask[SIDE_MAX * SIDE_MAX];
        assert_true(augment_cut_masked(&augment, &random, &sizes, &pair.mask, &cut, &reason));
        assert_true(cut.turn != 0);
        apply(&augment, &random, &cut, &pair.image, image);
        augment_mask(&cut, &pair.mask, mask);
        int wrong = 0, seen = 0;
        for (int i = 0; i < 24 * 26; i++) {
            seen += mask[i] == 1;
            wrong += mask[i] == MASK_IGNORE ? image[i] > 160 : (mask[i] == 1) != (image[i] > 150);
        }
        /* On the edge of the disc, and of the image, the two may round differently. */
        if (wrong > 30) fail_msg("round %d: %d of %d pixels differ", round, wrong, seen);
        pair_free(&pair);
    }
}

/* The place in the image that a pixel of a turned crop shows, by plain arithmetic. */
static struct place place_in_image(const struct cut *cut, int y, int x)
{
    double angle = cut->turn * acos(-1) / 180, h = cut->window.h, w = cut->window.w;
    double down = (cut->vflip ? h - 1 - y : y) + 0.5 - h / 2;
    double across = (cut->flip ? w - 1 - x : x) + 0.5 - w / 2;
    double row = cut->window.y + h / 2 + sin(angle) * across + cos(angle) * down;
    double column = cut->window.x + w / 2 + cos(angle) * across - sin(angle) * down;
    return (struct place){row * cut->from.h / cut->h, column * cut->from.w / cut->w};
}

/* A slope stays one, resized and turned, and the mask, which counts columns, is that of the nearest one.
 * Returns the number of pixels that lie in the image around the box. */
static int compare_with_slope(const struct cut *cut, const struct box *box, const uint8_t *image,
                              const uint8_t *mask)
{
    int around = 0;
    for (int i = 0; i < cut->window.h * cut->window.w; i++) {
        struct place place = place_in_image(cut, i / cut->window.w, i % cut->window.w);
        if (place.y < 3 || place.y > cut->from.h - 3 || place.x < 3 || place.x > cut->from.w - 3) continue;
        around += place.y < box->y || place.y > box->y + box->h || place.x < box->x ||
                  place.x > box->x + box->w;
        assert_true(fabs(image[i] - (2 * (place.y - 0.5) + 3 * (place.x - 0.5))) < 1.5);
        assert_true(fabs(mask[i] + 0.5 - place.x) < 0.5001);
    }
    return around;
}

/* The whole image is resized as the box is, and the window lies where the box does, to half a pixel. */
static void assert_widened(const struct cut *cut, const struct cut *box)
{
    double down = (double)box->h / box->from.h, across = (double)box->w / box->from.w;
    assert_true(cut->from.y == 0 && cut->from.x == 0 && cut->from.h == 40 && cut->from.w == 52);
    assert_true(fabs(cut->h - 40 * down) <= 0.5 && fabs(cut->w - 52 * across) <= 0.5);
    assert_true(fabs(cut->window.y - box->from.y * down) <= 0.5);
    assert_true(fabs(cut->window.x - box->from.x * across) <= 0.5);
}

static void boxes_are_not_widened_beyond_measure(void **state)
{
    const struct cut_sizes sizes = {40000, 40000, 1000, 1000};
    struct cut cut = {.from = {7, 9, 1, 2}, .h = 1000, .w = 1000, .window = {0, 0, 1000, 1000}, .turn = 3};
    augment_widen(&sizes, &cut);
    assert_true(cut.from.y == 7 && cut.from.w == 2 && cut.h == 1000 && cut.window.x == 0);
}

/* Boxes that are resized and turned show what lies around them in the image, as other crops do. */
static void turned_boxes_show_what_is_around_them(void **state)
{
    struct random random = random_open(8, PURPOSE_TEST, 0, 0);
    struct augment augment = {.crop = true, .random_resized = true, .scale = {0.2, 0.6},
                              .ratio = {0.75, 1.33}, .flip = 0.5, .vflip = 0.5, .rotate = 180, .channels = 1,
                              .std = {1 / 255.0}};
    int around = 0;
    for (int round = 0; round < rounds(100, 3000); round++) {
        struct pair pair = pair_make(&random, 40, 52, 2);
        for (int i = 0; i < 40 * 52; i++) {
            pair.mask.pixels[i] = (uint8_t)(i % 52);
            pair.image.pixels[i] = (uint8_t)(2 * (i / 52) + 3 * (i % 52));
        }
        augment.reflect = round % 2;
        const struct cut_sizes sizes = {40, 52, 24, 26};
        struct random same = random;
        struct cut cut, box;
        struct reason reason;
        uint8_t image[SIDE_MAX * SIDE_MAX], mask[SIDE_MAX * SIDE_MAX];
        assert_true(augment_cut_masked(&augment, &random, &sizes, &pair.mask, &cut, &reason));
        apply(&augment, &random, &cut, &pair.image, image);
        augment_mask(&cut, &pair.mask, mask);
        assert_true(augment_place(&augment, &same, &sizes, &box, &reason));
        assert_widened(&cut, &box);
        around += compare_with_slope(&cut, &box.from, image, mask);
        pair_free(&pair);
    }
    assert_true(around > rounds(100, 3000) * 20);
}

static void crops_hold_the_foreground_that_is_asked_for(void **state)
{
    struct random random = random_open(5, PURPOSE_TEST, 0, 0);
    for (int kind = 0; kind < 4; kind++) {
        int with = 0, count = rounds(300, 10000);
        for (int round = 0; round < count; round++) {
            int h = 20 + side(&random), w = 20 + side(&random), size = 8;
            struct augment augment = {
                .crop = true, .random_crop = kind != 1, .random_resized = kind == 1, .scale = {0.1, 0.5},
                .ratio = {0.75, 1.33}, .pad = kind == 2 ? 3 : 0, .rotate = kind == 3 ? 45 : 0,
                .foreground = round % 2 ? 1 : 0.5, .channels = 1, .std = {1},
            };
            struct pair pair = pair_make(&random, h, w, 1);
            memset(pair.mask.pixels, 0, (size_t)h * (size_t)w);
            /* Where a crop is made smaller, the outermost pixels may not be the nearest ones to any. */
            int edge = kind == 1 ? 4 : 0;
            int y = edge + (int)random_below(&random, (uint32_t)(h - 2 * edge));
            pair.mask.pixels[y * w + edge + (int)random_below(&random, (uint32_t)(w - 2 * edge))] = 2;
            if (round % 3 == 0) pair.mask.pixels[random_below(&random, (uint32_t)(h * w))] = MASK_IGNORE;
            const struct cut_sizes sizes = {h, w, size, size};
            struct cut cut;
            struct reason reason;
            uint8_t mask[64];
            assert_true(augment_cut_masked(&augment, &random, &sizes, &pair.mask, &cut, &reason));
            augment_mask(&cut, &pair.mask, mask);
            bool there = memchr(mask, 2, sizeof mask) != NULL;
            /* One pixel may have been made one that is ignored. */
            if (round % 2 && memchr(pair.mask.pixels, 2, (size_t)h * (size_t)w)) assert_true(there);
            if (round % 2 == 0) with += there;
            pair_free(&pair);
        }
        assert_in_range(with, count / 6, count / 2);
    }
}

static void classes_of_the_foreground_are_as_likely(void **state)
{
    struct random random = random_open(6, PURPOSE_TEST, 0, 0);
    struct augment augment = {.crop = true, .random_crop = true, .foreground = 1, .channels = 1, .std = {1}};
    struct pair pair = pair_make(&random, 40, 40, 1);
    int rare = 0;
    memset(pair.mask.pixels, 0, 1600);
    memset(pair.mask.pixels, 1, 400);
    pair.mask.pixels[1500] = 2;
    for (int round = 0; round < 400; round++) {
        const struct cut_sizes sizes = {40, 40, 4, 4};
        struct cut cut;
        struct reason reason;
        uint8_t mask[16];
        assert_true(augment_cut_masked(&augment, &random, &sizes, &pair.mask, &cut, &reason));
        augment_mask(&cut, &pair.mask, mask);
        rare += memchr(mask, 2, sizeof mask) != NULL;
    }
    assert_in_range(rare, 150, 250);
    pair_free(&pair);
}

static void nothing_is_drawn_for_what_is_not_asked(void **state)
{
    struct random one = random_open(7, PURPOSE_TEST, 0, 0), other = one;
    struct pair pair = pair_make(&one, 30, 30, 3);
    struct augment augment = {.crop = true, .random_crop = true, .flip = 0.5, .channels = 1, .std = {1}};
    const struct cut_sizes sizes = {30, 30, 8, 8}, larger = {31, 30, 8, 8};
    struct cut masked, plain;
    struct reason reason;
    other = one;
    assert_true(augment_cut_masked(&augment, &one, &sizes, &pair.mask, &masked, &reason));
    assert_true(augment_cut(&augment, &other, &sizes, &plain, &reason));
    assert_memory_equal(&masked.window, &plain.window, sizeof plain.window);
    assert_int_equal(random_next(&one), random_next(&other));
    assert_false(augment_cut_masked(&augment, &one, &larger, &pair.mask, &masked, &reason));
    assert_string_equal(reason.text, "30x31 pixels, but the mask has 30x30");
    pair_free(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_cut_as_images_are),
        cmocka_unit_test(masks_are_resized_to_the_nearest_pixel),
        cmocka_unit_test(turns_are_those_of_the_image),
        cmocka_unit_test(turned_images_and_masks_show_the_same),
        cmocka_unit_test(turned_boxes_show_what_is_around_them),
        cmocka_unit_test(boxes_are_not_widened_beyond_measure),
        cmocka_unit_test(sheared_as_by_torchvision),
        cmocka_unit_test(affine_is_drawn),
        cmocka_unit_test(crops_hold_the_foreground_that_is_asked_for),
        cmocka_unit_test(classes_of_the_foreground_are_as_likely),
        cmocka_unit_test(nothing_is_drawn_for_what_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
