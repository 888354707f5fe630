/* The data formats: what they read, and what they say about files that are not right. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "data/dataset/dataset.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

static struct dataset_options options_of(const char *path, enum split split)
{
    return (struct dataset_options){.path = path, .split = split};
}

static struct dataset opened(const char *format, const struct dataset_options *options)
{
    struct dataset dataset = {0};
    case_log_collect();
    if (dataset_open(format_find(format), options, &dataset) != OK) fail_msg("%s", case_log());
    return dataset;
}

/* Opening fails, sets nothing, and says `what`. */
static void expect_refused(const char *format, const struct dataset_options *options, const char *what)
{
    struct dataset dataset = {0};
    case_log_collect();
    assert_int_equal(dataset_open(format_find(format), options, &dataset), BAD_DATA);
    assert_null(dataset.format);
    if (!strstr(case_log(), what)) fail_msg("\"%s\" is not in: %s", what, case_log());
}

static int read_image(const struct dataset *dataset, int64_t index, struct image *image)
{
    int label = -1;
    struct reason reason;
    if (!dataset->format->read(dataset, index, NULL, image, &label, &reason)) fail_msg("%s", reason.text);
    assert_int_equal(dataset->format->label(dataset, index), label);
    return label;
}

static void table_has_the_promised_formats(void **state)
{
    static const char *const names[] = {"mnist", "cifar10", "cifar100", "folder", "digits", "synthetic"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_non_null(format_find(names[i]));
    assert_null(format_find("minst"));
    struct dataset nothing = {0};
    dataset_close(&nothing);
}

/* MNIST */

#define MNIST_IMAGES "\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03" "abcdefABCDEF"
#define MNIST_LABELS "\0\0\x08\x01\0\0\0\x02" "\x07\x03"

/* 2^32 - 1 images of 4096 x 4096. */
#define MNIST_HUGE "\0\0\x08\x03\xff\xff\xff\xff\0\0\x10\0\0\0\x10\0"

static char *mnist_folder(void)
{
    char *folder = case_folder();
    case_write(folder, "train-images-idx3-ubyte", MNIST_IMAGES, 28);
    case_write_gz(folder, "train-labels-idx1-ubyte.gz", MNIST_LABELS, 10);
    case_write_gz(folder, "t10k-images.idx3-ubyte.gz", MNIST_IMAGES, 28);
    case_write(folder, "t10k-labels.idx1-ubyte", MNIST_LABELS, 10);
    return folder;
}

static void mnist_reads_raw_and_gz(void **state)
{
    char *folder = mnist_folder();
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++) {
        struct dataset_options options = options_of(folder, (enum split)split);
        struct dataset dataset = opened("mnist", &options);
        struct image image = {0};
        assert_int_equal(dataset.count, 2);
        assert_int_equal(dataset.classes, 10);
        assert_string_equal(dataset.class_names[9], "9");
        assert_int_equal(read_image(&dataset, 1, &image), 3);
        assert_int_equal(image.h, 2);
        assert_int_equal(image.w, 3);
        assert_memory_equal(image.pixels, "ABCDEF", 6);
        image_free(&image);
        dataset_close(&dataset);
    }
    case_remove(folder);
}

static void mnist_refuses_what_is_wrong(void **state)
{
    static const struct {
        const char *name, *data;
        size_t count;
        const char *what;
    } cases[] = {
        {"train-images-idx3-ubyte", MNIST_IMAGES, 27, "truncated"},
        {"train-images-idx3-ubyte", MNIST_IMAGES, 7, "truncated"},
        {"train-images-idx3-ubyte", MNIST_IMAGES "x", 29, "longer"},
        {"train-images-idx3-ubyte", MNIST_LABELS "that is not for images", 28, "begins with"},
        {"train-images-idx3-ubyte", MNIST_HUGE, 16, "truncated"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\0\0\0\0\x02\0\0\0\x03", 16, "is empty"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x01\0\0\0\0\0\0\0\x03", 16, "images of 3 x 0 pixels"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x01\0\0\0\x01\xff\0\0\0", 16, "x 1 pixels"},
        {"train-images-idx3-ubyte", "\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x03" "abcdef", 22,
         "1 images but 2 labels"},
        {"train-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x02" "\x07\x0b", 10, "label 11 of image 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = mnist_folder();
        struct dataset_options options = options_of(folder, SPLIT_TRAIN);
        case_write(folder, cases[i].name, cases[i].data, cases[i].count);
        expect_refused("mnist", &options, cases[i].what);
        assert_non_null(strstr(case_log(), folder));
        case_remove(folder);
    }
    struct dataset_options nowhere = options_of("/nonexistent", SPLIT_TRAIN);
    expect_refused("mnist", &nowhere, "/nonexistent/train-images-idx3-ubyte");
}

static void mnist_refuses_broken_gz(void **state)
{
    char *folder = mnist_folder(), *path = text_format("%s/t10k-images.idx3-ubyte.gz", folder);
    struct dataset_options options = options_of(folder, SPLIT_VAL);
    struct bytes gz = case_read(path);
    gz.data[gz.count - 6] ^= 1;                            /* in the checksum */
    case_write(folder, "t10k-images.idx3-ubyte.gz", gz.data, gz.count);
    expect_refused("mnist", &options, "corrupt");
    gz.data[gz.count - 6] ^= 1;
    for (size_t cut = 1; cut < 20; cut++) {                /* eight of them checksum and length */
        case_write(folder, "t10k-images.idx3-ubyte.gz", gz.data, gz.count - cut);
        expect_refused("mnist", &options, "truncated");
    }
    /* A header that promises more than deflate could ever have packed is refused before memory. */
    case_write_gz(folder, "t10k-images.idx3-ubyte.gz", MNIST_HUGE, 16);
    expect_refused("mnist", &options, "its header promises");
    free(gz.data);
    free(path);
    case_remove(folder);
}

/* CIFAR */

/* `count` records: the labels given, the pixel at (y, x) red y, green x, blue the record's number. */
static void write_cifar(const char *folder, const char *name, int count, const uint8_t *labels,
                        int label_bytes)
{
    size_t record = 3072 + (size_t)label_bytes;
    uint8_t *bytes = memory_new((size_t)count, record);
    for (int i = 0; i < count; i++) {
        uint8_t *to = bytes + (size_t)i * record;
        memcpy(to, labels + i * label_bytes, (size_t)label_bytes);
        for (int k = 0; k < 1024; k++) {
            to[label_bytes + k] = (uint8_t)(k / 32);
            to[label_bytes + 1024 + k] = (uint8_t)(k % 32);
            to[label_bytes + 2048 + k] = (uint8_t)i;
        }
    }
    case_write(folder, name, bytes, (size_t)count * record);
    free(bytes);
}

static void cifar10_reads_planes(void **state)
{
    char *folder = case_folder();
    struct dataset_options options = options_of(folder, SPLIT_TRAIN);
    for (int i = 1; i <= 5; i++) {
        char *name = text_format("data_batch_%d.bin", i);
        write_cifar(folder, name, 2, (uint8_t[]){(uint8_t)i, 9}, 1);
        free(name);
    }
    case_write(folder, "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nlast one\n\n", 29);
    struct dataset dataset = opened("cifar10", &options);
    struct image image = {0};
    assert_int_equal(dataset.count, 10);
    assert_string_equal(dataset.class_names[9], "last one");
    assert_int_equal(read_image(&dataset, 6, &image), 4);
    assert_int_equal(read_image(&dataset, 9, &image), 9);
    assert_memory_equal(image.pixels + (5 * 32 + 7) * 3, ((uint8_t[]){5, 7, 1}), 3);
    image_free(&image);
    dataset_close(&dataset);
    case_unlink(folder, "data_batch_3.bin");
    expect_refused("cifar10", &options, "data_batch_3.bin");
    options.split = SPLIT_VAL;
    case_write_gz(folder, "test_batch.bin.gz", "compressed", 10);
    expect_refused("cifar10", &options, "test_batch.bin: No such file");
    write_cifar(folder, "test_batch.bin", 1, (uint8_t[]){10}, 1);
    expect_refused("cifar10", &options, "label 10 of image 0");
    case_write(folder, "test_batch.bin", folder, 10);
    expect_refused("cifar10", &options, "truncated");
    case_write(folder, "test_batch.bin", "", 0);
    expect_refused("cifar10", &options, "truncated");
    case_remove(folder);
}

static void cifar100_takes_fine_labels(void **state)
{
    char *folder = case_folder();
    struct dataset_options options = options_of(folder, SPLIT_VAL);
    write_cifar(folder, "test.bin", 3, (uint8_t[]){1, 99, 2, 55, 3, 0}, 2);
    struct dataset dataset = opened("cifar100", &options);
    struct image image = {0};
    assert_int_equal(dataset.count, 3);
    assert_int_equal(dataset.classes, 100);
    assert_string_equal(dataset.class_names[42], "42");
    assert_int_equal(read_image(&dataset, 0, &image), 99);
    assert_int_equal(read_image(&dataset, 1, &image), 55);
    image_free(&image);
    dataset_close(&dataset);
    case_remove(folder);
}

/* Digits */

static void digits_come_with_the_program(void **state)
{
    struct dataset_options options = {.installed = SOURCEDIR "/data"};
    struct dataset train = opened("digits", &options);
    options.split = SPLIT_VAL;
    struct dataset val = opened("digits", &options);
    struct image image = {0};
    assert_int_equal(train.count, 1438);
    assert_int_equal(val.count, 359);
    assert_int_equal(read_image(&train, 0, &image), 0);
    assert_int_equal(image.pixels[2], 80);         /* 5 of 16 */
    assert_int_equal(read_image(&val, 0, &image), 4);
    int counts[10] = {0};
    for (int64_t i = 0; i < val.count; i++) counts[read_image(&val, i, &image)]++;
    for (int i = 0; i < 10; i++) assert_in_range(counts[i], 20, 60);
    image_free(&image);
    dataset_close(&train);
    dataset_close(&val);
}

static void digits_name_the_line_that_is_wrong(void **state)
{
    char *folder = case_folder();
    struct text good = {0};
    for (int i = 0; i < 64; i++) text_add(&good, "%d,", i % 17);
    static const char *const ends[] = {"10\n", "3,\n", "x\n", ",3\n", "\n", "-1\n"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct text text = {0};
        text_add(&text, "%s3\n%s%s", good.data, good.data, ends[i]);
        case_write_gz(folder, "digits.csv.gz", text.data, text.length);
        struct dataset_options options = options_of(folder, SPLIT_TRAIN);
        expect_refused("digits", &options, "digits.csv.gz:2:");
        char *path = text_format("%s/digits.csv.gz", folder);
        options = options_of(path, SPLIT_TRAIN);
        expect_refused("digits", &options, "digits.csv.gz:2:");
        free(path);
        text_free(&text);
    }
    struct dataset_options options = options_of(folder, SPLIT_TRAIN);
    text_add(&good, "3\n");
    case_write_gz(folder, "digits.csv.gz", good.data, good.length);
    char *path = text_format("%s/digits.csv.gz", folder);
    struct bytes gz = case_read(path);
    for (size_t cut = 1; cut < 40; cut++) {
        case_write(folder, "digits.csv.gz", gz.data, gz.count - cut);
        expect_refused("digits", &options, "truncated");
    }
    free(gz.data);
    free(path);
    text_free(&good);
    case_write(folder, "digits.csv.gz", "", 0);
    expect_refused("digits", &options, "contains no images");
    size_t much = (1 << 26) + (1 << 17);                   /* of which gzip makes a thousandth */
    char *zeros = memory_new(much, 1);
    case_write_gz(folder, "digits.csv.gz", zeros, much);
    free(zeros);
    expect_refused("digits", &options, "over 64 MiB of text");
    case_remove(folder);
}

/* Folders */

static void folder_finds_images_by_first_bytes(void **state)
{
    char *folder = case_folder();
    case_write_bytes(folder, "zebra/b.txt", case_plain_png(3, 2, 1, 2, 3));
    case_write_bytes(folder, "zebra/a/deep", case_plain_png(3, 2, 4, 5, 6));
    case_write_bytes(folder, "Ant/x.png", case_plain_png(3, 2, 7, 8, 9));
    case_write(folder, "Ant/readme.png", "no image", 8);
    case_write(folder, "Ant/.hidden", "no image", 8);
    case_write(folder, "stray.png", "no image", 8);         /* an image by its name */
    case_write(folder, "notes.txt", "no image", 8);
    struct dataset_options options = options_of(folder, SPLIT_TRAIN);
    struct dataset dataset = opened("folder", &options);
    assert_non_null(strstr(case_log(), "neither PNG, JPEG, WebP nor TIFF are skipped: 1, such as"));
    assert_non_null(strstr(case_log(), "images outside of class folders are skipped: 1\n"));
    struct image image = {0};
    assert_int_equal(dataset.count, 3);
    assert_int_equal(dataset.classes, 2);
    assert_string_equal(dataset.class_names[0], "Ant");
    assert_string_equal(dataset.class_names[1], "zebra");
    assert_int_equal(read_image(&dataset, 0, &image), 0);
    assert_int_equal(image.pixels[0], 7);
    assert_int_equal(read_image(&dataset, 1, &image), 1);
    assert_int_equal(image.pixels[0], 4);
    assert_int_equal(read_image(&dataset, 2, &image), 1);
    assert_int_equal(image.pixels[0], 1);
    image_free(&image);
    dataset_close(&dataset);
    case_remove(folder);
}

static void folder_numbers_by_given_names(void **state)
{
    char *folder = case_folder();
    case_write_bytes(folder, "b/1", case_plain_png(1, 1, 1, 1, 1));
    char *names[] = {"a", "b", "c"};
    struct dataset_options options = options_of(folder, SPLIT_VAL);
    options.class_names = names;
    options.class_count = 3;
    struct dataset dataset = opened("folder", &options);
    struct image image = {0};
    assert_int_equal(dataset.classes, 3);
    assert_int_equal(read_image(&dataset, 0, &image), 1);
    image_free(&image);
    dataset_close(&dataset);
    options.class_count = 1;
    expect_refused("folder", &options, ": class 'b' is not one of the 1 known ones (a); the data have b");
    case_remove(folder);
}

static void folder_says_what_is_missing(void **state)
{
    char *folder = case_folder();
    struct dataset_options options = options_of(folder, SPLIT_TRAIN);
    expect_refused("folder", &options, "contains no class folders");
    case_write(folder, "a/notes", "no image", 8);
    case_write(folder, "b/c/notes", "no image", 8);
    expect_refused("folder", &options, "no PNG, JPEG, WebP or TIFF image");
    case_write_bytes(folder, "d/x", case_plain_png(1, 1, 1, 1, 1));
    expect_refused("folder", &options, "class folders without PNG, JPEG, WebP or TIFF images: a, b");
    case_write_bytes(folder, "x.png", case_plain_png(1, 1, 1, 1, 1));
    expect_refused("folder", &options, "images outside of class folders are skipped: 1");
    case_write(folder, "b/phone.heic", "\0\0\0\x18" "ftypheix\0\0\0\0", 16);
    expect_refused("folder", &options,
                   "are skipped: 1, such as b/phone.heic (HEIC); `mogrify -format png FILE...` converts");
    case_remove(folder);
    options.path = "/nonexistent/train";
    expect_refused("folder", &options, "/nonexistent/train: No such file");
}

static void folder_reports_unreadable_images(void **state)
{
    char *folder = case_folder();
    struct bytes png = case_plain_png(9, 9, 1, 2, 3);
    case_write(folder, "a/broken", png.data, png.count - 20);
    case_write(folder, "a/empty.jpg", "", 0);
    free(png.data);
    struct dataset_options options = options_of(folder, SPLIT_TRAIN);
    struct dataset dataset = opened("folder", &options);
    assert_int_equal(dataset.count, 2);
    struct image image = {0};
    struct reason reason;
    int label;
    assert_false(dataset.format->read(&dataset, 0, NULL, &image, &label, &reason));
    assert_non_null(strstr(reason.text, "a/broken"));
    assert_false(dataset.format->read(&dataset, 1, NULL, &image, &label, &reason));
    assert_non_null(strstr(reason.text, "a/empty.jpg: empty"));
    image_free(&image);
    dataset_close(&dataset);
    case_remove(folder);
}

static void folder_does_not_follow_links_for_ever(void **state)
{
    char *folder = case_folder(), *link = text_format("%s/a/back", folder);
    struct dataset_options options = options_of(folder, SPLIT_TRAIN);
    case_write_bytes(folder, "a/x", case_plain_png(1, 1, 1, 1, 1));
    assert_int_equal(symlink("..", link), 0);
    struct dataset dataset = opened("folder", &options);
    assert_int_equal(dataset.count, 1);
    assert_non_null(strstr(case_log(), "a/back: links to a folder that it is in, and is skipped"));
    dataset_close(&dataset);
    case_write_bytes(folder, "a/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/x", case_plain_png(1, 1, 1, 1, 1));
    dataset = opened("folder", &options);
    assert_int_equal(dataset.count, 2);
    dataset_close(&dataset);
    case_write_bytes(folder, "a/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/x", case_plain_png(1, 1, 1, 1, 1));
    expect_refused("folder", &options, "nested too deeply");
    free(link);
    case_remove(folder);
}

/* Synthetic */

static void synthetic_is_repeatable(void **state)
{
    struct dataset_options options = {.seed = 5, .h = 9, .w = 7, .c = 3, .classes = 4, .synthetic_count = 20};
    struct dataset a = opened("synthetic", &options), b = opened("synthetic", &options);
    struct image one = {0}, two = {0};
    assert_int_equal(a.count, 20);
    assert_int_equal(read_image(&a, 6, &one), 2);
    assert_int_equal(read_image(&b, 6, &two), 2);
    assert_memory_equal(one.pixels, two.pixels, 9 * 7 * 3);
    read_image(&b, 10, &two);
    assert_memory_not_equal(one.pixels, two.pixels, 9 * 7 * 3);
    dataset_close(&b);
    options.split = SPLIT_VAL;
    b = opened("synthetic", &options);
    read_image(&b, 6, &two);
    assert_memory_not_equal(one.pixels, two.pixels, 9 * 7 * 3);
    image_free(&one);
    image_free(&two);
    dataset_close(&a);
    dataset_close(&b);
}

/* The published sets */

static void expect_set(const char *format, const char *name, enum split split, int64_t count,
                       const int *labels)
{
    char *path = case_data(name);
    struct dataset_options options = options_of(path, split);
    struct dataset dataset = opened(format, &options);
    struct image image = {0};
    assert_int_equal(dataset.count, count);
    for (int i = 0; i < 5; i++) assert_int_equal(read_image(&dataset, i, &image), labels[i]);
    image_free(&image);
    dataset_close(&dataset);
    free(path);
}

static void mnist_as_published(void **state)
{
    expect_set("mnist", "mnist", SPLIT_TRAIN, 60000, (int[]){5, 0, 4, 1, 9});
    expect_set("mnist", "mnist", SPLIT_VAL, 10000, (int[]){7, 2, 1, 0, 4});
}

static void cifar10_as_published(void **state)
{
    expect_set("cifar10", "cifar10", SPLIT_TRAIN, 50000, (int[]){6, 9, 9, 4, 1});
    expect_set("cifar10", "cifar10", SPLIT_VAL, 10000, (int[]){3, 8, 8, 0, 6});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_has_the_promised_formats),
        cmocka_unit_test(mnist_reads_raw_and_gz),
        cmocka_unit_test(mnist_refuses_what_is_wrong),
        cmocka_unit_test(mnist_refuses_broken_gz),
        cmocka_unit_test(cifar10_reads_planes),
        cmocka_unit_test(cifar100_takes_fine_labels),
        cmocka_unit_test(digits_come_with_the_program),
        cmocka_unit_test(digits_name_the_line_that_is_wrong),
        cmocka_unit_test(folder_finds_images_by_first_bytes),
        cmocka_unit_test(folder_numbers_by_given_names),
        cmocka_unit_test(folder_says_what_is_missing),
        cmocka_unit_test(folder_reports_unreadable_images),
        cmocka_unit_test(folder_does_not_follow_links_for_ever),
        cmocka_unit_test(synthetic_is_repeatable),
        cmocka_unit_test(mnist_as_published),
        cmocka_unit_test(cifar10_as_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
