/* WebP files: pixels, sizes, orientation, and what is damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <webp/encode.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/image/image.h"
#include "data/image/orientation.h"

#include <cmocka.h>            /* last: its macro fail() would hide base/status.h's function */

#define W 19
#define H 11

static const struct image_options colour = {.channels = 3}, grey = {.channels = 1};

static void draw(uint8_t pixels[H * W * 3])
{
    for (int i = 0; i < H * W * 3; i++) pixels[i] = (uint8_t)(i / 3 % W * 11 + i / 3 / W * 17 + i % 3 * 40);
}

static uint8_t *lossless(size_t *count)
{
    uint8_t pixels[H * W * 3], *webp = NULL;
    draw(pixels);
    *count = WebPEncodeLosslessRGB(pixels, W, H, 3 * W, &webp);
    assert_true(*count > 0);
    return webp;
}

static void put(uint8_t **to, const void *bytes, size_t count)
{
    memcpy(*to, bytes, count);
    *to += count;
}

/* An extended file, with an orientation in Exif behind the pixels. */
static uint8_t *oriented(int orientation, bool marked, bool animated, size_t *count)
{
    const uint8_t tiff[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0,
                            (uint8_t)orientation, 0, 0, 0, 0, 0, 0};
    const uint8_t extended[] = {'V', 'P', '8', 'X', 10, 0, 0, 0, animated ? 0x0a : 0x08, 0, 0, 0,
                                W - 1, 0, 0, H - 1, 0, 0};
    size_t plain, more = marked ? 6 : 0;
    uint8_t *webp = lossless(&plain);
    *count = plain + sizeof extended + 8 + more + sizeof tiff;
    uint8_t *file = memory_new(*count, 1), *at = file;
    const uint8_t head[] = {'E', 'X', 'I', 'F', (uint8_t)(sizeof tiff + more), 0, 0, 0};
    put(&at, webp, 12);
    put(&at, extended, sizeof extended);
    put(&at, webp + 12, plain - 12);
    put(&at, head, sizeof head);
    put(&at, "Exif\0", more);
    put(&at, tiff, sizeof tiff);
    file[4] = (uint8_t)(*count - 8), file[5] = (uint8_t)((*count - 8) >> 8);
    WebPFree(webp);
    return file;
}

/* Three quarters of each pixel's own colour, and a quarter of white. */
static void transparency_is_white(void **state)
{
    (void)state;
    uint8_t pixels[H * W * 3], deep[H * W * 4], *webp = NULL;
    struct image image = {0};
    struct reason reason;
    draw(pixels);
    for (int i = 0; i < H * W; i++) {
        memcpy(deep + 4 * i, pixels + 3 * i, 3);
        deep[4 * i + 3] = (uint8_t)(i % 2 ? 192 : 255);
    }
    size_t count = WebPEncodeLosslessRGBA(deep, W, H, 4 * W, &webp);
    assert_true(count > 0);
    assert_true(image_decode(webp, count, colour, NULL, &image, &reason));
    assert_true(image.h == H && image.w == W && image.c == 3);
    for (int i = 0; i < H * W * 3; i++) {
        int alpha = i / 3 % 2 ? 192 : 255, sum = pixels[i] * alpha + 255 * (255 - alpha);
        assert_int_equal(image.pixels[i], (sum + 127) / 255);
    }
    image_free(&image);
    WebPFree(webp);
}

static void pixels_are_those_encoded(void **state)
{
    (void)state;
    uint8_t pixels[H * W * 3], weighted[H * W];
    size_t count;
    uint8_t *webp = lossless(&count);
    struct image image = {0};
    struct reason reason;
    draw(pixels);
    assert_int_equal(image_sniff(webp, count), IMAGE_WEBP);
    assert_true(image_decode(webp, count, colour, NULL, &image, &reason));
    assert_true(image.h == H && image.w == W && image.c == 3 && image.full_h == H);
    assert_memory_equal(image.pixels, pixels, sizeof pixels);
    assert_true(image_decode(webp, count, grey, NULL, &image, &reason));
    image_grey_from_rgb(weighted, pixels, H * W);
    assert_true(image.c == 1);
    assert_memory_equal(image.pixels, weighted, sizeof weighted);
    WebPFree(webp);
    count = WebPEncodeRGB(pixels, W, H, 3 * W, 90, &webp);
    assert_true(image_decode(webp, count, colour, NULL, &image, &reason));
    int far = 0;
    for (int i = 0; i < H * W * 3; i++) far += abs(image.pixels[i] - pixels[i]) > 64;
    assert_in_range(far, 0, H * W / 4);        /* the rest of the edges is chroma at half the resolution */
    WebPFree(webp);
    image_free(&image);
}

static void images_come_out_upright(void **state)
{
    (void)state;
    uint8_t pixels[H * W * 3];
    draw(pixels);
    for (int orientation = 1; orientation <= 8; orientation++)
        for (int marked = 0; marked < 2; marked++) {
            size_t count;
            uint8_t *file = oriented(orientation, marked, false, &count);
            struct image image = {0}, stored = {0};
            struct reason reason;
            assert_int_equal(orientation_of_webp(file, count), orientation);
            assert_true(image_decode(file, count, colour, NULL, &image, &reason));
            const struct image_options as_stored = {.channels = 3, .ignore_orientation = true};
            assert_true(image_decode(file, count, as_stored, NULL, &stored, &reason));
            assert_memory_equal(stored.pixels, pixels, sizeof pixels);
            assert_true(orientation_turn(&stored, orientation, &reason));
            assert_true(image.h == stored.h && image.w == stored.w);
            assert_memory_equal(image.pixels, stored.pixels, sizeof pixels);
            image_free(&image);
            image_free(&stored);
            free(file);
        }
}

static bool choose_none(void *context, int h, int w, struct box *part, struct reason *reason)
{
    (void)context, (void)part;
    assert_true(h == W && w == H);             /* as it stands upright */
    return because(reason, "not this one");
}

static void an_image_may_be_declined(void **state)
{
    (void)state;
    size_t count;
    uint8_t *file = oriented(6, false, false, &count);
    const struct image_choice choice = {choose_none, NULL};
    struct image image = {0};
    struct reason reason;
    assert_false(image_decode(file, count, colour, &choice, &image, &reason));
    assert_string_equal(reason.text, "not this one");
    assert_null(image.pixels);
    free(file);
    file = oriented(1, false, true, &count);
    assert_false(image_decode(file, count, colour, NULL, &image, &reason));
    assert_string_equal(reason.text, "WebP: it is an animation");
    free(file);
}

/* Cut off anywhere before its pixels end it is refused; with any bytes changed it does no harm. */
static void damage_does_no_harm(void **state)
{
    (void)state;
    size_t count;
    uint8_t *file = oriented(6, true, false, &count);
    struct image image = {0};
    struct reason reason;
    for (size_t cut = 0; cut < count - 40; cut++) {
        uint8_t *exact = memory_new(cut ? cut : 1, 1);
        memcpy(exact, file, cut);
        if (image_decode(exact, cut, colour, NULL, &image, &reason)) fail_msg("%zu bytes are enough", cut);
        assert_int_equal(orientation_of_webp(exact, cut), 1);
        free(exact);
    }
    struct random random = random_open(4, PURPOSE_TEST, 0, 0);
    for (int i = 0; i < 3000; i++) {
        uint8_t *other = memory_new(count, 1);
        memcpy(other, file, count);
        for (int k = 0; k < 3; k++)
            other[random_below(&random, (uint32_t)count)] = (uint8_t)random_next(&random);
        if (image_decode(other, count, colour, NULL, &image, &reason)) assert_int_equal(image.c, 3);
        free(other);
    }
    image_free(&image);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_those_encoded),
        cmocka_unit_test(transparency_is_white),
        cmocka_unit_test(images_come_out_upright),
        cmocka_unit_test(an_image_may_be_declined),
        cmocka_unit_test(damage_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
