/* Image files that are stored turned or mirrored come out upright, as Exif says, and where it is wrong, as
 * they are stored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "data/dataset/dataset.h"
#include "data/formats/packed.h"
#include "data/image/orientation.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

#define W 45
#define H 31

/* A file of one of several kinds, the same each time. */
static struct bytes picture(int kind)
{
    static const int spaces[][2] = {
        {JCS_RGB, JCS_YCbCr}, {JCS_GRAYSCALE, JCS_GRAYSCALE}, {JCS_CMYK, JCS_YCCK},
    };
    uint8_t pixels[W * H * 4];
    for (int i = 0; i < W * H * 4; i++) pixels[i] = (uint8_t)(i / 4 % W * 5 + i / 4 / W * 3 + i % 4 * 40);
    if (kind == 0) return case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 2, 0, false}, pixels);
    if (kind == 1) return case_jpeg_sampled(W, H, (struct jpeg_sampling){2, 1, 0, true}, pixels);
    return case_jpeg(W, H, spaces[kind - 2][0], spaces[kind - 2][1], false, pixels);
}
#define KINDS 5

static struct image decoded(struct bytes bytes, struct image_options options)
{
    struct image image = {0};
    struct reason reason = {0};
    if (!image_decode(bytes.data, bytes.count, options, NULL, &image, &reason)) fail_msg("%s", reason.text);
    free(bytes.data);
    return image;
}

/* Pixel y, x of the upright image, by the table of the standard: which sides the stored first row and the
 * stored first column are. */
static const uint8_t *upright_pixel(const struct image *stored, int orientation, int y, int x)
{
    int bottom = stored->h - 1, right = stored->w - 1, row = 0, column = 0;
    switch (orientation) {
    case 1: row = y, column = x; break;                          /* top, left */
    case 2: row = y, column = right - x; break;                  /* top, right */
    case 3: row = bottom - y, column = right - x; break;         /* bottom, right */
    case 4: row = bottom - y, column = x; break;                 /* bottom, left */
    case 5: row = x, column = y; break;                          /* left, top */
    case 6: row = bottom - x, column = y; break;                 /* right, top */
    case 7: row = bottom - x, column = right - y; break;         /* right, bottom */
    case 8: row = x, column = right - y; break;                  /* left, bottom */
    default: fail_msg("orientation %d", orientation);
    }
    return stored->pixels + (row * stored->w + column) * stored->c;
}

static void expect_upright(const struct image *image, const struct image *stored, int orientation)
{
    bool swapped = orientation >= 5;
    assert_int_equal(image->h, swapped ? stored->w : stored->h);
    assert_int_equal(image->w, swapped ? stored->h : stored->w);
    assert_int_equal(image->c, stored->c);
    assert_true(image->full_h == image->h && image->full_w == image->w && !image->top && !image->left);
    for (int y = 0; y < image->h; y++)
        for (int x = 0; x < image->w; x++)
            assert_memory_equal(image->pixels + (y * image->w + x) * image->c,
                                upright_pixel(stored, orientation, y, x), (size_t)image->c);
}

static void images_come_out_upright(void **state)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int channels = 1; channels <= 3; channels += 2)
            for (int orientation = 1; orientation <= 8; orientation++) {
                struct image_options options = {.channels = channels};
                struct image stored = decoded(picture(kind), options);
                struct image image = decoded(case_oriented(picture(kind), orientation), options);
                expect_upright(&image, &stored, orientation);
                image_free(&image);
                options.ignore_orientation = true;
                image = decoded(case_oriented(picture(kind), orientation), options);
                expect_upright(&image, &stored, 1);
                image_free(&image);
                image_free(&stored);
            }
}

static void parts_go_there_and_back(void **state)
{
    for (int orientation = 1; orientation <= 8; orientation++) {
        struct box part = {.y = 3, .x = 11, .h = 5, .w = 20}, all = {.h = H, .w = W};
        struct box turned = orientation_upright(orientation, part, H, W);
        struct box size = orientation_upright(orientation, all, H, W);
        struct box back = orientation_stored(orientation, turned, H, W);
        assert_true(size.y == 0 && size.x == 0);
        assert_true(turned.y >= 0 && turned.x >= 0 && turned.y + turned.h <= size.h &&
                    turned.x + turned.w <= size.w);
        assert_memory_equal(&back, &part, sizeof part);
    }
}

/* In memory that ends where the file does, so that a read beyond it is seen. */
static int orientation_of(const void *bytes, size_t count)
{
    uint8_t *exact = memory_new(count ? count : 1, 1);
    memcpy(exact, bytes, count);
    int orientation = orientation_of_jpeg(exact, count);
    free(exact);
    assert_in_range(orientation, 1, 8);
    return orientation;
}

static int orientation_with(const void *tiff, size_t count)
{
    struct bytes file = case_with_exif(picture(0), tiff, count);
    int orientation = orientation_of(file.data, file.count);
    free(file.data);
    return orientation;
}

/* A TIFF in either byte order: a directory of a width, an orientation, and a link to a second directory, of a
 * thumbnail, which has an orientation of its own. */
#define LITTLE "II\x2a\0\x0a\0\0\0\0\0" "\2\0" "\0\1\3\0\1\0\0\0\x2d\0\0\0" "\x12\1\3\0\1\0\0\0\6\0\0\0" \
    "\x28\0\0\0" "\1\0" "\x12\1\3\0\1\0\0\0\3\0\0\0" "\0\0\0\0"
#define BIG "MM\0\x2a\0\0\0\x0a\0\0" "\0\2" "\1\0\0\3\0\0\0\1\0\x2d\0\0" "\1\x12\0\3\0\0\0\1\0\6\0\0" \
    "\0\0\0\x28" "\0\1" "\1\x12\0\3\0\0\0\1\0\3\0\0" "\0\0\0\0"
#define ENTRY 24               /* where the orientation is in it */

static void either_byte_order_is_read(void **state)
{
    assert_int_equal(orientation_with(LITTLE, sizeof LITTLE - 1), 6);
    assert_int_equal(orientation_with(BIG, sizeof BIG - 1), 6);
}

static void wrong_values_count_as_nothing(void **state)
{
    static const struct {
        size_t at, count;
        const char *bytes;
        int orientation;
    } cases[] = {
        {ENTRY + 8, 2, "\0\0", 1},       {ENTRY + 8, 2, "\x09\0", 1},    {ENTRY + 8, 2, "\0\6", 1},
        {ENTRY + 8, 2, "\x08\0", 8},     {ENTRY + 2, 2, "\4\0", 1},      {ENTRY + 4, 4, "\2\0\0\0", 1},
        {ENTRY + 4, 4, "\0\0\0\0", 1},   {ENTRY, 2, "\x13\1", 1},        {0, 2, "MM", 1},
        {0, 2, "IM", 1},                 {2, 2, "\x2b\0", 1},            {4, 4, "\0\0\0\0", 1},
        {4, 4, "\xff\xff\xff\xff", 1},   {4, 4, "\xfe\xff\xff\xff", 1},  {4, 4, "\x28\0\0\0", 3},
        {10, 2, "\0\0", 1},              {10, 2, "\1\0", 1},             {10, 2, "\xff\xff", 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char tiff[] = LITTLE;
        memcpy(tiff + cases[i].at, cases[i].bytes, cases[i].count);
        int found = orientation_with(tiff, sizeof tiff - 1);
        if (found != cases[i].orientation) fail_msg("case %zu gives %d", i, found);
    }
}

static void truncated_exif_counts_as_nothing(void **state)
{
    for (size_t count = 0; count < sizeof LITTLE - 1; count++) {
        int expected = count < ENTRY + 10 ? 1 : 6;
        assert_int_equal(orientation_with(LITTLE, count), expected);
        assert_int_equal(orientation_with(BIG, count), expected);
    }
    struct bytes file = case_oriented(picture(0), 6);
    for (size_t count = 0; count < 64; count++) orientation_of(file.data, count);
    assert_int_equal(orientation_of(file.data, 12 + 20), 1);       /* the file ends in the segment */
    free(file.data);
}

static void garbled_exif_does_no_harm(void **state)
{
    struct random random = random_open(8, PURPOSE_TEST, 0, 0);
    struct image_options options = {.channels = 3};
    for (int i = 0; i < 3000; i++) {
        char tiff[] = LITTLE;
        for (uint32_t k = 0, count = 1 + random_below(&random, 4); k < count; k++)
            tiff[random_below(&random, sizeof tiff - 1)] = (char)random_next(&random);
        orientation_with(tiff, sizeof tiff - 1);
        if (i % 100 == 0) {
            struct image image = decoded(case_with_exif(picture(0), tiff, sizeof tiff - 1), options);
            image_free(&image);
        }
    }
}

static void other_segments_are_passed_over(void **state)
{
    static const char head[] = "\xff\xd8\xff\xe1\0\x09http:/\1\xff\x01junk\xff\xff\xff\xfe\0\3!";
    struct bytes exif = case_oriented(picture(0), 5);
    char *file = memory_new(sizeof head - 1 + exif.count - 2, 1);
    memcpy(file, head, sizeof head - 1);
    memcpy(file + sizeof head - 1, exif.data + 2, exif.count - 2);
    assert_int_equal(orientation_of(file, sizeof head - 1 + exif.count - 2), 5);
    free(file);

    static const char scan[] = "\xff\xd8\xff\xda\0\2";             /* what comes after it is no header */
    file = memory_new(sizeof scan - 1 + exif.count - 2, 1);
    memcpy(file, scan, sizeof scan - 1);
    memcpy(file + sizeof scan - 1, exif.data + 2, exif.count - 2);
    assert_int_equal(orientation_of(file, sizeof scan - 1 + exif.count - 2), 1);
    free(file);

    struct bytes second = case_oriented(exif, 7);                  /* the first one counts */
    assert_int_equal(orientation_of(second.data, second.count), 7);
    free(second.data);
}

static struct bytes png(bool interlaced)
{
    uint8_t pixels[W * H * 3];
    for (int i = 0; i < W * H * 3; i++) pixels[i] = (uint8_t)(i / 3 % W * 5 + i / 3 / W * 3 + i % 3 * 40);
    return case_png(W, H, 8, PNG_COLOR_TYPE_RGB, interlaced, pixels);
}

/* A decoder asks for the size of the upright image. */
static bool choose_upright(void *context, int h, int w, struct box *part, struct reason *reason)
{
    (void)reason;
    *part = (struct box){.h = 1, .w = 1};
    *(bool *)context = h == W && w == H;
    return true;
}

static void pngs_come_out_upright(void **state)
{
    for (int k = 0; k < 8; k++) {
        bool interlaced = k & 1, behind = k & 2;
        struct image_options options = {.channels = k & 4 ? 1 : 3};
        struct image stored = decoded(png(interlaced), options);
        for (int orientation = 1; orientation <= 8; orientation++) {
            struct image image = decoded(case_oriented_png(png(interlaced), orientation, behind), options);
            expect_upright(&image, &stored, orientation);
            image_free(&image);
        }
        options.ignore_orientation = true;
        struct image image = decoded(case_oriented_png(png(interlaced), 6, behind), options);
        expect_upright(&image, &stored, 1);
        image_free(&image);
        image_free(&stored);
    }
    struct bytes file = case_oriented_png(png(false), 8, false);
    struct image image = {0};
    struct reason reason;
    bool upright = false;
    const struct image_choice choice = {choose_upright, &upright};
    const struct image_options options = {.channels = 3};
    assert_true(image_decode(file.data, file.count, options, &choice, &image, &reason));
    assert_true(upright && image.h == W && image.w == H);
    image_free(&image);
    free(file.data);
}

/* Cut anywhere, or with a bit of the chunk turned, Exif counts as nothing. */
static void damaged_pngs_stay_as_they_are(void **state)
{
    struct bytes file = case_oriented_png(png(false), 6, false);
    for (size_t count = 0; count <= file.count; count++) {
        uint8_t *exact = memory_new(count ? count : 1, 1);
        memcpy(exact, file.data, count);
        assert_int_equal(orientation_of_png(exact, count), count < 33 + 38 ? 1 : 6);
        free(exact);
    }
    for (size_t bit = 33 * 8; bit < (33 + 38) * 8; bit++) {
        file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(orientation_of_png(file.data, file.count), 1);
        file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(file.data);
}

static void expect_dataset(const char *format, const char *path, bool ignore, int orientation)
{
    struct dataset dataset;
    struct image image = {0}, stored = decoded(picture(0), (struct image_options){.channels = 3});
    struct reason reason;
    int label;
    struct dataset_options options = {.path = path, .ignore_orientation = ignore};
    assert_int_equal(dataset_open(format_find(format), &options, &dataset), OK);
    assert_true(dataset.format->read(&dataset, 0, NULL, &image, &label, &reason));
    expect_upright(&image, &stored, orientation);
    image_free(&image);
    image_free(&stored);
    dataset_close(&dataset);
}

static void pack(const char *path, struct bytes file)
{
    struct packed_writer *writer;
    char *name = "a";
    assert_int_equal(packed_create(path, 3, &name, 1, &writer), OK);
    const struct packed_entry entry = {.kind = PACKED_FILE};
    assert_int_equal(packed_add(writer, entry, file.data, file.count), OK);
    assert_int_equal(packed_finish(writer), OK);
    packed_free(writer);
    free(file.data);
}

static void data_sets_have_them_upright(void **state)
{
    char *folder = case_folder(), *images = text_format("%s/images", folder);
    char *packed = text_format("%s/images.pack", folder);
    case_write_bytes(folder, "images/a/1.jpg", case_oriented(picture(0), 6));
    pack(packed, case_oriented(picture(0), 8));
    expect_dataset("folder", images, false, 6);
    expect_dataset("folder", images, true, 1);
    expect_dataset("packed", packed, false, 8);
    expect_dataset("packed", packed, true, 1);
    free(packed);
    free(images);
    case_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_come_out_upright),
        cmocka_unit_test(parts_go_there_and_back),
        cmocka_unit_test(either_byte_order_is_read),
        cmocka_unit_test(wrong_values_count_as_nothing),
        cmocka_unit_test(truncated_exif_counts_as_nothing),
        cmocka_unit_test(garbled_exif_does_no_harm),
        cmocka_unit_test(other_segments_are_passed_over),
        cmocka_unit_test(pngs_come_out_upright),
        cmocka_unit_test(damaged_pngs_stay_as_they_are),
        cmocka_unit_test(data_sets_have_them_upright),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
