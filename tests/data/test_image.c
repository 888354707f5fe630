/* Decoding of PNG and JPEG: every kind of file, and every kind of broken file. */
#include <dirent.h>
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>
#include <jpeglib.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/image/image.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

static const struct image_options rgb = {.channels = 3};

static struct image decoded(struct bytes bytes, int channels)
{
    struct image image = {0};
    struct reason reason = {0};
    const struct image_options options = {.channels = channels};
    if (!image_decode(bytes.data, bytes.count, options, NULL, &image, &reason)) fail_msg("%s", reason.text);
    free(bytes.data);
    return image;
}

static void expect_pixel(const struct image *image, int i, int red, int green, int blue, int slack)
{
    const uint8_t *pixel = image->pixels + i * image->c;
    int want[3] = {red, green, blue};
    for (int k = 0; k < 3; k++)
        if (abs(pixel[k] - want[k]) > slack)
            fail_msg("pixel %d is %d,%d,%d, not %d,%d,%d", i, pixel[0], pixel[1], pixel[2], red, green, blue);
}

static void sniffs_by_first_bytes(void **state)
{
    struct bytes png = case_plain_png(1, 1, 1, 2, 3);
    assert_int_equal(image_sniff(png.data, png.count), IMAGE_PNG);
    assert_int_equal(image_sniff(png.data, 7), IMAGE_UNKNOWN);
    assert_int_equal(image_sniff((const uint8_t *)"\xff\xd8\xff\xe0", 4), IMAGE_JPEG);
    assert_int_equal(image_sniff((const uint8_t *)"\xff\xd8\xff", 2), IMAGE_UNKNOWN);
    assert_int_equal(image_sniff((const uint8_t *)"GIF89a..", 8), IMAGE_UNKNOWN);
    free(png.data);
}

static void png_grey_of_every_depth(void **state)
{
    static const struct {
        int depth;
        uint8_t rows[8];       /* two pixels: dark, bright */
        int dark, bright;
    } cases[] = {
        {1, {0x40}, 0, 255}, {2, {0x70}, 85, 255},      {4, {0x3f}, 51, 255},
        {8, {7, 250}, 7, 250}, {16, {9, 128, 0xff, 0xff}, 9 * 256 + 128, 65535},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int channels = 1; channels <= 3; channels += 2) {
            struct bytes png = case_png(2, 1, cases[i].depth, PNG_COLOR_TYPE_GRAY, false, cases[i].rows);
            struct image image = decoded(png, channels);
            assert_int_equal(image.c, channels);
            double dark = image.pixels[0], bright = image.pixels[2 * channels - 1];
            assert_int_equal(image.deep, cases[i].depth == 16);
            if (image.deep) {
                dark = (double)image_numbers(&image)[0];
                bright = (double)image_numbers(&image)[2 * channels - 1];
            }
            assert_true(dark == cases[i].dark && bright == cases[i].bright);
            image_free(&image);
        }
    }
}

static void png_palette_of_every_depth(void **state)
{
    static const uint8_t rows[][2] = {{0x40}, {0x10}, {0x01}, {0, 1}};
    for (int i = 0; i < 4; i++) {
        struct image image = decoded(case_png(2, 1, 1 << i, PNG_COLOR_TYPE_PALETTE, false, rows[i]), 3);
        expect_pixel(&image, 0, 0, 0, 0, 0);
        expect_pixel(&image, 1, 2, 1, 1, 0);
        image_free(&image);
    }
}

static void png_colour_and_alpha(void **state)
{
    struct image image = decoded(case_png(1, 1, 8, PNG_COLOR_TYPE_RGB, false, (uint8_t[]){1, 2, 3}), 3);
    expect_pixel(&image, 0, 1, 2, 3, 0);
    image_free(&image);
    image = decoded(case_png(1, 1, 8, PNG_COLOR_TYPE_RGB_ALPHA, false, (uint8_t[]){9, 8, 7, 51}), 3);
    expect_pixel(&image, 0, 206, 206, 205, 0);      /* 51 of 255 are a fifth; the rest is white */
    image_free(&image);
    image = decoded(case_png(1, 1, 8, PNG_COLOR_TYPE_GRAY_ALPHA, false, (uint8_t[]){77, 255}), 3);
    expect_pixel(&image, 0, 77, 77, 77, 0);
    image_free(&image);
    image = decoded(case_png(1, 1, 16, PNG_COLOR_TYPE_GRAY_ALPHA, false, (uint8_t[]){77, 0, 0, 0}), 1);
    assert_true(image.deep && image_numbers(&image)[0] == 65535);
    image_free(&image);
    image = decoded(case_png(1, 1, 16, PNG_COLOR_TYPE_RGB, false, (uint8_t[]){200, 0, 100, 0, 50, 1}), 3);
    assert_true(image.deep && image_numbers(&image)[0] == 51200 && image_numbers(&image)[2] == 12801);
    struct image bytes = {0};
    struct reason reason;
    assert_true(image_reduce(&image, &(struct image_range){0}, &bytes, &reason));
    expect_pixel(&bytes, 0, 199, 100, 50, 0);
    image_free(&bytes);
    image_free(&image);
    image = decoded(case_png(1, 1, 8, PNG_COLOR_TYPE_RGB, false, (uint8_t[]){255, 0, 0}), 1);
    assert_int_equal(image.pixels[0], 76);
    image_free(&image);
}

static void png_interlaced_equals_plain(void **state)
{
    uint8_t pixels[13 * 11 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 37);
    struct image image = decoded(case_png(13, 11, 8, PNG_COLOR_TYPE_RGB, true, pixels), 3);
    assert_int_equal(image.h, 11);
    assert_int_equal(image.w, 13);
    assert_memory_equal(image.pixels, pixels, sizeof pixels);
    image_free(&image);
}

/* A picture that is not interlaced goes another way; smooth ones make the encoder use every filter. */
static void plain_png_equals_interlaced(void **state)
{
    static const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                PNG_COLOR_TYPE_RGB_ALPHA};
    struct random random = random_open(1, PURPOSE_TEST, 3, 0);
    for (int i = 0; i < 160; i++) {
        int c = 1 + i % 4, w = 1 + (int)random_below(&random, 40), h = 1 + (int)random_below(&random, 40);
        uint8_t *pixels = memory_new((size_t)(w * h * c), 1);
        for (int k = 0; k < w * h * c; k++)
            pixels[k] = (uint8_t)(k / c % w * (i % 7) + k / c / w * (i % 5) +
                                  (int)random_below(&random, 1 + (uint32_t)i % 9));
        for (int channels = 1; channels <= 3; channels += 2) {
            struct image image = decoded(case_png(w, h, 8, types[c - 1], false, pixels), channels);
            struct image other = decoded(case_png(w, h, 8, types[c - 1], true, pixels), channels);
            assert_int_equal(image.c, channels);
            assert_int_equal(image.w, w);
            assert_memory_equal(image.pixels, other.pixels, (size_t)(w * h * channels));
            struct bytes png = case_png(w, h, 8, types[c - 1], false, pixels);
            assert_true(image_decode_png_plain(png.data, png.count, channels, &image));
            free(png.data);
            image_free(&image);
            image_free(&other);
        }
        free(pixels);
    }
}

static uint32_t crc_of(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static void add_chunk(struct bytes *png, const char *type, const uint8_t *data, uint32_t count)
{
    png->data = memory_resize(png->data, png->count + count + 12, 1);
    uint8_t *to = png->data + png->count;
    png_save_uint_32(to, count);
    memcpy(to + 4, type, 4);
    memcpy(to + 8, data, count);
    png_save_uint_32(to + 8 + count, crc_of(to + 4, count + 4));
    png->count += count + 12;
}

/* A file with one data chunk, cut in pieces of `most` bytes with a chunk of `between` (NULL: none) after the
 * second. */
static struct bytes in_pieces(struct bytes whole, uint32_t most, const char *between)
{
    struct bytes png = {0};
    size_t at = 8;
    while (memcmp(whole.data + at + 4, "IDAT", 4) != 0) at += png_get_uint_32(whole.data + at) + 12;
    png.data = memory_new(at, 1);
    png.count = at;
    memcpy(png.data, whole.data, at);
    uint32_t count = png_get_uint_32(whole.data + at);
    for (uint32_t done = 0, pieces = 0; done < count; done += most, pieces++) {
        if (pieces == 2 && between) add_chunk(&png, between, (const uint8_t *)"some", 4);
        add_chunk(&png, "IDAT", whole.data + at + 8 + done, count - done < most ? count - done : most);
    }
    add_chunk(&png, "IDAT", whole.data, 0);
    add_chunk(&png, "IEND", whole.data, 0);
    free(whole.data);
    return png;
}

static void png_data_in_pieces(void **state)
{
    static const struct {
        uint32_t most;
        const char *between;
        bool plain, good;
    } cases[] = {
        {1, NULL, true, true},   {7, NULL, true, true},     {1 << 20, NULL, true, true},
        {7, "abCd", false, false}, {7, "ABCD", false, false},
    };
    uint8_t pixels[13 * 11 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * i * 37);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct image image = {0};
        struct reason reason;
        struct bytes png = in_pieces(case_png(13, 11, 8, PNG_COLOR_TYPE_RGB, false, pixels), cases[i].most,
                                     cases[i].between);
        assert_int_equal(image_decode_png_plain(png.data, png.count, 3, &image), cases[i].plain);
        if (cases[i].plain) assert_memory_equal(image.pixels, pixels, sizeof pixels);
        assert_int_equal(image_decode(png.data, png.count, rgb, NULL, &image, &reason), cases[i].good);
        image_free(&image);
        free(png.data);
    }
}

static struct bytes jpeg_of(int channels, int space, int stored, bool progressive, const uint8_t colour[4])
{
    uint8_t *pixels = memory_new(32 * 16, (size_t)channels);
    for (int i = 0; i < 32 * 16; i++) memcpy(pixels + i * channels, colour, (size_t)channels);
    struct bytes bytes = case_jpeg(32, 16, space, stored, progressive, pixels);
    free(pixels);
    return bytes;
}

static void png_reads_what_is_written(void **state)
{
    static uint8_t pixels[5 * 7 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(37 * i);
    for (int channels = 1; channels <= 3; channels += 2) {
        const struct image written = {.h = 5, .w = 7, .c = channels, .pixels = pixels};
        struct image image = {0};
        struct reason reason;
        uint8_t *bytes;
        size_t count;
        assert_true(image_encode_png(&written, &bytes, &count, &reason));
        const struct image_options options = {.channels = channels};
        assert_true(image_decode(bytes, count, options, NULL, &image, &reason));
        assert_int_equal(image.h, 5);
        assert_int_equal(image.w, 7);
        assert_memory_equal(image.pixels, pixels, 5 * 7 * (size_t)channels);
        image_free(&image);
        free(bytes);
    }
}

static void jpeg_of_every_colour_space(void **state)
{
    /* CMYK is stored inverted: 255 is no ink. */
    static const struct {
        int channels, space, stored;
        uint8_t colour[4];
        int red, green, blue;
    } cases[] = {
        {3, JCS_RGB, JCS_YCbCr, {200, 60, 20}, 200, 60, 20},
        {3, JCS_RGB, JCS_RGB, {200, 60, 20}, 200, 60, 20},
        {1, JCS_GRAYSCALE, JCS_GRAYSCALE, {123}, 123, 123, 123},
        {4, JCS_CMYK, JCS_CMYK, {255, 128, 0, 255}, 255, 128, 0},
        {4, JCS_CMYK, JCS_YCCK, {255, 128, 0, 128}, 128, 64, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int progressive = 0; progressive < 2; progressive++) {
            struct bytes jpeg =
                jpeg_of(cases[i].channels, cases[i].space, cases[i].stored, progressive, cases[i].colour);
            struct image image = decoded(jpeg, 3);
            assert_int_equal(image.w, 32);
            assert_int_equal(image.h, 16);
            expect_pixel(&image, 100, cases[i].red, cases[i].green, cases[i].blue, 3);
            image_free(&image);
        }
        struct image grey = decoded(jpeg_of(cases[i].channels, cases[i].space, cases[i].stored, false,
                                            cases[i].colour), 1);
        int luma = (299 * cases[i].red + 587 * cases[i].green + 114 * cases[i].blue + 500) / 1000;
        assert_in_range(grey.pixels[7], luma > 3 ? luma - 3 : 0, luma + 3);
        image_free(&grey);
    }
}

/* Pillow, OpenCV and Chromium do not ask for Adobe's marker, which libjpeg writes into CMYK files. */
static void jpeg_of_cmyk_without_a_marker(void **state)
{
    static const struct {
        uint8_t inks[4];
        int red, green, blue;
    } cases[] = {
        {{255, 255, 255, 255}, 255, 255, 255}, {{255, 128, 0, 255}, 255, 128, 0}, {{255, 255, 255, 0}, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes jpeg = jpeg_of(4, JCS_CMYK, JCS_CMYK, false, cases[i].inks);
        uint8_t *adobe = memmem(jpeg.data, jpeg.count, "\xff\xee\0\x0e" "Adobe", 9);
        assert_non_null(adobe);
        jpeg.count -= 16;
        memmove(adobe, adobe + 16, jpeg.count - (size_t)(adobe - jpeg.data));
        struct image image = decoded(jpeg, 3);
        expect_pixel(&image, 100, cases[i].red, cases[i].green, cases[i].blue, 3);
        image_free(&image);
    }
}

static void expect_not_decoded(struct bytes bytes, const char *words)
{
    struct image image = {0};
    struct reason reason = {0};
    assert_false(image_decode(bytes.data, bytes.count, rgb, NULL, &image, &reason));
    if (!strstr(reason.text, words)) fail_msg("'%s' does not say '%s'", reason.text, words);
    image_free(&image);
    free(bytes.data);
}

static void jpeg_of_other_kinds_is_refused(void **state)
{
    static const uint8_t colour[4] = {200, 60, 20, 0}, frame[] = {0xff, 0xc0};
    expect_not_decoded(jpeg_of(2, JCS_UNKNOWN, JCS_UNKNOWN, false, colour),
                       "unsupported colour space of 2 components");
    struct bytes deep = jpeg_of(3, JCS_RGB, JCS_YCbCr, false, colour);
    uint8_t *header = memmem(deep.data, deep.count, frame, sizeof frame);
    assert_non_null(header);
    header[4] = 12;
    expect_not_decoded(deep, "12");      /* bits a sample: in the words of libjpeg-turbo 2, or of ours */
}

/* A grey image of 8 x 8 in 1 + 63 x `each` scans: each coefficient by itself, and bit by bit. */
static struct bytes jpeg_in_scans(int each)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    static jpeg_scan_info scans[1 + 63 * 8];
    uint8_t pixels[8] = {1, 40, 90, 30, 200, 5, 255, 0};
    unsigned char *data = NULL;
    unsigned long count = 0;
    JSAMPROW row = pixels;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &data, &count);
    jpeg.image_width = jpeg.image_height = 8;
    jpeg.input_components = 1;
    jpeg.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&jpeg);
    for (int i = 0; i <= 63 * each; i++) {
        int k = (i + each - 1) / each, low = i ? each - 1 - (i - 1) % each : 0;
        scans[i] = (jpeg_scan_info){.comps_in_scan = 1, .Ss = k, .Se = k, .Al = low,
                                    .Ah = low < each - 1 && k ? low + 1 : 0};
    }
    jpeg.scan_info = scans;
    jpeg.num_scans = 1 + 63 * each;
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < 8; y++) jpeg_write_scanlines(&jpeg, &row, 1);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return (struct bytes){data, count};
}

/* Every scan is a pass over all of the image: a small file could ask for days of them. */
static void jpeg_of_many_scans_is_refused(void **state)
{
    struct image image = decoded(jpeg_in_scans(3), 1);
    assert_in_range(image.pixels[4], 195, 205);
    image_free(&image);
    expect_not_decoded(jpeg_in_scans(4), "over 200 scans");
}

/* Every beginning of a good file is refused, and says why. */
static void expect_beginnings_refused(struct bytes bytes)
{
    struct image image = {0};
    for (size_t count = 0; count < bytes.count; count++) {
        struct reason reason = {0};
        uint8_t *cut = memcpy(malloc(count + 1), bytes.data, count);
        if (image_decode(cut, count, rgb, NULL, &image, &reason))
            fail_msg("%zu of %zu bytes decode", count, bytes.count);
        assert_string_not_equal(reason.text, "");
        free(cut);
    }
    image_free(&image);
    free(bytes.data);
}

static uint8_t *noise(size_t count)
{
    struct random random = random_open(1, PURPOSE_TEST, 1, 1);
    uint8_t *pixels = memory_new(count, 1);
    for (size_t i = 0; i < count; i++) pixels[i] = (uint8_t)random_next(&random);
    return pixels;
}

/* Whatever follows a file, it ends where it ends; a beginning of it does not. */
static void expect_extent(struct bytes bytes)
{
    uint8_t *more = memory_new(2 * bytes.count + 1, 1);
    memcpy(more, bytes.data, bytes.count);
    memcpy(more + bytes.count, bytes.data, bytes.count);
    for (size_t count = 0; count <= bytes.count; count++) assert_int_equal(image_extent(more, count), count);
    assert_int_equal(image_extent(more, 2 * bytes.count), bytes.count);
    memset(more + bytes.count, 0xff, bytes.count);
    assert_int_equal(image_extent(more, bytes.count + 1), bytes.count);
    free(more);
    free(bytes.data);
}

static void extents_end_before_what_follows(void **state)
{
    uint8_t *pixels = noise(24 * 17 * 3), webp[] = "RIFF\x0b\0\0\0WEBPVP8L1234";
    expect_extent(case_png(9, 9, 8, PNG_COLOR_TYPE_RGB, true, pixels));
    expect_extent(case_jpeg(24, 17, JCS_RGB, JCS_YCbCr, false, pixels));
    expect_extent(case_jpeg(24, 17, JCS_RGB, JCS_YCbCr, true, pixels));
    expect_extent(case_oriented(case_jpeg(24, 17, JCS_RGB, JCS_YCbCr, false, pixels), 6));
    expect_extent((struct bytes){memcpy(malloc(20), webp, 20), 20});
    /* Fill bytes before a marker, and one that stands alone. */
    const uint8_t odd[] = {0xff, 0xd8, 0xff, 0x01, 0xff, 0xff, 0xff, 0xd9};
    expect_extent((struct bytes){memcpy(malloc(sizeof odd), odd, sizeof odd), sizeof odd});
    assert_int_equal(image_extent((const uint8_t *)"nothing that is known", 21), 21);
    free(pixels);
}

static void truncated_png_is_refused(void **state)
{
    uint8_t *pixels = noise(9 * 9 * 3);
    expect_beginnings_refused(case_png(9, 9, 8, PNG_COLOR_TYPE_RGB, false, pixels));
    expect_beginnings_refused(case_png(9, 9, 8, PNG_COLOR_TYPE_RGB, true, pixels));
    free(pixels);
}

static void truncated_jpeg_is_refused(void **state)
{
    uint8_t *pixels = noise(24 * 17 * 3);
    expect_beginnings_refused(case_jpeg(24, 17, JCS_RGB, JCS_YCbCr, false, pixels));
    expect_beginnings_refused(case_jpeg(24, 17, JCS_RGB, JCS_YCbCr, true, pixels));
    free(pixels);
}

/* Bytes changed at random: anything may come out, but it must come out. */
static void garbled_files_do_no_harm(void **state)
{
    uint8_t *pixels = noise(33 * 17 * 3);
    struct bytes files[] = {
        case_png(33, 17, 8, PNG_COLOR_TYPE_RGB, true, pixels),
        case_jpeg(33, 17, JCS_RGB, JCS_YCbCr, false, pixels),
        case_jpeg(33, 17, JCS_RGB, JCS_YCbCr, true, pixels),
    };
    struct random random = random_open(2, PURPOSE_TEST, 0, 0);
    struct image image = {0};
    for (int i = 0; i < 1500; i++) {
        struct bytes file = files[i % 3];
        uint8_t *copy = memcpy(malloc(file.count), file.data, file.count);
        for (uint32_t k = 0, count = 1 + random_below(&random, 8); k < count; k++)
            copy[3 + random_below(&random, (uint32_t)file.count - 3)] = (uint8_t)random_next(&random);
        struct reason reason = {0};
        const struct image_options options = {.channels = 1 + i % 2 * 2};
        if (!image_decode(copy, file.count, options, NULL, &image, &reason))
            assert_string_not_equal(reason.text, "");
        free(copy);
    }
    image_free(&image);
    for (int i = 0; i < 3; i++) free(files[i].data);
    free(pixels);
}

static void absurd_sizes_are_refused_before_memory(void **state)
{
    struct image image = {0};
    struct reason reason;
    struct bytes png = case_plain_png(1, 1, 0, 0, 0);
    memcpy(png.data + 16, "\0\0\xff\xff\0\0\xff\xff", 8);
    png_save_uint_32(png.data + 29, crc_of(png.data + 12, 17));
    assert_false(image_decode(png.data, png.count, rgb, NULL, &image, &reason));
    assert_non_null(strstr(reason.text, "too many"));
    free(png.data);

    struct bytes jpeg = jpeg_of(3, JCS_RGB, JCS_YCbCr, false, (uint8_t[4]){1, 2, 3});
    for (size_t i = 0; i + 9 < jpeg.count; i++)
        if (jpeg.data[i] == 0xff && jpeg.data[i + 1] == 0xc0) memset(jpeg.data + i + 5, 0xfe, 4);
    assert_false(image_decode(jpeg.data, jpeg.count, rgb, NULL, &image, &reason));
    assert_non_null(strstr(reason.text, "too many"));
    free(jpeg.data);
    assert_int_equal(image.capacity, 0);
    assert_false(image_resize_buffer(&image, 0, 5, 3, &reason));
}

static void missing_and_odd_files_are_named(void **state)
{
    struct image image = {0};
    struct reason reason;
    char *folder = case_folder(), *path = text_format("%s/none.png", folder);
    assert_false(image_load(path, rgb, NULL, &image, &reason));
    assert_non_null(strstr(reason.text, path));
    assert_false(image_load(folder, rgb, NULL, &image, &reason));
    assert_non_null(strstr(reason.text, "not a regular file"));
    case_write(folder, "none.png", "hello", 5);
    assert_false(image_load(path, rgb, NULL, &image, &reason));
    assert_non_null(strstr(reason.text, "neither PNG, JPEG, WebP nor TIFF"));
    case_write(folder, "none.png", "\0\0\0\x1c" "ftypavif\0\0\0\0", 16);
    assert_false(image_load(path, rgb, NULL, &image, &reason));
    assert_non_null(strstr(reason.text, "AVIF is not read; `mogrify -format png FILE` converts it"));
    case_write(folder, "none.png", "", 0);
    assert_false(image_load(path, rgb, NULL, &image, &reason));
    assert_non_null(strstr(reason.text, "empty"));
    assert_int_equal(truncate(path, IMAGE_FILE_BYTES_MAX + INT64_C(1)), 0);
    assert_false(image_load(path, rgb, NULL, &image, &reason));
    assert_non_null(strstr(reason.text, "exceeds 1 GiB"));
    free(path);
    case_remove(folder);
}

/* Calls `check` for every file in a folder. */
static int for_each_file(const char *folder, void (*check)(const char *folder, const char *name))
{
    DIR *directory = opendir(folder);
    if (!directory) return 0;
    struct dirent *entry;
    int count = 0;
    while ((entry = readdir(directory))) {
        char *path = text_format("%s/%s", folder, entry->d_name);
        if (entry->d_type == DT_REG) {
            check(folder, entry->d_name);
            count++;
        } else if (entry->d_name[0] != '.') {
            count += for_each_file(path, check);
        }
        free(path);
    }
    closedir(directory);
    return count;
}

static double number_at(const json_t *list, size_t i)
{
    return (double)json_integer_value(json_array_get(list, i));
}

/* The suite's pixels are RGBA, over white here: NAME.json has them as the file does, 8 or 16 bits. */
static void check_pixels(const char *folder, const char *name, const struct image *image)
{
    char *path = text_format("%s/../json/%.*s.json", folder, (int)strlen(name) - 4, name);
    json_t *want = json_load_file(path, 0, NULL);
    free(path);
    assert_int_equal(json_array_size(want), (size_t)image->h * (size_t)image->w * 4);
    bool wide = name[6] == '1' && name[7] == '6';
    assert_int_equal(image->deep, wide);
    const float *deep = (const float *)(const void *)image->pixels;
    double full = wide ? 65535 : 255;
    for (size_t i = 0; i < (size_t)image->h * (size_t)image->w; i++) {
        double alpha = number_at(want, 4 * i + 3) / full;
        for (size_t k = 0; k < 3; k++) {
            double value = alpha * number_at(want, 4 * i + k) + full * (1 - alpha);
            double got = wide ? (double)deep[3 * i + k] : image->pixels[3 * i + k];
            if (fabs(got - value) > 0.501) fail_msg("%s: pixel %zu is %g, not %g", name, i, got, value);
        }
    }
    json_decref(want);
}

static void check_suite_file(const char *folder, const char *name)
{
    struct image image = {0};
    struct reason reason;
    char *path = text_format("%s/%s", folder, name);
    bool good = image_load(path, rgb, NULL, &image, &reason);
    if (good == (name[0] == 'x')) fail_msg("%s: %s", name, good ? "decodes" : reason.text);
    if (good) check_pixels(folder, name, &image);
    image_free(&image);
    free(path);
}

static void pngsuite_decodes_as_it_should(void **state)
{
    char *path = case_data("pngsuite/pngsuite/png");
    assert_true(for_each_file(path, check_suite_file) > 150);
    free(path);
}

static void check_hard_file(const char *folder, const char *name)
{
    struct image image = {0};
    struct reason reason = {0};
    char *path = text_format("%s/%s", folder, name);
    if (!image_load(path, rgb, NULL, &image, &reason)) assert_string_not_equal(reason.text, "");
    image_free(&image);
    free(path);
}

static void hard_files_do_no_harm(void **state)
{
    char *path = case_data("jpeg-hard");
    assert_true(for_each_file(path, check_hard_file) > 200);
    free(path);
    path = case_data("pngsuite/libpng-testpngs");
    assert_true(for_each_file(path, check_hard_file) > 50);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sniffs_by_first_bytes),
        cmocka_unit_test(png_grey_of_every_depth),
        cmocka_unit_test(png_palette_of_every_depth),
        cmocka_unit_test(png_colour_and_alpha),
        cmocka_unit_test(png_interlaced_equals_plain),
        cmocka_unit_test(plain_png_equals_interlaced),
        cmocka_unit_test(png_data_in_pieces),
        cmocka_unit_test(png_reads_what_is_written),
        cmocka_unit_test(jpeg_of_every_colour_space),
        cmocka_unit_test(jpeg_of_cmyk_without_a_marker),
        cmocka_unit_test(jpeg_of_other_kinds_is_refused),
        cmocka_unit_test(jpeg_of_many_scans_is_refused),
        cmocka_unit_test(extents_end_before_what_follows),
        cmocka_unit_test(truncated_png_is_refused),
        cmocka_unit_test(truncated_jpeg_is_refused),
        cmocka_unit_test(garbled_files_do_no_harm),
        cmocka_unit_test(absurd_sizes_are_refused_before_memory),
        cmocka_unit_test(missing_and_odd_files_are_named),
        cmocka_unit_test(pngsuite_decodes_as_it_should),
        cmocka_unit_test(hard_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
