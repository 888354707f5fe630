/* Our reader of coefficients against libjpeg's own: the same pixels of every JPEG, and of broken ones,
 * nothing that libjpeg would not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/image.h"
#include "data_case.h"

#include <cmocka.h>            /* last: its macro fail() would hide base/status.h's function */

/* libjpeg as it is, which takes warnings as they come. */
struct plain {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    uint8_t *pixels;
};

static void on_error(j_common_ptr jpeg) { longjmp(((struct plain *)jpeg)->out, 1); }

static void say_nothing(j_common_ptr jpeg, int level) { (void)jpeg, (void)level; }

static bool decode_plain(struct bytes file, struct plain *plain)
{
    plain->jpeg.err = jpeg_std_error(&plain->errors);
    plain->errors.error_exit = on_error;
    plain->errors.emit_message = say_nothing;
    plain->pixels = NULL;
    if (setjmp(plain->out)) return false;
    jpeg_create_decompress(&plain->jpeg);
    jpeg_mem_src(&plain->jpeg, file.data, file.count);
    jpeg_read_header(&plain->jpeg, TRUE);
    plain->jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&plain->jpeg);
    size_t stride = plain->jpeg.output_width * 3;
    plain->pixels = memory_new(plain->jpeg.output_height, stride);
    for (JDIMENSION y = 0; y < plain->jpeg.output_height; y++) {
        JSAMPROW row = plain->pixels + y * stride;
        jpeg_read_scanlines(&plain->jpeg, &row, 1);
    }
    return true;
}

static bool expect_same(struct bytes file, struct image *image)
{
    struct plain plain = {.pixels = NULL};
    struct reason reason;
    bool ours = image_decode(file.data, file.count, 3, NULL, image, &reason);
    if (ours) {
        assert_true(decode_plain(file, &plain));
        assert_memory_equal(image->pixels, plain.pixels, (size_t)image->h * (size_t)image->w * 3);
        jpeg_destroy_decompress(&plain.jpeg);
    }
    free(plain.pixels);
    return ours;
}

/* From nearly flat to noise, so that blocks end early, late and not at all, with codes of all lengths. */
static uint8_t *make_pixels(int count, int noise, struct random *random)
{
    uint8_t *pixels = memory_new((size_t)count, 3);
    for (int i = 0; i < 3 * count; i++)
        pixels[i] = (uint8_t)(i / 40 + (noise ? (int)random_below(random, (uint32_t)noise) : 0));
    return pixels;
}

static struct bytes make_jpeg(struct random *random)
{
    static const int noises[] = {0, 3, 30, 256};
    int w = 1 + (int)random_below(random, 90), h = 1 + (int)random_below(random, 70);
    uint8_t *pixels = make_pixels(w * h, noises[random_below(random, 4)], random);
    struct case_coding coding = {.down = 1 + (int)random_below(random, 2),
                                 .across = 1 + (int)random_below(random, 2),
                                 .quality = 1 + (int)random_below(random, 100),
                                 .optimized = random_below(random, 2)};
    struct bytes file = case_jpeg_coded(w, h, coding, pixels);
    free(pixels);
    return file;
}

static void every_coefficient_is_the_same(void **state)
{
    (void)state;
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    struct image image = {0};
    for (int i = 0; i < 300; i++) {
        struct bytes file = make_jpeg(&random);
        assert_true(expect_same(file, &image));
        free(file.data);
    }
    image_free(&image);
}

/* A byte of the second half changed, zeroed, made a marker, or all from there on cut off. */
static void damage(struct bytes *file, struct random *random)
{
    size_t at = file->count / 2 + random_below(random, (uint32_t)(file->count / 2));
    switch (random_below(random, 4)) {
    case 0: file->data[at] ^= (uint8_t)(1 << random_below(random, 8)); break;
    case 1: file->data[at] = 0; break;
    case 2: file->data[at] = 0xff; break;
    case 3: file->count = at; break;
    }
}

static void what_is_broken_is_not_better(void **state)
{
    (void)state;
    struct random random = random_open(2, PURPOSE_TEST, 0, 0);
    struct image image = {0};
    int good = 0;
    for (int i = 0; i < 600; i++) {
        struct bytes file = make_jpeg(&random);
        damage(&file, &random);
        uint8_t *exact = memcpy(memory_new(file.count, 1), file.data, file.count);
        free(file.data);
        file.data = exact;             /* so that a byte too many is noticed */
        good += expect_same(file, &image);
        free(file.data);
    }
    assert_in_range(good, 60, 540);
    image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_coefficient_is_the_same),
        cmocka_unit_test(what_is_broken_is_not_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
