/* JPEG files of the usual kind: those taken must be whole and sound, and no others are taken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <jpeglib.h>

#include "base/memory.h"
#include "base/text.h"
#include "data/image/jpeg_plain.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

#define W 45
#define H 31

static uint8_t *noise(int channels)
{
    static uint8_t pixels[W * H * 4];
    for (int i = 0; i < W * H * channels; i++) pixels[i] = (uint8_t)(i * 97 + i / 7 * 31 + i / W);
    return pixels;
}

static bool is_plain(struct bytes file)
{
    struct jpeg_plain plain;
    uint8_t *exact = memory_new(file.count, 1);        /* so that a read beyond its end is seen */
    memcpy(exact, file.data, file.count);
    bool taken = jpeg_plain(exact, file.count, &plain);
    if (taken) assert_true(plain.count <= file.count && plain.h > 0 && plain.w > 0);
    free(exact);
    return taken;
}

static void expect(struct bytes file, bool taken)
{
    bool found = is_plain(file);
    free(file.data);
    assert_int_equal(found, taken);
}

static void takes_the_usual_ones(void **state)
{
    for (int down = 1; down <= 2; down++) {
        for (int across = 1; across <= 2; across++) {
            struct jpeg_plain plain = {0};
            struct jpeg_sampling sampling = {down, across, 0, false};
            struct bytes file = case_jpeg_sampled(W, H, sampling, noise(3));
            assert_true(jpeg_plain(file.data, file.count, &plain));
            assert_int_equal(plain.h, H);
            assert_int_equal(plain.w, W);
            assert_int_equal(plain.c, 3);
            assert_int_equal(plain.count, file.count);
            free(file.data);
        }
    }
    expect(case_jpeg(W, H, JCS_GRAYSCALE, JCS_GRAYSCALE, false, noise(1)), true);
}

static void leaves_out_what_follows_the_image(void **state)
{
    struct bytes file = case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 2, 0, false}, noise(3));
    size_t count = file.count;
    file.data = memory_resize(file.data, count + 5, 1);
    memcpy(file.data + count, "\xff\xd8\xff\x01\x02", 5);
    file.count += 5;
    struct jpeg_plain plain;
    assert_true(jpeg_plain(file.data, file.count, &plain));
    assert_int_equal(plain.count, count);
    free(file.data);
}

static void refuses_other_kinds(void **state)
{
    /* Progressive; with restarts; 4:1:1. */
    expect(case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 2, 0, true}, noise(3)), false);
    expect(case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 2, 4, false}, noise(3)), false);
    expect(case_jpeg_sampled(W, H, (struct jpeg_sampling){1, 4, 0, false}, noise(3)), false);
    expect(case_jpeg(W, H, JCS_RGB, JCS_RGB, false, noise(3)), false);
    expect(case_jpeg(W, H, JCS_CMYK, JCS_CMYK, false, noise(4)), false);
    expect(case_jpeg(W, H, JCS_CMYK, JCS_YCCK, false, noise(4)), false);
    expect(case_plain_png(W, H, 1, 2, 3), false);
}

static void refuses_every_beginning(void **state)
{
    struct bytes file = case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 2, 0, false}, noise(3));
    for (size_t count = 0; count < file.count; count++)
        assert_false(is_plain((struct bytes){file.data, count}));
    free(file.data);
}

/* The first segment of a kind. */
static uint8_t *segment_of(struct bytes file, uint8_t marker)
{
    for (size_t i = 2; i + 3 < file.count && file.data[i] == 0xff;) {
        if (file.data[i + 1] == marker) return file.data + i;
        i += 2 + ((size_t)file.data[i + 2] << 8 | file.data[i + 3]);
    }
    fail_msg("there is no segment %02x", marker);
    return NULL;
}

/* Breaks one byte, at `offset` of the first segment of that kind. */
static void expect_refused_with(uint8_t marker, size_t offset, uint8_t value)
{
    struct bytes file = case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 2, 0, false}, noise(3));
    assert_true(is_plain(file));
    uint8_t *byte = segment_of(file, marker) + offset;
    assert_int_not_equal(*byte, value);
    *byte = value;
    if (is_plain(file)) fail_msg("segment %02x with %02x at %zu is taken", marker, value, offset);
    free(file.data);
}

static void refuses_tables_that_make_no_sense(void **state)
{
    expect_refused_with(0xdb, 4, 7);           /* number of a quantization table */
    expect_refused_with(0xdb, 4, 0x10);        /* 16 bits */
    expect_refused_with(0xdb, 20, 0);          /* division by nothing */
    expect_refused_with(0xdb, 1, 0xfe);        /* a comment instead: the table is missing */
    expect_refused_with(0xc4, 1, 0xfe);
    expect_refused_with(0xc4, 4, 0x20);        /* class of a Huffman table */
    expect_refused_with(0xc4, 4, 0x03);        /* its number */
    expect_refused_with(0xc4, 5, 3);           /* three codes of one bit */
    expect_refused_with(0xc4, 21, 12);         /* a difference of 12 bits */
    expect_refused_with(0xc0, 4, 12);          /* bits a sample */
    expect_refused_with(0xc0, 9, 2);           /* components */
    expect_refused_with(0xc0, 11, 0x42);       /* sampling */
    expect_refused_with(0xc0, 12, 3);          /* a quantization table that is not there */
    expect_refused_with(0xda, 4, 1);           /* a scan of one component */
    expect_refused_with(0xda, 6, 0x11 + 0x22); /* a Huffman table that is not there */
    expect_refused_with(0xda, 12, 62);         /* a scan of some coefficients */
}

static void refuses_markers_in_the_scan(void **state)
{
    struct bytes file = case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 2, 0, false}, noise(3));
    size_t scan = (size_t)(segment_of(file, 0xda) - file.data) + 14, middle = (scan + file.count) / 2;
    for (int marker = 1; marker < 256; marker++) {
        uint8_t kept[2] = {file.data[middle], file.data[middle + 1]};
        file.data[middle] = 0xff;
        file.data[middle + 1] = (uint8_t)marker;
        /* It may as well end here: that is not seen if the rest is short. */
        if (marker != 0xd9) assert_false(is_plain(file));
        file.data[middle] = kept[0];
        file.data[middle + 1] = kept[1];
    }
    file.data[scan] = 0xff;                    /* almost nothing, and the end */
    file.data[scan + 1] = 0xd9;
    assert_false(is_plain(file));
    free(file.data);
}

/* For the sanitizers: every byte of the head replaced by many others. */
static void survives_any_byte(void **state)
{
    struct bytes file = case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 1, 0, false}, noise(3));
    size_t head = (size_t)(segment_of(file, 0xda) - file.data) + 14;
    for (size_t i = 0; i < head; i++) {
        uint8_t kept = file.data[i];
        for (int value = 0; value < 256; value += 15) {
            file.data[i] = (uint8_t)value;
            is_plain(file);
        }
        file.data[i] = kept;
    }
    free(file.data);
}

static void takes_photographs(void **state)
{
    char *path = case_data("imagenet-sample");
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int taken = 0, met = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char *name = text_format("%s/%s", path, entry->d_name);
        struct bytes file = case_read(name);
        taken += is_plain(file);
        met++;
        free(file.data);
        free(name);
    }
    closedir(folder);
    free(path);
    print_message("%d of %d photographs are plain\n", taken, met);
    assert_true(met > 0 && taken >= met * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_usual_ones),
        cmocka_unit_test(leaves_out_what_follows_the_image),
        cmocka_unit_test(refuses_other_kinds),
        cmocka_unit_test(refuses_every_beginning),
        cmocka_unit_test(refuses_tables_that_make_no_sense),
        cmocka_unit_test(refuses_markers_in_the_scan),
        cmocka_unit_test(survives_any_byte),
        cmocka_unit_test(takes_photographs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
