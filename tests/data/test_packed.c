/* Packed data sets and tar archives: what was put in comes out, and what is broken is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "data/dataset/dataset.h"
#include "data/formats/packed.h"
#include "data/formats/tar.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

static char *const names[] = {"cat", "dog", "eel"};

/* Image i is 4 x 5 pixels of the bytes i, i + 1, ...; label i % 3. */
static void raw_pixels(int i, uint8_t pixels[4 * 5 * 3])
{
    for (int k = 0; k < 4 * 5 * 3; k++) pixels[k] = (uint8_t)(i + k);
}

static void write_raw(const char *path, int first, int count)
{
    struct packed_writer *writer;
    assert_int_equal(packed_create(path, 3, names, 3, &writer), OK);
    for (int i = first; i < first + count; i++) {
        uint8_t pixels[4 * 5 * 3];
        raw_pixels(i, pixels);
        struct packed_entry entry = {.kind = PACKED_RAW, .label = (uint32_t)(i % 3), .h = 4, .w = 5};
        assert_int_equal(packed_add(writer, entry, pixels, sizeof pixels), OK);
    }
    assert_int_equal(packed_finish(writer), OK);
    packed_free(writer);
}

static enum status open_at(const char *path, struct dataset *dataset)
{
    struct dataset_options options = {.path = path};
    case_log_collect();
    return dataset_open(format_find("packed"), &options, dataset);
}

static void expect_raw(const struct dataset *dataset, int count)
{
    struct image image = {0};
    struct reason reason;
    assert_int_equal(dataset->count, count);
    assert_int_equal(dataset->classes, 3);
    assert_string_equal(dataset->class_names[2], "eel");
    assert_int_equal(dataset->h, 4);
    assert_int_equal(dataset->w, 5);
    assert_int_equal(dataset->c, 3);
    for (int i = count - 1; i >= 0; i--) {
        uint8_t want[4 * 5 * 3];
        int label;
        raw_pixels(i, want);
        assert_true(dataset->format->read(dataset, i, NULL, &image, &label, &reason));
        assert_int_equal(label, i % 3);
        assert_int_equal(dataset->format->label(dataset, i), label);
        assert_memory_equal(image.pixels, want, sizeof want);
    }
    image_free(&image);
}

static void raw_images_come_back(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    struct dataset dataset;
    write_raw(path, 0, 40);
    assert_int_equal(open_at(path, &dataset), OK);
    expect_raw(&dataset, 40);
    dataset_close(&dataset);
    free(path);
    case_remove(folder);
}

/* PREFIX-0.pack and so on, of the images from 0 on; made one set. */
static void write_set(const char *folder, const char *prefix, const int *counts, int count)
{
    char *paths[4] = {NULL};
    for (int i = 0, first = 0; i < count; first += counts[i++]) {
        paths[i] = text_format("%s/%s-%d.pack", folder, prefix, i);
        write_raw(paths[i], first, counts[i]);
    }
    assert_int_equal(packed_join(paths, count), OK);
    for (int i = 0; i < count; i++) free(paths[i]);
}

static void shards_are_one_data_set(void **state)
{
    char *folder = case_folder();
    static const int counts[] = {7, 1, 20, 5};
    struct dataset dataset;
    write_set(folder, "part", counts, 4);
    case_write(folder, "README", "not a shard", 11);
    assert_int_equal(open_at(folder, &dataset), OK);
    expect_raw(&dataset, 33);
    char *named = dataset.format->image_path(&dataset, 8);
    assert_non_null(strstr(named, "part-2.pack: image 0"));
    free(named);
    dataset_close(&dataset);
    case_remove(folder);
}

static void refused_set(const char *folder, const char *words)
{
    struct dataset dataset;
    assert_int_equal(open_at(folder, &dataset), BAD_DATA);
    if (!strstr(case_log(), words)) fail_msg("'%s' does not have '%s'", case_log(), words);
}

static void run_in(const char *folder, const char *command)
{
    char *line = text_format("cd '%s' && %s", folder, command);
    assert_int_equal(system(line), 0);
    free(line);
}

static void shards_of_one_set_alone(void **state)
{
    char *folder = case_folder(), *first = text_format("%s/x-0.pack", folder);
    static const int three[] = {8, 7, 7}, two[] = {8, 8};
    struct dataset dataset;
    write_set(folder, "x", three, 3);
    write_set(folder, "x", two, 2);
    refused_set(folder, "x-2.pack is not from the same set as x-0.pack");
    run_in(folder, "rm x-1.pack");
    refused_set(folder, "x-2.pack is not from the same set as x-0.pack, shard 0001 of 2 is missing");
    write_set(folder, "x", three, 3);
    run_in(folder, "cp x-1.pack x-4.pack && rm x-0.pack");
    refused_set(folder, "x-4.pack is the same shard as x-1.pack, shard 0000 of 3 is missing");
    write_set(folder, "x", three, 3);
    run_in(folder, "rm x-4.pack x-1.pack x-2.pack");
    refused_set(folder, "shard 0001 of 3 is missing, shard 0002 of 3 is missing");
    assert_int_equal(open_at(first, &dataset), OK);            /* named by itself */
    assert_non_null(strstr(case_log(), "is one of 3 shards"));
    assert_int_equal(dataset.count, 8);
    dataset_close(&dataset);
    write_raw(first, 0, 3);
    assert_int_equal(open_at(folder, &dataset), OK);           /* a set of one */
    dataset_close(&dataset);
    run_in(folder, "cp x-0.pack y.pack");
    refused_set(folder, "x-0.pack and y.pack are separate data sets");
    free(first);
    case_remove(folder);
}

/* Version 1 had zeros where the set is. */
static void version_1_is_read(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    struct dataset dataset;
    write_raw(path, 0, 12);
    struct bytes file = case_read(path);
    struct packed_header *header = (struct packed_header *)file.data;
    for (char version = '1'; version <= '4'; version += 3) {
        header->magic[7] = version;
        header->set = (struct packed_set){0};
        header->crc = crc32c(0, header, offsetof(struct packed_header, crc));
        case_write(folder, "x.pack", file.data, file.count);
        assert_int_equal(open_at(path, &dataset), version == '1' ? OK : BAD_DATA);
        if (version == '1') expect_raw(&dataset, 12), dataset_close(&dataset);
    }
    assert_non_null(strstr(case_log(), "has version 4; this amptrain reads versions 1 to 3"));
    free(file.data), free(path);
    case_remove(folder);
}

static void files_come_back_as_they_are(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    struct bytes png = case_plain_png(6, 3, 10, 20, 30);
    struct packed_writer *writer;
    assert_int_equal(packed_create(path, 3, names, 3, &writer), OK);
    struct packed_entry entry = {.kind = PACKED_FILE, .label = 1};
    assert_int_equal(packed_add(writer, entry, png.data, png.count), OK);
    assert_int_equal(packed_add(writer, entry, "no image", 8), OK);
    assert_int_equal(packed_finish(writer), OK);
    packed_free(writer);

    struct dataset dataset;
    struct image image = {0};
    struct reason reason;
    struct bytes copy;
    int label;
    assert_int_equal(open_at(path, &dataset), OK);
    assert_int_equal(dataset.h, 0);
    assert_true(dataset.format->read(&dataset, 0, NULL, &image, &label, &reason));
    assert_int_equal(image.w, 6);
    assert_int_equal(image.pixels[2], 30);
    assert_true(dataset.format->read_file(&dataset, 0, &copy.data, &copy.count, &label, &reason));
    assert_int_equal(copy.count, png.count);
    assert_memory_equal(copy.data, png.data, png.count);
    assert_int_equal(label, 1);
    assert_false(dataset.format->read(&dataset, 1, NULL, &image, &label, &reason));
    assert_non_null(strstr(reason.text, "image 1: neither PNG, JPEG, WebP nor TIFF"));
    dataset_close(&dataset);
    image_free(&image);
    free(copy.data);
    free(png.data);
    free(path);
    case_remove(folder);
}

/* No byte of header, index and names may change, and none may be missing; changed pixels are noticed
 * when they are read. */
static void changed_bytes_are_noticed(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    write_raw(path, 0, 3);
    struct bytes file = case_read(path);
    struct dataset dataset;
    for (size_t i = 0; i < file.count; i++) {
        file.data[i] ^= 0x10;
        case_write(folder, "x.pack", file.data, file.count);
        file.data[i] ^= 0x10;
        bool image = i >= 128 && i < 128 + 2 * 64 + 60, gap = image && (i - 128) % 64 >= 60;
        enum status status = open_at(path, &dataset);
        if (i >= 128 + 2 * 64 + 60 && i < 128 + 3 * 64) gap = true;
        if (status != (image || gap ? OK : BAD_DATA)) fail_msg("byte %zu: %d", i, (int)status);
        if (status != OK) continue;
        struct image read = {0};
        struct reason reason;
        int label;
        bool good = dataset.format->read(&dataset, (int64_t)(i - 128) / 64, NULL, &read, &label, &reason);
        assert_int_equal(good, gap);
        if (!good) assert_non_null(strstr(reason.text, "damaged"));
        image_free(&read);
        dataset_close(&dataset);
    }
    for (size_t count = 0; count < file.count; count += 3) {
        case_write(folder, "x.pack", file.data, count);
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
    }
    free(file.data);
    free(path);
    case_remove(folder);
}

/* A set of images of no pixels, all of one size, would be one of images of any size. */
static void empty_images_are_refused(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    struct packed_writer *writer;
    struct dataset dataset;
    assert_int_equal(packed_create(path, 3, names, 3, &writer), OK);
    struct packed_entry entry = {.kind = PACKED_RAW, .h = 0, .w = 7};
    assert_int_equal(packed_add(writer, entry, "", 0), OK);
    assert_int_equal(packed_finish(writer), OK);
    packed_free(writer);
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "is invalid"));
    free(path);
    case_remove(folder);
}

/* Numbers that no file can hold, in headers whose checksums are right, cost no memory. */
static void headers_that_promise_too_much(void **state)
{
    static const uint64_t claims[] = {UINT64_C(1) << 60, INT64_MAX, UINT64_MAX, UINT64_MAX - 127};
    static const size_t fields[] = {
        offsetof(struct packed_header, count),    offsetof(struct packed_header, index_at),
        offsetof(struct packed_header, names_at), offsetof(struct packed_header, names_bytes),
        offsetof(struct packed_header, file_bytes),
    };
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    struct dataset dataset;
    write_raw(path, 0, 3);
    struct bytes file = case_read(path);
    const struct packed_header good = *(const struct packed_header *)file.data;
    struct packed_header *header = (struct packed_header *)file.data;
    for (int i = 0; i < 5 * 4; i++) {
        memcpy(file.data + fields[i / 4], &claims[i % 4], sizeof claims[0]);
        header->crc = crc32c(0, header, offsetof(struct packed_header, crc));
        case_write(folder, "x.pack", file.data, file.count);
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
        assert_null(strstr(case_log(), "damaged"));
        *header = good;
    }
    struct packed_entry *entries = (struct packed_entry *)(file.data + good.index_at), *entry = &entries[1];
    const struct packed_entry wrong[] = {
        {.at = UINT64_C(1) << 60, .bytes = entry->bytes, .h = 4, .w = 5},
        {.at = UINT64_MAX - 63, .bytes = entry->bytes, .h = 4, .w = 5},
        {.at = entry->at, .bytes = UINT32_MAX, .h = 4, .w = 5},
        {.at = entry->at, .bytes = entry->bytes, .h = 1u << 31, .w = 1u << 31},
        {.at = entry->at, .bytes = entry->bytes, .h = 4, .w = 5, .label = UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        *entry = wrong[i];
        header->index_crc = crc32c(0, entries, good.count * sizeof *entries);
        header->crc = crc32c(0, header, offsetof(struct packed_header, crc));
        case_write(folder, "x.pack", file.data, file.count);
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
        assert_null(strstr(case_log(), "damaged"));
    }
    free(file.data), free(path);
    case_remove(folder);
}

/* Nor do numbers that only do not go together. */
static void headers_that_make_no_sense(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    struct dataset dataset;
    write_raw(path, 0, 3);
    struct bytes file = case_read(path);
    const struct packed_header good = *(const struct packed_header *)file.data;
    struct packed_header *header = (struct packed_header *)file.data, wrong[11];
    for (int i = 0; i < 11; i++) wrong[i] = good;
    wrong[0].header_bytes++, wrong[1].entry_bytes--;
    wrong[2].channels = IMAGE_CHANNELS_MAX + 1, wrong[3].channels = 0;
    wrong[4].classes = 0, wrong[5].classes = (uint32_t)good.names_bytes + 1;
    wrong[6].classes = CLASSES_MAX + 1, wrong[7].w = 0;
    wrong[8].set.count = 0, wrong[9].set.number = 1, wrong[10].set.count = PACKED_SHARDS_MAX + 1;
    for (int i = 0; i < 11; i++) {
        *header = wrong[i];
        header->crc = crc32c(0, header, offsetof(struct packed_header, crc));
        case_write(folder, "x.pack", file.data, file.count);
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
        assert_non_null(strstr(case_log(), "the header is invalid"));
    }
    *header = good;
    struct packed_entry *entries = (struct packed_entry *)(file.data + good.index_at), entry = entries[1];
    for (int i = 0; i < 4; i++) {
        entries[1] = entry;
        if (i == 0) entries[1].kind = 7;
        if (i == 1) entries[1].bytes--;
        if (i == 2) entries[1].kind = PACKED_FILE;
        if (i == 3) entries[1].h = 5, entries[1].w = 4;
        header->index_crc = crc32c(0, entries, good.count * sizeof *entries);
        header->crc = crc32c(0, header, offsetof(struct packed_header, crc));
        case_write(folder, "x.pack", file.data, file.count);
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
        assert_non_null(strstr(case_log(), "the entry of image 1 is invalid"));
    }
    free(file.data), free(path);
    case_remove(folder);
}

static void files_that_become_shorter_are_noticed(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    struct dataset dataset;
    struct image image = {0};
    struct reason reason;
    int label;
    write_raw(path, 0, 3);
    assert_int_equal(open_at(path, &dataset), OK);
    assert_int_equal(truncate(path, 128 + 64), 0);
    assert_true(dataset.format->read(&dataset, 0, NULL, &image, &label, &reason));
    assert_false(dataset.format->read(&dataset, 1, NULL, &image, &label, &reason));
    assert_non_null(strstr(reason.text, "image 1: truncated while in use"));
    dataset_close(&dataset);
    image_free(&image);
    free(path);
    case_remove(folder);
}

static void shards_must_agree(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/b.pack", folder);
    struct packed_writer *writer;
    struct dataset dataset;
    write_raw(path, 0, 3);
    free(path);
    path = text_format("%s/a.pack", folder);
    assert_int_equal(packed_create(path, 3, names, 2, &writer), OK);
    assert_int_equal(packed_finish(writer), OK);
    packed_free(writer);
    assert_int_equal(open_at(folder, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "3 classes, but others have 2"));
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "contains no images"));
    case_unlink(folder, "a.pack");
    case_unlink(folder, "b.pack");
    assert_int_equal(open_at(folder, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "no .pack or .tar files"));
    case_write(folder, "a.pack", "hello", 5);
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "neither a packed data set nor a tar archive"));
    free(path);
    case_remove(folder);
}

/* Tar archives, written by the tar of the system. */

static void make_samples(const char *folder)
{
    static const char *const keys[] = {"00", "a/01", "a/b.c/02", "03"};
    for (int i = 0; i < 4; i++) {
        char *name = text_format("%s.png", keys[i]), *label = text_format("%s.cls", keys[i]);
        case_write_bytes(folder, name, case_plain_png(2 + i, 3, (uint8_t)i, 0, 0));
        case_write(folder, label, (char[]){"2041"[i], '\n'}, 2);
        free(name), free(label);
    }
}

static void expect_samples(const char *path)
{
    static const int labels[] = {2, 0, 4, 1};
    struct dataset dataset;
    struct image image = {0};
    struct reason reason;
    int label;
    assert_int_equal(open_at(path, &dataset), OK);
    assert_int_equal(dataset.count, 4);
    assert_int_equal(dataset.classes, 5);
    assert_string_equal(dataset.class_names[4], "4");
    for (int i = 0; i < 4; i++) {
        assert_true(dataset.format->read(&dataset, i, NULL, &image, &label, &reason));
        assert_int_equal(label, labels[i]);
        assert_int_equal(image.w, 2 + i);
        assert_int_equal(image.pixels[0], i);
    }
    dataset_close(&dataset);
    image_free(&image);
}

/* A packed file of one image, other than write_raw's in what is given. */
static void write_other(const char *path, int channels, const char *last_class)
{
    char *others[] = {"cat", "dog", (char *)last_class};
    struct packed_writer *writer;
    uint8_t pixels[4 * 5 * 3] = {0};
    struct packed_entry entry = {.kind = PACKED_RAW, .h = 4, .w = 5};
    assert_int_equal(packed_create(path, channels, others, 3, &writer), OK);
    assert_int_equal(packed_add(writer, entry, pixels, (size_t)(4 * 5 * channels)), OK);
    assert_int_equal(packed_finish(writer), OK);
    packed_free(writer);
}

static void shards_that_differ_are_refused(void **state)
{
    char *folder = case_folder(), *first = text_format("%s/a.pack", folder);
    char *second = text_format("%s/b.pack", folder);
    struct dataset dataset;
    write_raw(second, 0, 3);
    write_other(first, 3, "fox");
    assert_int_equal(open_at(folder, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "b.pack: class 2 is 'eel', but 'fox' in others"));
    write_other(first, 1, "eel");
    assert_int_equal(open_at(folder, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "b.pack: 3 channels, but others have 1"));
    make_samples(folder);
    case_unlink(folder, "a.pack");
    run_in(folder, "tar -cf c.tar 03.png 03.cls");
    assert_int_equal(open_at(folder, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "c.tar: packed data sets and tar archives are mixed"));
    free(first), free(second);
    case_remove(folder);
}

/* A tar archive's labels are numbers alone: how many classes there are may be known from elsewhere. */
static void tar_archives_of_known_classes(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    struct dataset dataset;
    struct dataset_options options = {.path = path, .classes = 7};
    make_samples(folder);
    run_in(folder, "tar -cf x.tar 00.png 00.cls 03.cls 03.png");
    assert_int_equal(dataset_open(format_find("packed"), &options, &dataset), OK);
    assert_int_equal(dataset.classes, 7);
    assert_string_equal(dataset.class_names[6], "6");
    dataset_close(&dataset);
    options.class_names = names;
    options.class_count = 3;
    assert_int_equal(dataset_open(format_find("packed"), &options, &dataset), OK);
    assert_string_equal(dataset.class_names[2], "eel");
    dataset_close(&dataset);
    options.class_count = 2;
    case_log_collect();
    assert_int_equal(dataset_open(format_find("packed"), &options, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "class '1' is not one of the 2 known ones (cat, dog); the data"));
    free(path);
    case_remove(folder);
}

/* The class names that define the numbering, and the labels that images then have; no labels: it is refused.
 * `words` are said. */
static void expect_numbers(const char *path, char *const *known, int count, const char *labels,
                           const char *words)
{
    struct dataset dataset;
    struct dataset_options options = {.path = path, .class_names = known, .class_count = count};
    case_log_collect();
    enum status status = dataset_open(format_find("packed"), &options, &dataset);
    if (words) assert_non_null(strstr(case_log(), words));
    assert_int_equal(status, labels ? OK : BAD_DATA);
    if (!labels) return;
    assert_int_equal(dataset.classes, count);
    assert_string_equal(dataset.class_names[count - 1], known[count - 1]);
    for (int64_t i = 0; i < dataset.count; i++) {
        struct image image = {0};
        struct reason reason;
        int label;
        assert_int_equal(dataset.format->label(&dataset, i), labels[i] - '0');
        assert_true(dataset.format->read(&dataset, i, NULL, &image, &label, &reason));
        assert_int_equal(label, labels[i] - '0');
        image_free(&image);
    }
    dataset_close(&dataset);
}

/* Classes are those of their names, in any order, and among others. */
static void classes_are_matched_by_name(void **state)
{
    static char *more[] = {"eel", "fox", "dog", "cat"}, *fewer[] = {"dog", "cat"}, *none[] = {"x", "y", "z"};
    static char *some[] = {"dog", "cat", "e1", "e2", "e3", "e4", "e5", "e6", "e7"};
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    write_raw(path, 0, 5);
    expect_numbers(path, names, 3, "01201", NULL);
    expect_numbers(path, more, 4, "32032", NULL);
    expect_numbers(path, none, 3, NULL, "class 'cat' is not one of the 3 known ones (x, y, z); the data have "
                                        "cat, dog, eel");
    expect_numbers(path, some, 9, NULL, "class 'eel' is not one of the 9 known ones (dog, cat, e1, e2, e3, "
                                        "e4, e5, e6 and 1 more)");
    expect_numbers(path, fewer, 2, NULL, "class 'eel' is not one of");
    write_raw(path, 0, 2);                             /* no eel among the images */
    expect_numbers(path, fewer, 2, "10", NULL);
    free(path);
    case_remove(folder);
}

/* Numbers stand for names, unless names are other numbers. */
static void numbered_classes_are_matched_by_name(void **state)
{
    static char *digits[] = {"2", "0", "1"}, *others[] = {"7", "9", "8"};
    static char *few[] = {"cat", "dog"}, *mixed[] = {"cat", "1x", "2"};
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    make_samples(folder);
    run_in(folder, "tar -cf x.tar 00.png 00.cls 03.cls 03.png");
    expect_numbers(path, digits, 3, "02", NULL);
    expect_numbers(path, names, 3, "21", "0 is taken to be 'cat'");
    expect_numbers(path, mixed, 3, "21", "0 is taken to be 'cat'");
    expect_numbers(path, others, 3, NULL, "class '1' is not one of the 3 known ones (7, 9, 8); the data have "
                                          "0, 1, 2");
    expect_numbers(path, few, 2, NULL, "class '1' is not one of the 2 known ones (cat, dog)");
    free(path);
    case_remove(folder);
}

static void tar_archives_of_every_kind(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    make_samples(folder);
    static const char *const kinds[] = {"ustar", "gnu", "pax"};
    for (int i = 0; i < 3; i++) {
        char *command = text_format("tar --format=%s -cf x.tar 00.png 00.cls a/01.cls a/01.png a/b.c/02.png "
                                    "a/b.c/02.cls 03.cls 03.png", kinds[i]);
        run_in(folder, command);
        expect_samples(path);
        free(command);
        command = text_format("tar --sort=name --format=%s -cf x.tar 00.png 00.cls a 03.cls 03.png",
                              kinds[i]);
        run_in(folder, command);
        expect_samples(path);
        free(command);
    }
    free(path);
    case_remove(folder);
}

static void tar_names_can_be_long(void **state)
{
    static const char *const kinds[] = {"gnu", "pax"};
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder), key[181];
    memset(key, 'k', 180), key[180] = '\0';
    char *name = text_format("%s.png", key), *label = text_format("%s.cls", key);
    case_write_bytes(folder, name, case_plain_png(2, 2, 9, 9, 9));
    case_write(folder, label, "3", 1);
    for (int i = 0; i < 2; i++) {
        char *command = text_format("tar --format=%s -cf x.tar k*", kinds[i]);
        struct dataset dataset;
        run_in(folder, command);
        assert_int_equal(open_at(path, &dataset), OK);
        assert_int_equal(dataset.count, 1);
        assert_int_equal(dataset.classes, 4);
        dataset_close(&dataset);
        free(command);
    }
    /* Names that are too long are not cut short. */
    run_in(folder, "d=$(printf '%0200d' 0); for i in $(seq 21); do mkdir $d && cd $d; done; touch x.png");
    struct dataset dataset;
    run_in(folder, "tar --format=pax -cf x.tar 0*");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "the maximum is 4095"));
    run_in(folder, "tar --format=gnu -cf x.tar 0*");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "the maximum is 4095"));
    free(name), free(label), free(path);
    case_remove(folder);
}

/* Writes the bytes of a header; the sum is put right. */
static void put_header(uint8_t header[512], const char *name, char type, const char size[12])
{
    memset(header, 0, 512);
    memcpy(header, name, strlen(name));
    memcpy(header + 124, size, 12);
    header[156] = (uint8_t)type;
    memcpy(header + 257, "ustar\00000", 8);
    memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (int k = 0; k < 512; k++) sum += header[k];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* A member over 8 GiB between two images, as pax and GNU tar write its size; a hole in the file. */
static void tar_members_can_be_large(void **state)
{
    static const uint64_t large = UINT64_C(9) << 30;
    static const char record[] = "19 size=9663676416\n";
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    struct dataset dataset;
    make_samples(folder);
    for (int binary = 0; binary < 2; binary++) {
        uint8_t headers[3 * 512] = {0}, *last = headers;
        run_in(folder, "tar --format=ustar -cf x.tar 00.png 00.cls");
        run_in(folder, "tar --format=ustar -cf y.tar 03.png 03.cls");
        struct bytes first = case_read(path);
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(first.data, 1, 2048, file), 2048);
        if (!binary) {
            put_header(headers, "pax", 'x', "00000000023");
            memcpy(headers + 512, record, sizeof record - 1);
            last += 1024;
        }
        put_header(last, "large.bin", '0', binary ? "\x80\0\0\0\0\0\0\x02\x40\0\0" : "00000000000");
        size_t count = (size_t)(last - headers) + 512;
        assert_int_equal(fwrite(headers, 1, count, file), count);
        assert_int_equal(fseek(file, (long)large, SEEK_CUR), 0);
        free(first.data);
        char *other = text_format("%s/y.tar", folder);
        first = case_read(other);
        assert_int_equal(fwrite(first.data, 1, first.count, file), first.count);
        fclose(file);
        assert_int_equal(open_at(path, &dataset), OK);
        assert_int_equal(dataset.count, 2);
        dataset_close(&dataset);
        free(first.data), free(other);
    }
    free(path);
    case_remove(folder);
}

static void sparse_members_are_refused(void **state)
{
    static const char *const kinds[] = {"gnu", "pax --sparse-version=1.0", "pax --sparse-version=0.1"};
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    struct dataset dataset;
    make_samples(folder);
    run_in(folder, "truncate -s 1M hole.png");
    for (int i = 0; i < 3; i++) {
        char *command = text_format("tar -S --format=%s -cf x.tar 00.png 00.cls hole.png", kinds[i]);
        run_in(folder, command);
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
        if (!strstr(case_log(), "hole.png is a sparse file")) fail_msg("%s: %s", kinds[i], case_log());
        free(command);
    }
    free(path);
    case_remove(folder);
}

/* Groups, of classes and of other targets; wherever their members are. */
static void tar_groups(void **state)
{
    static const char *const orders[] = {
        "00.png 00.cls 00.group a/01.png a/01.cls a/b.c/02.group a/b.c/02.cls a/b.c/02.png 03.png 03.cls "
        "03.group",
        "a/b.c/02.group 03.group 00.group 00.png a/01.png a/b.c/02.png 03.png a/b.c/02.cls a/01.cls 00.cls "
        "03.cls",
    };
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    struct dataset dataset;
    make_samples(folder);
    run_in(folder, "echo Ann >00.group && echo Bob >a/b.c/02.group && printf 'Ann\\r\\n' >03.group");
    for (int i = 0; i < 4; i++) {
        char *command = text_format("tar -cf x.tar %s", orders[i % 2]);
        struct dataset_options options = {.path = path, .target = i < 2 ? TARGET_CLASS : TARGET_LABELS};
        run_in(folder, command);
        assert_int_equal(dataset_open(format_find("packed"), &options, &dataset), OK);
        assert_int_equal(dataset.count, 4);
        uint64_t ann = dataset.format->group(&dataset, 0);
        assert_true(ann == dataset_group("Ann") && ann == dataset.format->group(&dataset, 3));
        assert_true(dataset.format->group(&dataset, 1) == 0);
        assert_true(dataset.format->group(&dataset, 2) == dataset_group("Bob"));
        assert_int_equal(dataset.format->label(&dataset, 0), i < 2 ? 2 : 0);
        dataset_close(&dataset);
        free(command);
    }
    run_in(folder, "tar -cf x.tar 00.png 00.cls 03.png 03.cls 00.group");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "x.tar: 00.group is apart from its image and label, or has none"));
    run_in(folder, "cp 00.group 00.GROUP && tar -cf x.tar 00.png 00.cls 00.group 00.GROUP");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "00.GROUP is a second group of the same sample"));
    free(path);
    case_remove(folder);
}

/* The key of a WebDataset sample: it ends at the first dot, capitals are no matter. */
static void samples_as_webdataset_has_them(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    struct dataset dataset;
    make_samples(folder);
    run_in(folder, "cp 00.png b.JPG && cp 00.png b.seg.png && cp 00.cls b.CLS && cp 00.png .c.png && "
                   "cp 00.png d.png && cp 00.cls d.v2.cls && cp 00.png 00.jpg && cp 00.cls 00.CLS");
    run_in(folder, "tar -cf x.tar b.JPG b.seg.png b.CLS .c.png d.png d.v2.cls 03.cls 03.png");
    assert_int_equal(open_at(path, &dataset), OK);
    assert_int_equal(dataset.count, 2);
    assert_non_null(strstr(case_log(), "without exactly one label (KEY.cls) are skipped: 1, such as d"));
    dataset_close(&dataset);
    run_in(folder, "tar -cf x.tar 00.png 00.jpg 00.cls");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "00.jpg is a second image of the same sample"));
    run_in(folder, "tar -cf x.tar 00.png 00.cls 00.CLS");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "00.CLS is a second label of the same sample"));
    run_in(folder, "tar -cf x.tar 03.cls 00.cls d.v2.cls a/b.c/02.cls a/01.cls && "
                   "tar -rf x.tar 00.png a/01.png a/b.c/02.png 03.png");
    expect_samples(path);
    run_in(folder, "tar -cf x.tar 00.cls 00.png a/01.png a/01.cls a/b.c/02.png a/b.c/02.cls && "
                   "tar -cf y.tar 03.cls 03.png d.cls a/b.c/02.jpg 2>y || true; cat y.tar >>x.tar");
    expect_samples(path);                                      /* archives that were put together */
    free(path);
    case_remove(folder);
}

/* Members whose names look like an image's, but are none's by WebDataset's rule, are not left out in silence. */
static void members_with_dots_in_their_names(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    struct dataset dataset;
    make_samples(folder);
    run_in(folder, "mkdir d && cp 00.png d/0.05.png && cp 00.cls d/0.05.cls && cp 00.png 0000.input.jpg && "
                   "cp 00.png 03.seg.png");
    run_in(folder, "tar -cf x.tar d/0.05.png d/0.05.cls 0000.input.jpg");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "are skipped: 2, such as 0000.input.jpg, whose extension is taken to be "
                                       "'input.jpg': KEY ends at the first dot"));
    assert_non_null(strstr(case_log(), "contains no images"));
    run_in(folder, "tar -cf x.tar 03.png 03.cls 03.seg.png d/0.05.png d/0.05.cls");
    assert_int_equal(open_at(path, &dataset), OK);
    assert_int_equal(dataset.count, 1);
    assert_non_null(strstr(case_log(), "are skipped: 1, such as d/0.05.png, whose extension is taken to be "
                                       "'05.png'"));
    dataset_close(&dataset);
    run_in(folder, "tar -cf x.tar 03.png 03.cls 03.seg.png");
    assert_int_equal(open_at(path, &dataset), OK);
    assert_null(strstr(case_log(), "skipped"));
    dataset_close(&dataset);
    free(path);
    case_remove(folder);
}

/* The number in the log behind these words; 0: they are not there. */
static long logged(const char *words)
{
    const char *found = strstr(case_log(), words);
    return found ? strtol(found + strlen(words), NULL, 10) : 0;
}

/* Random archives: every member is used, or counted among those that are skipped. */
static void no_member_is_left_out_in_silence(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    make_samples(folder);
    for (int round = 0; round < 20; round++) {
        struct random random = random_open((uint64_t)round, PURPOSE_TEST, 4, 0);
        long used = 1, images = 0, labels = 0, others = 0;
        struct text command = {0};
        text_add(&command, "rm -rf r && mkdir r && cp 00.png r/use.png && cp 00.cls r/use.cls");
        for (int i = 0; i < 12; i++) {
            uint32_t kind = random_below(&random, 4);
            if (kind == 0) text_add(&command, " && cp 00.png r/%d.png && cp 00.cls r/%d.cls", i, i);
            if (kind == 1) text_add(&command, " && cp 00.png r/%d.png", i);
            if (kind == 2) text_add(&command, " && cp 00.cls r/%d.cls", i);
            if (kind == 3) text_add(&command, " && cp 00.png r/%d.x.png", i);
            used += kind == 0;
            images += kind == 1;
            labels += kind == 2;
            others += kind == 3;
        }
        text_add(&command, " && tar -C r --sort=name -cf x.tar .");
        run_in(folder, command.data);
        struct dataset dataset;
        assert_int_equal(open_at(path, &dataset), OK);
        assert_int_equal(dataset.count, used);
        assert_int_equal(logged("without exactly one label (KEY.cls) are skipped: "), images);
        assert_int_equal(logged("not called KEY.jpg, KEY.png, KEY.webp or KEY.tif are skipped: "), others);
        char *words = text_format("%ld labels do not have exactly one image", labels);
        assert_true(labels == 0 || strstr(case_log(), words));
        free(words);
        dataset_close(&dataset);
        text_free(&command);
    }
    free(path);
    case_remove(folder);
}

static void broken_tar_archives_are_refused(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    struct dataset dataset;
    make_samples(folder);
    run_in(folder, "tar --format=ustar -cf x.tar 00.png 00.cls 03.png 03.cls");
    struct bytes file = case_read(path);
    for (size_t i = 0; i < 512; i += 5) {
        if (i >= 148 && i < 156) continue;             /* the sum itself may be written in several ways */
        file.data[i] ^= 0x21;
        case_write(folder, "x.tar", file.data, file.count);
        file.data[i] ^= 0x21;
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
    }
    case_write(folder, "x.tar", file.data, 600);
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "truncated"));
    case_write(folder, "03.cls", "cat", 3);
    run_in(folder, "tar -cf x.tar 03.png 03.cls");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "03.cls is not a class number"));
    case_write(folder, "03.cls", "1000000", 7);
    run_in(folder, "tar -cf x.tar 03.png 03.cls");
    assert_int_equal(open_at(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "03.cls is not a class number from 0 to 999999"));
    static const char *const wrong[] = {"3 4", "", " ", "3 x", "-3", "0x3", "99999999", "3\n4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        case_write(folder, "03.cls", wrong[i], strlen(wrong[i]));
        run_in(folder, "tar -cf x.tar 03.png 03.cls");
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
        assert_non_null(strstr(case_log(), "03.cls is not a class number from 0 to 999999"));
    }
    case_write(folder, "03.cls", " \t3 \r\n\n", 7);         /* blanks around it mean nothing */
    run_in(folder, "tar -cf x.tar 03.png 03.cls");
    assert_int_equal(open_at(path, &dataset), OK);
    assert_int_equal(dataset.format->label(&dataset, 0), 3);
    dataset_close(&dataset);
    run_in(folder, "tar -cf x.tar 00.png 03.png a/01.png a/01.cls");
    assert_int_equal(open_at(path, &dataset), OK);
    assert_int_equal(dataset.count, 1);
    assert_non_null(strstr(case_log(), "images without exactly one label (KEY.cls) are skipped: 2, such"));
    dataset_close(&dataset);
    free(file.data), free(path);
    case_remove(folder);
}

static void archives_that_promise_too_much(void **state)
{
    static const uint8_t sizes[][12] = {
        "77777777777",
        {0x80, 0, 0, 0, 0x10},
        {0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        {0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        "10000000001",                                 /* a byte over 1 GiB, and the file is as long */
    };
    char *folder = case_folder(), *path = text_format("%s/x.tar", folder);
    struct dataset dataset;
    make_samples(folder);
    run_in(folder, "tar --format=ustar -cf x.tar 00.png 00.cls");
    struct bytes file = case_read(path);
    for (int i = 0; i < 5; i++) {
        unsigned sum = 0;
        memcpy(file.data + 124, sizes[i], 12);
        memset(file.data + 148, ' ', 8);
        for (int k = 0; k < 512; k++) sum += file.data[k];
        snprintf((char *)file.data + 148, 8, "%06o", sum);
        case_write(folder, "x.tar", file.data, file.count);
        if (i == 4) assert_int_equal(truncate(path, 3 << 29), 0);
        assert_int_equal(open_at(path, &dataset), BAD_DATA);
        assert_non_null(strstr(case_log(), i < 4 ? "truncated" : "00.png is too large"));
    }
    free(file.data), free(path);
    case_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_images_come_back),       cmocka_unit_test(shards_are_one_data_set),
        cmocka_unit_test(shards_of_one_set_alone),    cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(tar_members_can_be_large),   cmocka_unit_test(sparse_members_are_refused),
        cmocka_unit_test(samples_as_webdataset_has_them),
        cmocka_unit_test(tar_groups),
        cmocka_unit_test(files_come_back_as_they_are), cmocka_unit_test(changed_bytes_are_noticed),
        cmocka_unit_test(empty_images_are_refused),   cmocka_unit_test(headers_that_promise_too_much),
        cmocka_unit_test(headers_that_make_no_sense), cmocka_unit_test(files_that_become_shorter_are_noticed),
        cmocka_unit_test(shards_that_differ_are_refused), cmocka_unit_test(tar_archives_of_known_classes),
        cmocka_unit_test(classes_are_matched_by_name), cmocka_unit_test(numbered_classes_are_matched_by_name),
        cmocka_unit_test(shards_must_agree),          cmocka_unit_test(tar_archives_of_every_kind),
        cmocka_unit_test(tar_names_can_be_long),      cmocka_unit_test(members_with_dots_in_their_names),
        cmocka_unit_test(no_member_is_left_out_in_silence),
        cmocka_unit_test(broken_tar_archives_are_refused),
        cmocka_unit_test(archives_that_promise_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
