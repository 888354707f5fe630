/* Data sets with masks: how images and masks are paired, what the classes are, and what is said of data that
 * are wrong. */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset/dataset_identity.h"
#include "data/dataset/masks.h"
#include "data/formats/packed.h"
#include "tests/support/caught.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

static char *folder;

static int enter(void **state)
{
    folder = case_folder();
    return 0;
}

static int leave(void **state)
{
    case_remove(folder);
    return 0;
}

static void write_image(const char *name, int w, int h)
{
    case_write_bytes(folder, name, case_plain_png(w, h, 9, 8, 7));
}

/* 2 x 2 pixels. */
static void write_mask(const char *name, const char *values)
{
    uint8_t pixels[4];
    for (int i = 0; i < 4; i++) pixels[i] = values[i] == '-' ? 255 : (uint8_t)(values[i] - '0');
    case_write_bytes(folder, name, case_png(2, 2, 8, PNG_COLOR_TYPE_GRAY, false, pixels));
}

static enum status open_as(const char *format, const char *below, struct mask_options masks,
                           struct dataset *dataset)
{
    char *path = case_path(folder, below);
    masks.ignore = true;
    const struct dataset_options options = {.path = path, .target = TARGET_MASK, .masks = masks};
    *dataset = (struct dataset){0};
    enum status status = dataset_open(format_find(format), &options, dataset);
    free(path);
    return status;
}

static void expect_refused(const char *format, const char *below, struct mask_options masks,
                           const char *words)
{
    struct dataset dataset;
    struct caught caught;
    caught_begin(&caught);
    enum status status = open_as(format, below, masks, &dataset);
    caught_end(&caught);
    if (status == OK) fail_msg("opened, instead of: %s", words);
    assert_true(caught_has(&caught, words));
    assert_int_equal(caught.errors, 1);
    text_free(&caught.words);
}

/* Every image with its mask, in order: "a/x.png 0012, ". */
static char *listed(const struct dataset *dataset)
{
    struct text out = {0};
    struct image mask = {0};
    struct reason reason;
    bool wrong;
    for (int64_t i = 0; i < dataset->count; i++) {
        text_add(&out, "%s ", dataset->format->image_name(dataset, i));
        assert_true(masks_read(dataset, i, &mask, &wrong, &reason));
        for (int k = 0; k < mask.h * mask.w; k++)
            text_add(&out, mask.pixels[k] == MASK_IGNORE ? "-" : "%d", mask.pixels[k]);
        text_add(&out, ", ");
    }
    image_free(&mask);
    return out.data;
}

static void expect_listed(const char *format, const char *below, struct mask_options masks, const char *words)
{
    struct dataset dataset;
    assert_int_equal(open_as(format, below, masks, &dataset), OK);
    assert_int_equal(dataset.target, TARGET_MASK);
    char *text = listed(&dataset);
    assert_string_equal(text, words);
    free(text);
    dataset_close(&dataset);
}

static void folders_are_paired_by_name(void **state)
{
    static const char *const folders[] = {"masks", "labels", "annotations", "annot"};
    static const char *const endings[] = {"_mask", "_label", "_gt", "_L"};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "p%d/images/b/x.1.png", i);
        write_image(name, 2, 2);
        snprintf(name, sizeof name, "p%d/images/a.png", i);
        write_image(name, 2, 2);
        snprintf(name, sizeof name, "p%d/images/a_L.png", i);
        write_image(name, 2, 2);
        snprintf(name, sizeof name, "p%d/%s/b/x.1%s.png", i, folders[i], endings[i]);
        write_mask(name, "0120");
        snprintf(name, sizeof name, "p%d/%s/a.png", i, folders[i]);
        write_mask(name, "0001");
        snprintf(name, sizeof name, "p%d/%s/a_L.png", i, folders[i]);
        write_mask(name, "1-00");
        snprintf(name, sizeof name, "p%d/%s/more.png", i, folders[i]);
        write_mask(name, "7777");
        snprintf(name, sizeof name, "p%d", i);
        struct caught caught;
        caught_begin(&caught);
        expect_listed("folder", name, (struct mask_options){0}, "a.png 0001, a_L.png 1-00, b/x.1.png 0120, ");
        caught_end(&caught);
        assert_true(caught_has(&caught, "masks without an image are left out: 1, such as more.png"));
        text_free(&caught.words);
    }
}

/* An image, and its mask if there is a name for it, which has one class. */
static void write_pair(const char *image, const char *mask)
{
    write_image(image, 2, 2);
    if (mask) write_mask(mask, "0001");
}

static void layouts_are_known(void **state)
{
    const struct mask_options any = {0};
    write_pair("l/train/a.png", "l/trainannot/a.png");
    expect_listed("folder", "l/train", any, "a.png 0001, ");
    expect_listed("folder", "l/train/", any, "a.png 0001, ");
    write_pair("images/img_dir/train/b/a.png", "images/ann_dir/train/b/a.png");
    expect_listed("folder", "images/img_dir/train", any, "b/a.png 0001, ");
    write_pair("m/images/train/a.png", "m/labels/train/a.png");
    expect_listed("folder", "m/images/train", any, "a.png 0001, ");
    write_pair("n/leftImg8bit/val/x/x_0_leftImg8bit.png", "n/gtFine/val/x/x_0_gtFine_labelIds.png");
    write_mask("n/gtFine/val/x/x_0_gtFine_instanceIds.png", "7777");
    expect_listed("folder", "n/leftImg8bit/val", any, "x/x_0_leftImg8bit.png 0001, ");
    write_pair("o/JPEGImages/a.png", NULL);
    write_pair("o/JPEGImages/b.png", "o/SegmentationClass/b.png");
    write_pair("o/JPEGImages/c.png", "o/SegmentationClass/c.png");
    case_write_text(folder, "o/ImageSets/Segmentation/x.txt", "c\r\n\nb\n");
    expect_listed("folder", "o/ImageSets/Segmentation/x.txt", any, "b.png 0001, c.png 0001, ");
    case_write_text(folder, "o/ImageSets/Segmentation/x.txt", "b\n");
    expect_listed("folder", "o/ImageSets/Segmentation/x.txt", any, "b.png 0001, ");
    case_write_text(folder, "o/ImageSets/Segmentation/x.txt", "b\nd\n");
    expect_refused("folder", "o/ImageSets/Segmentation/x.txt", any,
                   "x.txt: names d, but there is no such image in ");
    case_write_text(folder, "o/ImageSets/Segmentation/x.txt", "\n");
    expect_refused("folder", "o/ImageSets/Segmentation/x.txt", any, "JPEGImages: no PNG, JPEG, WebP or TIFF");
    expect_refused("folder", "o/ImageSets/Segmentation/y.txt", any, "y.txt: cannot be read: No such file");
    expect_refused("folder", "o/ImageSets", any, "ImageSets: has no folder images, with one of masks beside");
    expect_refused("folder", "o/JPEGImages", any, "1 of 3 images have no mask, such as a.png");
}

static void wrong_pairs_are_refused(void **state)
{
    const struct mask_options any = {0};
    write_image("q0/other/a.png", 2, 2);
    expect_refused("folder", "q0", any, "q0: has no folder images, with one of masks beside it");
    write_image("q1/images/a.png", 2, 2);
    expect_refused("folder", "q1", any, "q1: has images, but no folder masks, labels, annotations or annot");
    write_mask("q1/masks/a.png", "0000");
    write_mask("q1/annot/a.png", "0000");
    expect_refused("folder", "q1", any, "q1: two folders of masks: ");
    write_image("q2/images/a.png", 2, 2);
    write_image("q2/images/b.png", 2, 2);
    write_mask("q2/masks/a.png", "0001");
    expect_refused("folder", "q2", any, "1 of 2 images have no mask, such as b.png: there is no ");
    write_mask("q2/masks/b.png", "0001");
    write_mask("q2/masks/b_mask.png", "0001");
    expect_refused("folder", "q2", any, "two masks for the image b.png: b.png and b_mask.png");
    write_image("q3/images/a.png", 2, 2);
    write_image("q3/images/a.jpg", 2, 2);
    write_mask("q3/masks/a.png", "0001");
    expect_refused("folder", "q3", any, "a.jpg and a.png would have the same mask");
    case_write_text(folder, "q4/images/notes.txt", "no image");
    write_mask("q4/masks/a.png", "0001");
    expect_refused("folder", "q4", any, "q4/images: no PNG, JPEG, WebP or TIFF image in it");
    write_image("q5/images/a.png", 2, 2);
    case_write_bytes(folder, "q5/masks/a.png", case_plain_png(2, 2, 1, 2, 3));
    expect_refused("folder", "q5", any, "q5/masks/a.png: the mask has colours; data.palette = FILE");
    write_image("q6/images/a.png", 2, 2);
    case_write_text(folder, "q6/masks/a.png", "\x89PNG\r\n\x1a\n");
    expect_refused("folder", "q6", any, "q6/masks/a.png: PNG: ");
}

/* The names of the classes. */
static void expect_classes(const char *below, struct mask_options masks, const char *words)
{
    struct dataset dataset;
    struct text names = {0};
    assert_int_equal(open_as("folder", below, masks, &dataset), OK);
    for (int i = 0; i < dataset.classes; i++) text_add(&names, "%s/", dataset.class_names[i]);
    assert_string_equal(names.data, words);
    text_free(&names);
    dataset_close(&dataset);
}

static void classes_follow_the_values(void **state)
{
    const struct mask_options any = {0};
    write_image("r/images/a.png", 2, 2);
    write_image("r/images/b.png", 2, 2);
    write_mask("r/masks/a.png", "0-0-");
    write_mask("r/masks/b.png", "----");
    expect_classes("r", any, "background/foreground/");
    expect_listed("folder", "r", any, "a.png 0101, b.png 1111, ");
    expect_classes("r", (struct mask_options){.classes = "2"}, "background/foreground/");
    expect_classes("r", (struct mask_options){.classes = "no,yes"}, "no/yes/");
    expect_classes("r", (struct mask_options){.classes = "3"}, "0/1/2/");
    expect_listed("folder", "r", (struct mask_options){.classes = "3"}, "a.png 0-0-, b.png ----, ");
    /* One other value in the whole set, and 255 is ignored. */
    write_mask("r/masks/b.png", "---2");
    expect_classes("r", any, "0/1/2/");
    expect_listed("folder", "r", any, "a.png 0-0-, b.png ---2, ");
    char *palette = case_path(folder, "palette.txt");
    case_write_text(folder, "palette.txt", "0 = sky\n255 = road\nother = ignore\n");
    expect_classes("r", (struct mask_options){.palette = palette}, "sky/road/");
    expect_listed("folder", "r", (struct mask_options){.palette = palette}, "a.png 0101, b.png 111-, ");
    case_write_text(folder, "palette.txt", "0 = sky\n = road\n");
    expect_refused("folder", "r", (struct mask_options){.palette = palette}, "palette.txt:2: '' is no value");
    free(palette);
    struct dataset train, val;
    struct mask_classes two;
    mask_classes_two(NULL, &two);
    write_mask("r/masks/b.png", "0000");
    assert_int_equal(open_as("folder", "r", any, &train), OK);
    assert_int_equal(open_as("folder", "r", (struct mask_options){.known = train.masks}, &val), OK);
    assert_true(mask_classes_hash(val.masks) == mask_classes_hash(&two));
    mask_classes_free(&two);
    dataset_close(&train);
    dataset_close(&val);
}

static void pixels_are_counted_by_class(void **state)
{
    struct dataset dataset;
    struct mask_counts counts;
    struct text said = {0};
    write_image("s/images/a.png", 2, 2);
    write_image("s/images/b.png", 2, 2);
    write_image("s/images/c.png", 2, 2);
    write_mask("s/masks/a.png", "000-");
    write_mask("s/masks/b.png", "0002");
    case_write_text(folder, "s/masks/c.png", "\x89PNG\r\n\x1a\n broken");
    assert_int_equal(open_as("folder", "s", (struct mask_options){.classes = "a,b,c"}, &dataset), OK);
    assert_int_equal(masks_count(&dataset, NULL, 3, &counts), OK);
    assert_int_equal(counts.masks, 3);
    assert_int_equal(counts.unreadable, 1);
    assert_int_equal(counts.pixels[0], 6);
    assert_int_equal(counts.pixels[1], 0);
    assert_int_equal(counts.with[2], 1);
    assert_int_equal(counts.pixels[MASK_IGNORE], 1);
    masks_describe(&dataset, &counts, &said);
    assert_string_equal(said.data, "a 85.71 %, b 0.00 %, c 14.29 %, ignored 12.50 % of all");
    text_free(&said);
    assert_int_equal(masks_missing(&dataset, &counts, &said), 1);
    assert_string_equal(said.data, "b");
    text_free(&said);
    /* Two of them. */
    assert_int_equal(masks_count(&dataset, (const int64_t[]){2, 0}, 2, &counts), OK);
    assert_int_equal(counts.masks, 2);
    assert_int_equal(counts.pixels[0], 3);
    assert_int_equal(masks_missing(&dataset, &counts, &said), 2);
    assert_string_equal(said.data, "b, c");
    text_free(&said);
    dataset_close(&dataset);
    /* A value without a class is an error that names the first file, whatever the threads. */
    write_mask("s/masks/b.png", "0552");
    write_mask("s/masks/c.png", "4444");
    struct caught caught;
    caught_begin(&caught);
    enum status opened = open_as("folder", "s", (struct mask_options){.classes = "3"}, &dataset);
    enum status status = masks_count(&dataset, NULL, 3, &counts);
    caught_end(&caught);
    assert_int_equal(opened, OK);
    assert_int_equal(status, BAD_DATA);
    assert_true(caught_has(&caught, "s/masks/b.png: value 5 of the mask is no class: 2 pixels"));
    text_free(&caught.words);
    dataset_close(&dataset);
}

static void masks_fit_their_images(void **state)
{
    struct dataset dataset;
    struct mask_counts counts;
    struct caught caught;
    write_pair("x/images/a.png", "x/masks/a.png");
    write_image("x/images/b.png", 3, 2);
    write_mask("x/masks/b.png", "0001");
    case_write_text(folder, "x/images/c.png", "\x89PNG\r\n\x1a\n broken");
    write_mask("x/masks/c.png", "0001");
    assert_int_equal(open_as("folder", "x", (struct mask_options){.classes = "2"}, &dataset), OK);
    caught_begin(&caught);
    enum status status = masks_count(&dataset, NULL, 3, &counts);
    caught_end(&caught);
    assert_int_equal(status, BAD_DATA);
    assert_true(caught_has(&caught, "x/images/b.png: 3x2 pixels, but the mask has 2x2"));
    text_free(&caught.words);
    assert_int_equal(masks_count(&dataset, (const int64_t[]){0, 2}, 2, &counts), OK);
    dataset_close(&dataset);
}

static void tables_name_masks(void **state)
{
    const struct mask_options any = {0};
    write_image("t/a.png", 2, 2);
    write_image("t/b.png", 2, 2);
    write_mask("t/ma.png", "0001");
    write_mask("t/mb.png", "0021");
    case_write_text(folder, "t/one.csv", "path,mask\na.png,ma.png\nb.png,mb.png\n");
    expect_listed("csv", "t/one.csv", any, "a.png 0001, b.png 0021, ");
    case_write_text(folder, "t/two.csv",
                    "mask;note;group;image\n./mb.png;\"long note\";g;b.png\n\nma.png;;h;a.png\n");
    expect_listed("csv", "t/two.csv", any, "b.png 0021, a.png 0001, ");
    case_write_text(folder, "t/x.csv", "path,label\na.png,cat\n");
    expect_refused("csv", "t/x.csv", any, "x.csv:1: no column 'mask' for data.task = segment");
    case_write_text(folder, "t/x.csv", "path,mask\na.png,ma.png\nb.png,\n");
    expect_refused("csv", "t/x.csv", any, "x.csv:3: column 'mask' is empty");
    case_write_text(folder, "t/x.csv", "path,mask,Mask\na.png,ma.png,mb.png\n");
    expect_refused("csv", "t/x.csv", any, "x.csv:1: two columns of masks: 'mask' and 'Mask'");
    case_write_text(folder, "t/x.csv", "path,mask\na.png,none.png\n");
    expect_refused("csv", "t/x.csv", any, "none.png: No such file");
    /* Without masks it is a column of 0 and 1. */
    struct dataset dataset;
    char *path = case_path(folder, "t/x.csv");
    case_write_text(folder, "t/x.csv", "path,mask,hat\na.png,1,0\n");
    const struct dataset_options options = {.path = path};
    assert_int_equal(dataset_open(format_find("csv"), &options, &dataset), OK);
    assert_int_equal(dataset.classes, 2);
    dataset_close(&dataset);
    free(path);
}

static void run_in_folder(const char *below, const char *command)
{
    char *path = case_path(folder, below), *line = text_format("cd '%s' && %s", path, command);
    assert_int_equal(system(line), 0);
    free(line);
    free(path);
}

/* Every mask in order: "0012, ". */
static void expect_masks(const char *format, const char *below, struct mask_options masks, const char *words)
{
    struct dataset dataset;
    struct text out = {0};
    struct image mask = {0}, image = {0};
    struct reason reason;
    bool wrong;
    int label;
    assert_int_equal(open_as(format, below, masks, &dataset), OK);
    for (int64_t i = 0; i < dataset.count; i++) {
        if (!masks_read(&dataset, i, &mask, &wrong, &reason)) fail_msg("%s", reason.text);
        assert_true(dataset.format->read(&dataset, i, NULL, &image, &label, &reason));
        assert_int_equal(label, 0);
        for (int k = 0; k < mask.h * mask.w; k++)
            text_add(&out, mask.pixels[k] == MASK_IGNORE ? "-" : "%d", mask.pixels[k]);
        text_add(&out, ", ");
    }
    assert_string_equal(out.data, words);
    text_free(&out);
    image_free(&mask);
    image_free(&image);
    dataset_close(&dataset);
}

static void tar_archives_have_masks(void **state)
{
    const struct mask_options any = {0};
    write_image("v/00.png", 2, 2);
    write_image("v/a/01.png", 2, 2);
    write_image("v/02.png", 2, 2);
    write_mask("v/00.mask.png", "0001");
    write_mask("v/a/01.mask.png", "0022");
    write_mask("v/02.mask.png", "-110");
    write_mask("v/03.mask.png", "0000");
    case_write_text(folder, "v/00.cls", "x");
    run_in_folder("v", "tar -cf x.tar 00.cls 00.png 00.mask.png a/01.mask.png a/01.png 02.mask.png 02.png");
    expect_masks("packed", "v/x.tar", any, "0001, 0022, -110, ");
    run_in_folder("v", "tar -cf x.tar 02.mask.png a/01.png 00.mask.png 00.png a/01.mask.png 02.png");
    expect_masks("packed", "v/x.tar", any, "0022, 0001, -110, ");
    run_in_folder("v", "tar -cf x.tar 00.png 00.mask.png a/01.png");
    expect_refused("packed", "v/x.tar", any,
                   "images without exactly one mask (KEY.mask.png): 1, such as a/01");
    run_in_folder("v", "cp 00.mask.png 00.MASK.png; tar -cf x.tar 00.png 00.mask.png 00.MASK.png");
    expect_refused("packed", "v/x.tar", any, "00.MASK.png is a second label of the same sample");
    run_in_folder("v", "tar -cf x.tar 00.png 00.mask.png 03.mask.png");
    struct caught caught;
    caught_begin(&caught);
    expect_masks("packed", "v/x.tar", any, "0001, ");
    caught_end(&caught);
    assert_true(caught_has(&caught, "1 masks do not have exactly one image"));
    text_free(&caught.words);
}

/* A packed file of two images, whose second mask has this value everywhere. */
static void write_packed(char *const names[3], uint8_t value)
{
    uint8_t first[] = {0, 1, 2, 255}, second[] = {value, value, value, value}, pixels[2 * 2 * 3] = {0};
    char *path = case_path(folder, "w.pack");
    struct packed_writer *writer;
    const struct packed_entry raw = {.kind = PACKED_RAW, .h = 2, .w = 2};
    assert_int_equal(packed_create(path, 3, names, 3, &writer), OK);
    packed_begin_targets(writer, TARGET_MASK);
    for (int i = 0; i < 2; i++) {
        struct bytes mask = case_png(2, 2, 8, PNG_COLOR_TYPE_GRAY, false, i ? second : first);
        packed_target(writer, (struct packed_target){0}, NULL);
        assert_int_equal(packed_mask(writer, mask.data, mask.count), OK);
        assert_int_equal(packed_add(writer, raw, pixels, sizeof pixels), OK);
        free(mask.data);
    }
    assert_int_equal(packed_finish(writer), OK);
    packed_free(writer);
    free(path);
}

static void packed_files_have_masks(void **state)
{
    char *names[] = {"sky", "road", "lane"}, *others[] = {"lane", "sky", "road"};
    const struct mask_options any = {0};
    struct dataset train, other;
    struct mask_counts counts;
    write_packed(names, 2);
    expect_masks("packed", "w.pack", any, "012-, 2222, ");
    assert_int_equal(open_as("packed", "w.pack", any, &train), OK);
    assert_string_equal(train.class_names[1], "road");
    assert_int_equal(masks_count(&train, NULL, 2, &counts), OK);
    assert_int_equal(counts.pixels[2], 5);
    struct dataset_identity then, now;
    dataset_identity_make(&train, &then);
    /* Classes are matched by name. */
    write_packed(others, 0);
    char *path = case_path(folder, "w.pack");
    const struct dataset_options options = {.path = path, .target = TARGET_MASK,
                                            .class_names = names, .class_count = 3};
    assert_int_equal(dataset_open(format_find("packed"), &options, &other), OK);
    struct image mask = {0};
    struct reason reason;
    bool wrong;
    assert_true(masks_read(&other, 0, &mask, &wrong, &reason));
    assert_memory_equal(mask.pixels, ((uint8_t[]){2, 0, 1, 255}), 4);
    dataset_identity_make(&other, &now);
    struct text text = {0};
    assert_int_not_equal(dataset_identity_compare(&then, &now, &text), IDENTITY_SAME);
    text_free(&text);
    dataset_identity_free(&then);
    dataset_identity_free(&now);
    dataset_close(&train);
    dataset_close(&other);
    free(path);
    image_free(&mask);
    write_packed(names, 3);
    assert_int_equal(open_as("packed", "w.pack", any, &train), OK);
    assert_false(masks_read(&train, 1, &mask, &wrong, &reason));
    assert_true(wrong);
    assert_non_null(strstr(reason.text, "w.pack: image 1: value 3 of the mask is no class: 4 pixels"));
    dataset_close(&train);
    image_free(&mask);
}

/* Expects these words about what differs between the data set then and now. */
static void expect_difference(struct mask_options masks, const struct dataset_identity *then,
                              const char *words)
{
    struct dataset dataset;
    struct dataset_identity now;
    struct text text = {0};
    assert_int_equal(open_as("folder", "u", masks, &dataset), OK);
    dataset_identity_make(&dataset, &now);
    enum identity_change change = dataset_identity_compare(then, &now, &text);
    if (!words) assert_int_equal(change, IDENTITY_SAME);
    else if (change == IDENTITY_SAME || !strstr(text.data, words)) fail_msg("not said: %s", words);
    text_free(&text);
    dataset_identity_free(&now);
    dataset_close(&dataset);
}

static void masks_are_in_the_identity(void **state)
{
    const struct mask_options three = {.classes = "3"}, named = {.classes = "a,b,c"};
    struct dataset dataset;
    struct dataset_identity then;
    write_image("u/images/a.png", 2, 2);
    write_image("u/images/b.png", 2, 2);
    write_mask("u/masks/a.png", "0001");
    write_mask("u/masks/b.png", "0002");
    assert_int_equal(open_as("folder", "u", three, &dataset), OK);
    dataset_identity_make(&dataset, &then);
    expect_difference(three, &then, NULL);
    expect_difference(named, &then, "a.png: the label, the mask or the group differs");
    write_mask("u/masks/b.png", "0102");
    expect_difference(three, &then, "b.png: ");
    write_mask("u/masks/b.png", "0002");
    expect_difference(three, &then, NULL);
    dataset_identity_free(&then);
    dataset_close(&dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_paired_by_name),
        cmocka_unit_test(layouts_are_known),
        cmocka_unit_test(wrong_pairs_are_refused),
        cmocka_unit_test(classes_follow_the_values),
        cmocka_unit_test(pixels_are_counted_by_class),
        cmocka_unit_test(masks_fit_their_images),
        cmocka_unit_test(tables_name_masks),
        cmocka_unit_test(tar_archives_have_masks),
        cmocka_unit_test(packed_files_have_masks),
        cmocka_unit_test(masks_are_in_the_identity),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
