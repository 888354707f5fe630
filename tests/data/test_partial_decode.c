/* Decoding a part of an image gives the same pixels as decoding all of it. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/image/image.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

static const struct image_options rgb = {.channels = 3};

/* A part drawn at random, remembered. */
struct drawn {
    struct random random;
    int h, w;
    struct box part;
};

static void draw_stretch(struct random *random, int size, int *from, int *count)
{
    *count = 1 + (int)random_below(random, (uint32_t)(random_next(random) % 2 ? size : (size + 7) / 8));
    *from = (int)random_below(random, (uint32_t)(size - *count + 1));
}

static bool draw_part(void *context, int h, int w, struct box *part, struct reason *reason)
{
    (void)reason;
    struct drawn *drawn = context;
    draw_stretch(&drawn->random, h, &drawn->part.y, &drawn->part.h);
    draw_stretch(&drawn->random, w, &drawn->part.x, &drawn->part.w);
    drawn->h = h;
    drawn->w = w;
    *part = drawn->part;
    return true;
}

static void expect_part(const char *name, const struct image *whole, const struct image *image,
                        const struct drawn *drawn)
{
    const struct box *part = &drawn->part;
    assert_int_equal(drawn->h, whole->h);
    assert_int_equal(drawn->w, whole->w);
    assert_int_equal(image->full_h, whole->h);
    assert_int_equal(image->full_w, whole->w);
    assert_true(image->top <= part->y && image->top + image->h >= part->y + part->h);
    assert_true(image->left <= part->x && image->left + image->w >= part->x + part->w);
    size_t c = (size_t)whole->c;
    for (int y = part->y; y < part->y + part->h; y++) {
        const uint8_t *want = whole->pixels + ((size_t)y * (size_t)whole->w + (size_t)part->x) * c;
        const uint8_t *got = image->pixels + ((size_t)(y - image->top) * (size_t)image->w +
                                              (size_t)(part->x - image->left)) * c;
        if (memcmp(got, want, (size_t)part->w * c) != 0)
            fail_msg("%s: row %d differs in the part %d,%d %d x %d", name, y, part->y, part->x, part->h,
                     part->w);
    }
}

/* An image that decodes whole must decode in parts, to the same pixels. */
static bool check_parts(const char *name, struct bytes bytes, int channels, int parts)
{
    struct image whole = {0}, image = {0};
    struct reason reason;
    const struct image_options options = {.channels = channels};
    bool good = image_decode(bytes.data, bytes.count, options, NULL, &whole, &reason);
    struct drawn drawn = {.random = random_open(3, PURPOSE_TEST, bytes.count, (uint64_t)channels)};
    struct image_choice choice = {.choose = draw_part, .context = &drawn};
    for (int i = 0; i < parts; i++) {
        bool part = image_decode(bytes.data, bytes.count, options, &choice, &image, &reason);
        if (good && !part) fail_msg("%s: %s", name, reason.text);
        if (good) expect_part(name, &whole, &image, &drawn);
    }
    image_free(&whole);
    image_free(&image);
    free(bytes.data);
    return good;
}

/* Smooth colours with edges: what chroma between its samples depends on. */
static uint8_t *picture(int w, int h)
{
    uint8_t *pixels = memory_new((size_t)w * (size_t)h, 3);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            uint8_t *pixel = pixels + 3 * (y * w + x);
            pixel[0] = (uint8_t)(x * 5 + y);
            pixel[1] = (uint8_t)(x % 13 * 19);
            pixel[2] = (uint8_t)(y % 11 * 23 ^ x);
        }
    return pixels;
}

static void every_sampling_of_chroma(void **state)
{
    static const int sizes[][2] = {{97, 61}, {64, 48}, {7, 90}, {131, 3}};
    for (int i = 0; i < 4; i++) {
        int w = sizes[i][0], h = sizes[i][1];
        uint8_t *pixels = picture(w, h);
        for (int kind = 0; kind < 32; kind++) {
            int down = kind & 3, across = kind >> 2 & 3;
            if (down == 2 || across == 2) continue;
            down = down == 3 ? 4 : 1 + down, across = across == 3 ? 4 : 1 + across;
            if (down * across > 8) continue;
            for (int progressive = 0; progressive < 2; progressive++) {
                int restart = kind & 16 ? 3 : 0;
                char *name = text_format("%d x %d, chroma %d x %d, progressive %d", w, h, down, across,
                                         progressive);
                struct jpeg_sampling sampling = {down, across, restart, progressive};
                struct bytes bytes = case_jpeg_sampled(w, h, sampling, pixels);
                assert_true(check_parts(name, bytes, 3, 30));
                free(name);
            }
        }
        free(pixels);
    }
}

static void every_orientation(void **state)
{
    uint8_t *pixels = picture(97, 61);
    for (int orientation = 1; orientation <= 8; orientation++)
        for (int progressive = 0; progressive < 2; progressive++) {
            struct bytes bytes =
                case_jpeg_sampled(97, 61, (struct jpeg_sampling){2, 2, 0, progressive}, pixels);
            assert_true(check_parts("an oriented one", case_oriented(bytes, orientation), 3, 40));
        }
    free(pixels);
}

static void every_colour_space(void **state)
{
    static const int kinds[][2] = {
        {JCS_RGB, JCS_YCbCr}, {JCS_RGB, JCS_RGB},    {JCS_GRAYSCALE, JCS_GRAYSCALE},
        {JCS_CMYK, JCS_CMYK}, {JCS_CMYK, JCS_YCCK},
    };
    uint8_t *pixels = picture(80, 40);
    for (int i = 0; i < 5; i++)
        for (int channels = 1; channels <= 3; channels += 2)
            assert_true(check_parts("colours",
                                    case_jpeg(50, 40, kinds[i][0], kinds[i][1], false, pixels), channels,
                                    20));
    assert_true(check_parts("PNG", case_png(50, 40, 8, 2, true, pixels), 3, 5));
    free(pixels);
}

/* Without so many of its last scans a progressive image is one that libjpeg smooths over. */
static struct bytes without_scans(struct bytes bytes, int scans)
{
    size_t at = bytes.count - 2;
    for (; scans > 0; scans--)
        do at--;
        while (bytes.data[at] != 0xff || bytes.data[at + 1] != 0xc4);       /* each scan has its own DHT */
    bytes.data[at + 1] = 0xd9;
    bytes.count = at + 2;
    return bytes;
}

static void what_scans_left_out_does_not_depend_on_the_part(void **state)
{
    uint8_t *pixels = picture(97, 61);
    struct jpeg_sampling sampling = {2, 2, 0, true};
    for (int scans = 1; scans < 8; scans++)
        assert_true(check_parts("scans left out",
                                without_scans(case_jpeg_sampled(97, 61, sampling, pixels), scans),
                                3, 50));
    free(pixels);
}

/* The end is not decoded for a part at the top, but it must be there. */
static void truncated_files_are_noticed(void **state)
{
    uint8_t *pixels = picture(64, 200);
    struct image image = {0};
    for (int progressive = 0; progressive < 2; progressive++) {
        struct bytes bytes = case_jpeg_sampled(64, 200, (struct jpeg_sampling){2, 2, 0, progressive}, pixels);
        for (size_t count = bytes.count - 1; count > bytes.count / 2; count -= 7) {
            struct drawn drawn = {.random = random_open(4, PURPOSE_TEST, count, 0)};
            struct image_choice choice = {.choose = draw_part, .context = &drawn};
            struct reason reason = {0};
            uint8_t *cut = memcpy(malloc(count), bytes.data, count);
            if (image_decode(cut, count, rgb, &choice, &image, &reason))
                fail_msg("%zu of %zu bytes decode", count, bytes.count);
            free(cut);
        }
        free(bytes.data);
    }
    image_free(&image);
    free(pixels);
}

static bool refuse(void *context, int h, int w, struct box *part, struct reason *reason)
{
    (void)context, (void)part;
    return because(reason, "%d x %d is not wanted", w, h);
}

static void a_refusal_ends_it(void **state)
{
    struct image image = {0};
    struct image_choice choice = {.choose = refuse};
    uint8_t *pixels = picture(20, 10);
    struct bytes files[] = {case_jpeg_sampled(20, 10, (struct jpeg_sampling){1, 1, 0, false}, pixels),
                            case_png(20, 10, 8, 2, false, pixels)};
    for (int i = 0; i < 2; i++) {
        struct reason reason;
        assert_false(image_decode(files[i].data, files[i].count, rgb, &choice, &image, &reason));
        assert_string_equal(reason.text, "20 x 10 is not wanted");
        free(files[i].data);
    }
    image_free(&image);
    free(pixels);
}

/* Returns how many files of a folder and those in it decode. */
static int check_folder(const char *folder, int parts)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    int good = 0;
    while (directory && (entry = readdir(directory))) {
        char *path = text_format("%s/%s", folder, entry->d_name);
        if (entry->d_type == DT_REG)
            good += check_parts(path, case_read(path), 3, parts);
        else if (entry->d_name[0] != '.')
            good += check_folder(path, parts);
        free(path);
    }
    if (directory) closedir(directory);
    return good;
}

static void photographs(void **state)
{
    char *path = case_data("imagenet-sample");
    assert_int_equal(check_folder(path, 3), 200);
    free(path);
}

static void hard_files(void **state)
{
    char *path = case_data("jpeg-hard");
    assert_true(check_folder(path, 4) > 20);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sampling_of_chroma), cmocka_unit_test(every_orientation),
        cmocka_unit_test(every_colour_space),
        cmocka_unit_test(what_scans_left_out_does_not_depend_on_the_part),
        cmocka_unit_test(truncated_files_are_noticed), cmocka_unit_test(a_refusal_ends_it),
        cmocka_unit_test(photographs), cmocka_unit_test(hard_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
