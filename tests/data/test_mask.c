/* Masks: what their values mean, and what is said of those that mean nothing. */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "base/memory.h"
#include "data/image/mask.h"
#include "data/image/mask_palette.h"
#include "tests/support/caught.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

static enum status read_text(const char *text, struct mask_classes *classes)
{
    char *folder = case_folder(), *path = case_path(folder, "palette.txt");
    case_write_text(folder, "palette.txt", text);
    enum status status = mask_classes_read(path, classes);
    free(path);
    case_remove(folder);
    return status;
}

static void palettes_name_classes_by_their_first_line(void **state)
{
    struct mask_classes classes;
    static const char text[] =
        "\xef\xbb\xbf; a comment\r\n\r\n128 64 128 = road ; the street\r\n#804081=lane\n7 = road\n"
        "0 0 0 = ignore\n 12\t13 14 = a = b\n other = lane\n300 = ignore";
    assert_int_equal(read_text(text, &classes), OK);
    assert_int_equal(classes.classes, 3);
    assert_string_equal(classes.names[0], "road");
    assert_string_equal(classes.names[1], "lane");
    assert_string_equal(classes.names[2], "a = b");
    assert_int_equal(mask_classes_colour(&classes, 0x804080), 0);
    assert_int_equal(mask_classes_colour(&classes, 0x804081), 1);
    assert_int_equal(mask_classes_colour(&classes, 0), MASK_IGNORE);
    assert_int_equal(mask_classes_colour(&classes, 0x0c0d0e), 2);
    assert_int_equal(mask_classes_colour(&classes, 0x123456), 1);
    assert_int_equal(classes.numbers[7], 0);
    assert_int_equal(classes.numbers[300], MASK_IGNORE);
    assert_int_equal(classes.numbers[8], 1);
    assert_true(classes.by_number);
    struct mask_classes copy;
    mask_classes_copy(&classes, &copy);
    assert_true(mask_classes_hash(&copy) == mask_classes_hash(&classes));
    copy.colours[0].class = 2;
    assert_true(mask_classes_hash(&copy) != mask_classes_hash(&classes));
    mask_classes_free(&copy);
    mask_classes_free(&classes);
}

static void wrong_palettes_are_refused_with_their_line(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "palette.txt: names no class"},
        {"; only a comment\n", "palette.txt: names no class"},
        {"0 = ignore\n", "palette.txt: names no class"},
        {"0 = a\n1 b\n", "palette.txt:2: '1 b' is no line VALUE = CLASS"},
        {"0 = \n", "palette.txt:1: no class behind '0 ='"},
        {"0 = ; road\n", "palette.txt:1: no class behind '0 ='"},
        {"= road\n", "palette.txt:1: '' is no value: a number up to 65535, a colour"},
        {"-1 = road\n", "palette.txt:1: '-1' is no value"},
        {"1.5 = road\n", "palette.txt:1: '1.5' is no value"},
        {"65536 = road\n", "palette.txt:1: '65536' is no value"},
        {"99999999999999999999 = road\n", "is no value"},
        {"1 2 = road\n", "palette.txt:1: '1 2' is no value"},
        {"1 2 3 4 = road\n", "palette.txt:1: '1 2 3 4' is no value"},
        {"1 2 256 = road\n", "palette.txt:1: '1 2 256' is no value"},
        {"1,2,3 = road\n", "palette.txt:1: '1,2,3' is no value"},
        {"#80408 = road\n", "palette.txt:1: '#80408' is no value"},
        {"#80408g = road\n", "palette.txt:1: '#80408g' is no value"},
        {"#8040800 = road\n", "palette.txt:1: '#8040800' is no value"},
        {"Other = road\n", "palette.txt:1: 'Other' is no value"},
        {"1 = a\n\n2 = b\n 1 = b\n", "palette.txt:4: '1' is already in line 1"},
        {"128 64 128 = a\n#804080 = b\n", "palette.txt:2: '#804080' is already in line 1"},
        {"other = a\nother = b\n", "palette.txt:2: 'other' is already in line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mask_classes classes;
        struct caught caught;
        caught_begin(&caught);
        enum status status = read_text(cases[i].text, &classes);
        caught_end(&caught);
        if (!caught_has(&caught, cases[i].words)) fail_msg("case %zu", i);
        assert_int_equal(status, USAGE);
        assert_int_equal(caught.errors, 1);
        text_free(&caught.words);
    }
}

static void classes_are_limited(void **state)
{
    struct text text = {0};
    struct mask_classes classes;
    for (int i = 0; i < 255; i++) text_add(&text, "%d = class %d\n", i, i);
    assert_int_equal(read_text(text.data, &classes), OK);
    assert_int_equal(classes.classes, 255);
    mask_classes_free(&classes);
    text_add(&text, "300 = one more\n");
    struct caught caught;
    caught_begin(&caught);
    enum status status = read_text(text.data, &classes);
    caught_end(&caught);
    assert_int_equal(status, USAGE);
    assert_true(caught_has(&caught, "palette.txt:256: more than 255 classes"));
    text_free(&caught.words);
    text_free(&text);
}

/* Values of data.classes, and the words of a refusal, or of the names. */
static void classes_are_counted_or_named(void **state)
{
    static const struct {
        const char *spec, *file, *said;
    } cases[] = {
        {"auto", NULL, ""}, {"3", NULL, "0/1/2/"}, {"sky, road ,a b", NULL, "sky/road/a b/"},
        {"names.txt", "sky\r\n\r\n; no more\nroad\n", "sky/road/"},
        {"0", NULL, "data.classes: must be from 1 to 255, not '0'"}, {"256", NULL, "must be from 1 to 255"},
        {"a,,b", NULL, "data.classes: a class without a name"}, {"a,b,a", NULL, "class 'a' is named twice"},
        {"names.txt", NULL, "names.txt: cannot be read: No such file"}, {"names.txt", "\n;\n", "names no class"},
        {"names.txt", "a\nb\na\n", "names.txt: class 'a' is named twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = case_folder(), *path = case_path(folder, cases[i].spec), **names = NULL;
        int count = 0;
        struct caught caught;
        if (cases[i].file) case_write_text(folder, cases[i].spec, cases[i].file);
        caught_begin(&caught);
        enum status status = mask_class_names(cases[i].spec, path, &names, &count);
        caught_end(&caught);
        for (int k = 0; k < count; k++) text_add(&caught.words, "%s/", names[k]);
        assert_int_equal(status, caught.errors ? USAGE : OK);
        if (caught.errors) assert_true(caught_has(&caught, cases[i].said));
        else assert_string_equal(caught.words.data, cases[i].said);
        text_list_free(names, (size_t)count);
        text_free(&caught.words);
        free(path);
        case_remove(folder);
    }
}

/* A decoded mask is what is expected, which has '-' for MASK_IGNORE and otherwise digits; or the reason has
 * these words, with '!' before them if the mask is wrong and not only unreadable. */
static void expect(struct bytes file, const struct mask_classes *classes, const char *expected)
{
    struct image mask = {0};
    struct reason reason = {{0}, 0};
    bool wrong;
    if (mask_decode(file.data, file.count, classes, &mask, &wrong, &reason)) {
        assert_false(wrong);
        assert_int_equal(mask.c, 1);
        char *said = memory_new((size_t)mask.h * (size_t)mask.w + 1, 1);
        for (int i = 0; i < mask.h * mask.w; i++)
            said[i] = mask.pixels[i] == MASK_IGNORE ? '-' : (char)('0' + mask.pixels[i]);
        assert_string_equal(said, expected);
        free(said);
    } else {
        if (!strstr(reason.text, expected + (*expected == '!')))
            fail_msg("'%s' does not say '%s'", reason.text, expected);
        assert_int_equal(wrong, *expected == '!');
    }
    image_free(&mask);
    free(file.data);
}

static void numbers_of_every_depth(void **state)
{
    static const uint8_t bits[] = {0x50}, pairs[] = {0x1b}, nibbles[] = {0x01, 0x23};
    static const uint8_t bytes[] = {0, 255, 2, 1}, words[] = {0, 0, 0, 3, 0, 255, 0, 1};
    static const uint8_t large[] = {0, 0, 1, 44, 0, 255, 0, 1};
    static const uint8_t alpha[] = {1, 255, 2, 255}, clear[] = {1, 255, 2, 254};
    struct mask_classes four;
    mask_classes_numbers(4, NULL, 0, true, &four);
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        expect(case_png(4, 1, 1, PNG_COLOR_TYPE_GRAY, interlaced, bits), &four, "0101");
        expect(case_png(4, 1, 2, PNG_COLOR_TYPE_GRAY, interlaced, pairs), &four, "0123");
        expect(case_png(4, 1, 4, PNG_COLOR_TYPE_GRAY, interlaced, nibbles), &four, "0123");
        expect(case_png(4, 1, 8, PNG_COLOR_TYPE_GRAY, interlaced, bytes), &four, "0-21");
        expect(case_png(2, 2, 8, PNG_COLOR_TYPE_PALETTE, interlaced, bytes), &four, "0-21");
        expect(case_png(4, 1, 16, PNG_COLOR_TYPE_GRAY, interlaced, words), &four, "03-1");
    }
    expect(case_png(4, 1, 2, PNG_COLOR_TYPE_PALETTE, false, pairs), &four, "0123");
    expect(case_png(4, 1, 16, PNG_COLOR_TYPE_GRAY, false, large), &four,
           "!value 300 of the mask is no class: 1 pixel");
    expect(case_png(2, 1, 8, PNG_COLOR_TYPE_GRAY_ALPHA, false, alpha), &four, "12");
    expect(case_png(2, 1, 8, PNG_COLOR_TYPE_GRAY_ALPHA, false, clear), &four, "!transparent in places");
    mask_classes_free(&four);
}

static void values_without_a_class_are_counted(void **state)
{
    static const uint8_t bytes[] = {0, 9, 9, 7, 255, 9}, colours[] = {0, 0, 0, 1, 2, 3};
    struct mask_classes two, any, kept;
    mask_classes_numbers(2, NULL, 0, true, &two);
    expect(case_png(6, 1, 8, PNG_COLOR_TYPE_GRAY, false, bytes), &two,
           "!value 9 of the mask is no class: 3 pixels; 1 more have other such values");
    expect(case_png(2, 1, 8, PNG_COLOR_TYPE_RGB, false, colours), &two,
           "!the mask has colours; data.palette = FILE");
    mask_classes_numbers(8, NULL, 0, false, &kept);
    expect(case_png(1, 1, 8, PNG_COLOR_TYPE_GRAY, false, bytes + 4), &kept,
           "!value 255 of the mask is no class");
    mask_classes_any(&any);
    expect(case_png(2, 1, 8, PNG_COLOR_TYPE_GRAY, false, bytes), &any, "09");
    mask_classes_free(&two);
    mask_classes_free(&any);
    mask_classes_free(&kept);
}

static void two_values_are_background_and_foreground(void **state)
{
    static const uint8_t bytes[] = {0, 255, 255}, other[] = {0, 255, 1};
    struct mask_classes two;
    mask_classes_two(NULL, &two);
    assert_string_equal(two.names[1], "foreground");
    expect(case_png(3, 1, 8, PNG_COLOR_TYPE_GRAY, false, bytes), &two, "011");
    expect(case_png(3, 1, 8, PNG_COLOR_TYPE_GRAY, false, other), &two,
           "!value 1 of the mask is no class: 1 pixel");
    mask_classes_free(&two);
}

static void colours_are_classes_by_a_palette(void **state)
{
    static const uint8_t pixels[] = {10, 10, 10, 1, 2, 3, 0, 1, 2, 2, 1, 1}, indices[] = {0, 1, 2};
    static const uint8_t opaque[] = {1, 2, 3, 255, 10, 10, 10, 255}, clear[] = {1, 2, 3, 0};
    static const uint8_t grey[] = {10, 0, 10}, deep[] = {0, 1, 0, 2, 0, 3};
    struct mask_classes classes, numbered;
    /* The test's palette is 0, 1, 2, ... with red doubled. */
    static const char text[] = "10 10 10 = a\n1 2 3 = b\n0 1 2 = ignore\n2 1 1 = c\n0 0 0 = c\n4 2 2 = a\n";
    assert_int_equal(read_text(text, &classes), OK);
    assert_false(classes.by_number);
    expect(case_png(4, 1, 8, PNG_COLOR_TYPE_RGB, false, pixels), &classes, "01-2");
    expect(case_png(2, 1, 8, PNG_COLOR_TYPE_RGB_ALPHA, false, opaque), &classes, "10");
    expect(case_png(1, 1, 8, PNG_COLOR_TYPE_RGB_ALPHA, false, clear), &classes, "!transparent");
    expect(case_png(3, 1, 8, PNG_COLOR_TYPE_GRAY, false, grey), &classes, "020");
    expect(case_png(3, 1, 8, PNG_COLOR_TYPE_PALETTE, false, indices), &classes, "220");
    expect(case_png(1, 1, 16, PNG_COLOR_TYPE_RGB, false, deep), &classes, "!colours of 16 bits");
    expect(case_png(1, 1, 16, PNG_COLOR_TYPE_GRAY, false, deep), &classes,
           "!the palette is one of colours");
    expect(case_png(1, 1, 8, PNG_COLOR_TYPE_RGB, false, deep + 3), &classes,
           "!colour 2 0 3 of the mask is no class: 1");
    /* Indices are numbers where numbers stand beside the colours. */
    assert_int_equal(read_text("0 = a\n1 = b\n2 = b\n1 2 3 = b\nother = ignore\n", &numbered), OK);
    expect(case_png(3, 1, 8, PNG_COLOR_TYPE_PALETTE, false, indices), &numbered, "011");
    expect(case_png(4, 1, 8, PNG_COLOR_TYPE_RGB, false, pixels), &numbered, "-1--");
    mask_classes_free(&classes);
    mask_classes_free(&numbered);
}

static void other_files_are_no_masks(void **state)
{
    static const uint8_t pixels[64], text[] = "a text", tiff[] = "II*\0abcdefgh";
    struct mask_classes two;
    struct bytes png = case_png(8, 8, 8, PNG_COLOR_TYPE_GRAY, false, pixels);
    mask_classes_two(NULL, &two);
    expect(case_jpeg(8, 8, JCS_GRAYSCALE, JCS_GRAYSCALE, false, pixels), &two, "!the mask is a JPEG file");
    expect((struct bytes){memcpy(memory_new(12, 1), tiff, 12), 12}, &two, "!the mask is a TIFF file");
    expect((struct bytes){memcpy(memory_new(6, 1), text, 6), 6}, &two, "the mask is no PNG file");
    expect((struct bytes){memory_new(1, 1), 0}, &two, "the mask is no PNG file");
    png.count -= 20;
    expect(png, &two, "PNG: the file is truncated");
    mask_classes_free(&two);
}

/* A mask is written as it is read: the same values, and the same colours. */
static void masks_are_written_as_they_are_read(void **state)
{
    static const struct {
        const char *palette;       /* NULL: numbers; "two": 0 and 255 */
        uint8_t classes[4], values[4], colours[4][3];
    } cases[] = {
        {NULL, {0, 1, 2, 255}, {0, 1, 2, 255}, {{0, 0, 0}, {128, 0, 0}, {0, 128, 0}, {224, 224, 192}}},
        {"two", {0, 1, 1, 0}, {0, 255, 255, 0}, {{0, 0, 0}, {255, 255, 255}, {255, 255, 255}, {0, 0, 0}}},
        {"9 = a\n7 = b\n8 = b\n3 = ignore\n", {0, 1, 255, 1}, {9, 7, 3, 7},
         {{0, 0, 0}, {128, 0, 0}, {224, 224, 192}, {128, 0, 0}}},
        {"128 64 128 = a\n9 8 7 = b\n1 2 3 = b\n255 255 255 = ignore\n", {0, 1, 255, 0}, {0, 1, 255, 0},
         {{128, 64, 128}, {9, 8, 7}, {255, 255, 255}, {128, 64, 128}}},
        {"300 = a\n1 = b\n", {0, 1, 1, 0}, {0, 1, 1, 0}, {{0, 0, 0}, {128, 0, 0}, {128, 0, 0}, {0, 0, 0}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct image mask = {.h = 2, .w = 2, .c = 1, .pixels = (uint8_t *)cases[i].classes};
        const char *text = cases[i].palette;
        struct mask_classes classes;
        struct mask_palette palette;
        struct image_samples samples = {0};
        struct reason reason;
        struct bytes png;
        if (!text) mask_classes_numbers(3, NULL, 0, true, &classes);
        else if (strcmp(text, "two") == 0) mask_classes_two(NULL, &classes);
        else assert_int_equal(read_text(text, &classes), OK);
        mask_palette_of(&classes, &palette);
        assert_true(mask_encode(&mask, &palette, &png.data, &png.count, &reason));
        assert_true(image_png_samples(png.data, png.count, &samples, &reason));
        assert_true(samples.palette);
        assert_memory_equal(samples.image.pixels, cases[i].values, 4);
        for (int k = 0; k < 4; k++)
            assert_memory_equal(samples.colours[cases[i].values[k]], cases[i].colours[k], 3);
        image_free(&samples.image);
        mask_classes_free(&classes);
        free(png.data);
    }
}

/* More than any machine has: a result that is refused, not the end of the process. */
static void masks_beyond_memory_are_refused(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    skip();                                      /* which ends the process instead of returning NULL */
#endif
    const struct image mask = {.h = INT32_MAX, .w = INT32_MAX, .c = 1};
    struct mask_classes classes;
    struct mask_palette palette;
    struct reason reason;
    struct bytes png;
    mask_classes_numbers(3, NULL, 0, true, &classes);
    mask_palette_of(&classes, &palette);
    assert_false(mask_encode(&mask, &palette, &png.data, &png.count, &reason));
    assert_non_null(strstr(reason.text, "not enough memory for a PNG file"));
    mask_classes_free(&classes);
}

static void masks_are_drawn_over_images(void **state)
{
    uint8_t grey[] = {10, 20, 30}, truth[] = {0, 1, 255}, predicted[] = {0, 0, 1};
    const struct image image = {.h = 1, .w = 3, .c = 1, .pixels = grey};
    const struct image one = {.h = 1, .w = 3, .c = 1, .pixels = truth};
    const struct image other = {.h = 1, .w = 3, .c = 1, .pixels = predicted};
    struct mask_classes two;
    struct mask_palette palette;
    struct image drawn = {0};
    struct reason reason;
    mask_classes_two(NULL, &two);
    mask_palette_of(&two, &palette);
    assert_true(mask_overlay(&image, &one, &palette, &drawn, &reason));
    assert_memory_equal(drawn.pixels, ((uint8_t[]){10, 10, 10, 138, 138, 138, 30, 30, 30}), 9);
    assert_true(mask_difference(&image, &one, &other, &drawn, &reason));
    assert_memory_equal(drawn.pixels, ((uint8_t[]){5, 5, 5, 230, 40, 40, 0, 0, 0}), 9);
    image_free(&drawn);
    mask_classes_free(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(palettes_name_classes_by_their_first_line),
        cmocka_unit_test(wrong_palettes_are_refused_with_their_line),
        cmocka_unit_test(classes_are_limited),
        cmocka_unit_test(classes_are_counted_or_named),
        cmocka_unit_test(numbers_of_every_depth),
        cmocka_unit_test(values_without_a_class_are_counted),
        cmocka_unit_test(two_values_are_background_and_foreground),
        cmocka_unit_test(colours_are_classes_by_a_palette),
        cmocka_unit_test(other_files_are_no_masks),
        cmocka_unit_test(masks_are_written_as_they_are_read),
        cmocka_unit_test(masks_beyond_memory_are_refused),
        cmocka_unit_test(masks_are_drawn_over_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
