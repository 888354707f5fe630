/* A data set is known again wherever it is, and what has changed in it is named. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/dataset_identity.h"
#include "rounds.h"
#include "tests/unit.h"

/* Images in memory, as a format might have them. */
struct picture {
    char name[80];
    int64_t bytes;
    uint8_t contents;          /* its bytes are all the same */
    int label;
    bool unreadable;
};

struct pictures {
    struct picture *list;
    int count;
    bool known;                /* CRCs are known without reading */
    int64_t read;              /* bytes */
};

static const char *name_of(const struct dataset *dataset, int64_t index)
{
    const struct pictures *pictures = dataset->state;
    return pictures->list[index].name;
}

static void contents_of(const struct dataset *dataset, int64_t index, struct image_contents *contents)
{
    const struct pictures *pictures = dataset->state;
    const struct picture *picture = &pictures->list[index];
    *contents = (struct image_contents){picture->bytes, pictures->known, 0};
    if (pictures->known) contents->crc = picture->contents;
}

static int label_of(const struct dataset *dataset, int64_t index)
{
    const struct pictures *pictures = dataset->state;
    return pictures->list[index].label;
}

static bool read_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                      int *label, struct reason *reason)
{
    struct pictures *pictures = dataset->state;
    const struct picture *picture = &pictures->list[index];
    if (picture->unreadable) return because(reason, "cannot be read");
    *count = (size_t)picture->bytes;
    *bytes = memory_new(*count, 1);
    memset(*bytes, picture->contents, *count);
    *label = picture->label;
#pragma omp atomic
    pictures->read += picture->bytes;
    return true;
}

static bool read_pixels(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                        struct image *image, int *label, struct reason *reason)
{
    const struct pictures *pictures = dataset->state;
    if (!image_resize_buffer(image, 2, 3, 1, reason)) return false;
    memset(image->pixels, pictures->list[index].contents, 6);
    *label = pictures->list[index].label;
    return true;
}

static const struct format with_names = {
    .name = "pictures", .read_file = read_file, .label = label_of, .image_name = name_of,
    .contents = contents_of,
};
static const struct format without_names = {.name = "numbers", .read = read_pixels, .label = label_of};

static char *classes[] = {"apple", "pear", "plum"};

static struct pictures make(int count)
{
    struct pictures pictures = {memory_new((size_t)count, sizeof(struct picture)), count, false, 0};
    for (int i = 0; i < count; i++) {
        struct picture *picture = &pictures.list[i];
        snprintf(picture->name, sizeof picture->name, "%s/%d.png", classes[i % 3], i);
        picture->bytes = 100;
        picture->contents = (uint8_t)i;
        picture->label = i % 3;
    }
    return pictures;
}

static struct pictures copy_of(const struct pictures *pictures)
{
    struct pictures copy = *pictures;
    copy.list = memory_new((size_t)pictures->count + 1, sizeof *copy.list);
    memcpy(copy.list, pictures->list, (size_t)pictures->count * sizeof *copy.list);
    return copy;
}

static struct dataset_identity identity_of(struct pictures *pictures, const struct format *format)
{
    struct dataset dataset = {
        .format = format, .target = TARGET_CLASS, .count = pictures->count, .classes = 3,
        .class_names = classes, .state = pictures,
        .decoded = format == &with_names, .h = 2, .w = 3, .c = 1,
    };
    struct dataset_identity identity;
    dataset_identity_make(&dataset, &identity);
    return identity;
}

/* As a checkpoint has it. */
static struct dataset_identity stored(struct pictures *pictures, const struct format *format)
{
    struct dataset_identity identity = identity_of(pictures, format), parsed;
    struct text text = {0};
    struct reason reason;
    dataset_identity_print(&identity, &text);
    assert_true(text.length <= 28 << 10);
    if (!dataset_identity_parse(text.data, &parsed, &reason)) fail_msg("%s", reason.text);
    parsed.class_names = classes;
    parsed.classes = 3;
    dataset_identity_free(&identity);
    text_free(&text);
    return parsed;
}

/* Compares, and expects these differences in words. */
static void expect(struct pictures *then, struct pictures *now, const struct format *format,
                   enum identity_change wanted, const char *words)
{
    struct dataset_identity old = stored(then, format), new = identity_of(now, format);
    struct text text = {0};
    enum identity_change change = dataset_identity_compare(&old, &new, &text);
    assert_string_equal(text.data ? text.data : "", words);
    assert_int_equal(change, wanted);
    dataset_identity_free(&old);
    dataset_identity_free(&new);
    text_free(&text);
}

static void the_same(void **state)
{
    for (int count = 1; count < 3000; count = 3 * count + 1) {
        struct pictures pictures = make(count);
        expect(&pictures, &pictures, &with_names, IDENTITY_SAME, "");
        expect(&pictures, &pictures, &without_names, IDENTITY_SAME, "");
        pictures.known = true;
        expect(&pictures, &pictures, &with_names, IDENTITY_SAME, "");
        free(pictures.list);
    }
}

static void first_differences(void **state)
{
    struct pictures then = make(1000), now = copy_of(&then);
    strcpy(now.list[10].name, "apple/new.png");
    expect(&then, &now, &with_names, IDENTITY_CHANGED, "apple/new.png is new, pear/10.png is missing");
    now.list[11].label = 0;
    expect(&then, &now, &with_names, IDENTITY_CHANGED,
           "apple/new.png is new, pear/10.png is missing, "
           "plum/11.png was of class 'plum' and is now of 'apple'");
    now.list[2].bytes++;
    now.list[5].bytes++;
    expect(&then, &now, &with_names, IDENTITY_CHANGED,
           "apple/new.png is new, pear/10.png is missing, plum/2.png: contents differ, "
           "plum/5.png: contents differ, and 1 more");
    free(now.list);
    now = copy_of(&then);
    now.count = 998;
    expect(&then, &now, &with_names, IDENTITY_CHANGED,
           "apple/999.png is missing, plum/998.png is missing (1000 images, now 998)");
    expect(&now, &then, &with_names, IDENTITY_CHANGED,
           "apple/999.png is new, plum/998.png is new (998 images, now 1000)");
    struct picture swapped = now.list[7];
    now.list[7] = now.list[8];
    now.list[8] = swapped;
    now.count = 1000;
    expect(&then, &now, &with_names, IDENTITY_CHANGED, "the same images in another order");
    free(now.list);
    free(then.list);
}

static void long_names(void **state)
{
    struct pictures then = make(20), now = copy_of(&then);
    strcpy(now.list[3].name, "apple/a/folder/with/a/name/that/is/longer/than/what/is/kept/3.png");
    expect(&then, &now, &with_names, IDENTITY_CHANGED,
           "apple/3.png is missing, ...e/that/is/longer/than/what/is/kept/3.png is new");
    free(now.list);
    free(then.list);
}

static void contents(void **state)
{
    struct pictures then = make(100), now = copy_of(&then);
    now.list[42].contents++;
    expect(&then, &now, &with_names, IDENTITY_CHANGED, "apple/42.png: contents differ");
    expect(&then, &now, &without_names, IDENTITY_CHANGED, "image 42: contents differ");
    then.known = now.known = true;
    expect(&then, &now, &with_names, IDENTITY_CHANGED, "apple/42.png: contents differ");
    then.known = now.known = false;
    now.list[42].unreadable = true;                    /* not compared */
    expect(&then, &now, &with_names, IDENTITY_SAME, "");
    now.list[42].bytes = -1;
    expect(&then, &now, &with_names, IDENTITY_CHANGED, "apple/42.png: contents differ");
    free(now.list);
    free(then.list);
}

/* 84 of 100 files have changed places among classes, and none its name or size. */
static void contents_changed_places(void **state)
{
    struct pictures then = make(100), now = copy_of(&then);
    struct dataset_identity old, new;
    struct text text = {0};
    for (int i = 0; i < 84; i++) now.list[i].contents = then.list[(i + 1) % 84].contents;
    old = stored(&then, &with_names), new = identity_of(&now, &with_names);
    assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_CHANGED);
    assert_non_null(strstr(text.data, ": contents differ, and 80 more"));
    text_free(&text);
    dataset_identity_free(&old);
    dataset_identity_free(&new);
    free(now.list);
    free(then.list);
}

/* Of many images the contents of some are looked at: a hundredth that changed is found. */
static void contents_of_many(void **state)
{
    struct pictures then = make(4000), now = copy_of(&then);
    struct dataset_identity old = stored(&then, &with_names), new;
    struct text text = {0};
    int missed = 0;
    for (int from = 0; from < 100; from++) {
        for (int i = from; i < now.count; i += 100) now.list[i].contents++;
        new = identity_of(&now, &with_names);
        missed += dataset_identity_compare(&old, &new, &text) == IDENTITY_SAME;
        dataset_identity_free(&new);
        text_free(&text);
        for (int i = from; i < now.count; i += 100) now.list[i].contents--;
    }
    figure("%d of 100 changes of one image in a hundred were missed", missed);
    assert_true(missed <= 5);
    assert_true(then.read == 512 * 100);
    dataset_identity_free(&old);
    free(now.list);
    free(then.list);
}

/* Not all files are read if they are large. */
static void large_files(void **state)
{
    struct pictures then = make(300);
    for (int i = 0; i < then.count; i++) then.list[i].bytes = 1 << 20;
    struct dataset_identity identity = identity_of(&then, &with_names);
    assert_int_equal(then.read, 32 << 20);
    assert_int_equal(identity.sampled, 32);
    dataset_identity_free(&identity);
    free(then.list);
}

/* The same names, with other sizes, other contents, or both: nothing is left of the old images. */
static void replaced(void **state)
{
    for (int count = 20; count < 4000; count *= 10)
        for (int kind = 0; kind < 3; kind++) {
            struct pictures then = make(count), now = copy_of(&then);
            for (int i = 0; i < count; i++) {
                if (kind != 1) now.list[i].bytes++;
                if (kind != 0) now.list[i].contents++;
            }
            struct dataset_identity old = stored(&then, &with_names), new = identity_of(&now, &with_names);
            struct text text = {0};
            assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_REPLACED);
            assert_non_null(strstr(text.data, ": contents differ"));
            text_free(&text);
            dataset_identity_free(&old);
            dataset_identity_free(&new);
            free(now.list);
            free(then.list);
        }
}

/* Images whose names have the same end are told apart. */
static void same_ends(void **state)
{
    struct pictures then = make(4), now = copy_of(&then);
    for (int i = 0; i < 4; i++) {
        snprintf(then.list[i].name, sizeof then.list[i].name, "%d/a/folder/with/a/name/that/is/long/x.png", i);
        snprintf(now.list[i].name, sizeof now.list[i].name, "%d/b/folder/with/a/name/that/is/long/x.png", i);
    }
    struct dataset_identity old = stored(&then, &with_names), new = identity_of(&now, &with_names);
    struct text text = {0};
    assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_OTHER);
    assert_non_null(strstr(text.data, "and 4 more"));
    assert_null(strstr(text.data, "contents"));
    text_free(&text);
    dataset_identity_free(&old);
    dataset_identity_free(&new);
    free(now.list);
    free(then.list);
}

static void another_data_set(void **state)
{
    struct pictures then = make(5000), now = make(5000);
    struct dataset_identity old, new;
    struct text text = {0};
    for (int i = 0; i < now.count; i++) snprintf(now.list[i].name, sizeof now.list[i].name, "x/%d", i);
    old = stored(&then, &with_names), new = identity_of(&now, &with_names);
    assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_OTHER);
    assert_non_null(strstr(text.data, " is new, x/"));
    dataset_identity_free(&new);
    new = stored(&now, &with_names);                   /* which has no names of samples */
    assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_OTHER);
    assert_non_null(strstr(text.data, "an image is new, an image is new"));
    assert_non_null(strstr(text.data, ", and many more"));
    text_free(&text);
    dataset_identity_free(&old);
    for (int i = 0; i < 4000; i++) now.list[i] = then.list[i];
    dataset_identity_free(&new);
    old = stored(&then, &with_names), new = identity_of(&now, &with_names);
    assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_CHANGED);
    text_free(&text);
    dataset_identity_free(&old);
    dataset_identity_free(&new);
    free(now.list);
    free(then.list);
    then = make(60), now = make(5000);
    now.count = 3;
    for (int i = 0; i < 3; i++) now.list[i].bytes = -1;
    for (int i = 0; i < 60; i++) snprintf(then.list[i].name, sizeof then.list[i].name, "same");
    expect(&then, &now, &with_names, IDENTITY_OTHER, "too many to name them (60 images, now 3)");
    free(now.list);
    free(then.list);
}

/* Up to fifty changes of every kind are all found, whatever the number of images. */
static void all_changes_are_found(void **state)
{
    long count = rounds(100, 20000);
    int lost = 0;
    struct pictures then = make(2000);
    struct dataset_identity old = stored(&then, &with_names);
    for (int64_t round = 0; round < count; round++) {
        struct random random = random_open((uint64_t)round, PURPOSE_TEST, 0, 0);
        struct pictures now = copy_of(&then);
        int changes = 1 + (int)random_below(&random, 50);
        int gone = (int)random_below(&random, (uint32_t)changes + 1);
        for (int i = 0; i < changes; i++) {
            struct picture *picture = &now.list[random_below(&random, (uint32_t)now.count)];
            if (i < gone) *picture = now.list[--now.count];
            else snprintf(picture->name, sizeof picture->name, "new/%" PRId64 "/%d", round, i);
        }
        struct dataset_identity new = identity_of(&now, &with_names);
        struct text text = {0};
        assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_CHANGED);
        lost += strstr(text.data, "many more") != NULL;
        text_free(&text);
        dataset_identity_free(&new);
        free(now.list);
    }
    figure("%d of %ld sets of up to fifty changes were too many", lost, count);
    assert_true(lost * 10 < count);
    dataset_identity_free(&old);
    free(then.list);
}

static void refuse(const char *text, const char *words)
{
    struct dataset_identity parsed;
    struct reason reason;
    assert_false(dataset_identity_parse(text, &parsed, &reason));
    assert_string_equal(reason.text, words);
}

/* Text that anybody may have changed. */
static void damaged_text(void **state)
{
    struct pictures then = make(40);
    struct dataset_identity identity = identity_of(&then, &with_names), parsed;
    struct text text = {0};
    struct reason reason;
    dataset_identity_print(&identity, &text);
    refuse("", "is not an identity of a data set");
    refuse("x", "is not an identity of a data set");
    refuse("2 ", "has version 2; this amptrain reads 1");
    refuse("1 names 5 0123 ", "is damaged");
    refuse("1 names 5", "is damaged");
    refuse("1 ", "is damaged");
    refuse("1 names 40 0123456789abcdef 01x", "is damaged");
    char *cut = text_format("%.*s!", (int)(strrchr(text.data, ' ') - text.data), text.data);
    refuse(cut, "is damaged");
    free(cut);
    cut = text_format("1 names 99999999999999%s", strchr(text.data + 8, ' '));
    refuse(cut, "is damaged");
    free(cut);
    struct text many = {0};
    text_add(&many, "%s", text.data);
    for (int i = 0; i < IDENTITY_SAMPLES; i++) text_add(&many, "ffffffffffffffff00000000");
    refuse(many.data, "is damaged");
    text_free(&many);
    for (size_t length = 3; length < text.length; length += 24) {     /* whole samples are missing */
        char *cut = text_format("%.*s", (int)(text.length - length), text.data);
        if (!dataset_identity_parse(cut, &parsed, &reason)) assert_string_equal(reason.text, "is damaged");
        else dataset_identity_free(&parsed);
        free(cut);
    }
    assert_memory_equal(text.data, "1 names 40 ", 11);
    char *changed = text_format("1 names -%s", text.data + 8);
    refuse(changed, "is damaged");
    free(changed);
    changed = text_format("1 nomes %s", text.data + 8);
    refuse(changed, "is damaged");
    free(changed);
    changed = text_format("1 names 99%s", text.data + 8);
    changed[strlen(changed) - 30] = 'g';
    refuse(changed, "is damaged");
    free(changed);
    changed = text_format("%sffffffffffffffff00000000", text.data);
    assert_true(dataset_identity_parse(changed, &parsed, &reason));
    dataset_identity_free(&parsed);
    changed[strlen(changed) - 24] = '0';
    changed[strlen(changed) - 23] = '0';
    changed[strlen(changed) - 22] = '0';
    refuse(changed, "is damaged");                     /* keys do not ascend */
    free(changed);
    char *cells = strchr(text.data + 11, ' ') + 1;
    cells[0] = 'f';
    refuse(text.data, "is damaged");                   /* a negative count of images in a cell */
    cells[0] = '0';
    cells[10] = 'f';
    refuse(text.data, "is damaged");                   /* more than there are */
    text_free(&text);
    dataset_identity_free(&identity);
    free(then.list);
}

/* Cells that no data set gives: comparing ends, and finds a difference. */
static void forged_cells(void **state)
{
    struct pictures then = make(40);
    struct dataset_identity forged = identity_of(&then, &with_names), now = identity_of(&then, &with_names);
    struct random random = random_open(1, PURPOSE_TEST, 1, 0);
    for (int round = 0; round < 1000; round++) {
        struct identity_cell *cell = &forged.cells[random_below(&random, IDENTITY_CELLS)];
        const struct identity_cell *other = &now.cells[random_below(&random, IDENTITY_CELLS)];
        struct text text = {0};
        if (random_below(&random, 2)) cell->count++;
        else *cell = *other;
        if (random_below(&random, 4) == 0)
            cell->sum = forged.cells[random_below(&random, IDENTITY_CELLS)].sum;
        dataset_identity_compare(&forged, &now, &text);
        text_free(&text);
    }
    struct dataset_identity empty = {0};
    struct text text = {0};
    for (int i = 0; i < IDENTITY_CELLS; i++) {         /* one image for ever */
        struct pictures one = make(1);
        struct dataset_identity single = identity_of(&one, &with_names);
        for (int k = 0; k < IDENTITY_CELLS; k++)
            if (single.cells[k].count) empty.cells[i] = single.cells[k];
        dataset_identity_free(&single);
        free(one.list);
    }
    assert_int_equal(dataset_identity_compare(&empty, &now, &text), IDENTITY_OTHER);
    text_free(&text);
    dataset_identity_free(&forged);
    dataset_identity_free(&now);
    free(then.list);
}

static void unknown_classes(void **state)
{
    struct pictures then = make(10), now = copy_of(&then);
    struct dataset_identity old = stored(&then, &with_names), new;
    struct text text = {0};
    now.list[1].label = 2;
    new = identity_of(&now, &with_names);
    old.classes = 0;
    assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_CHANGED);
    assert_string_equal(text.data, "pear/1.png: the label or the group differs");
    text_free(&text);
    dataset_identity_free(&old);
    dataset_identity_free(&new);
    free(now.list);
    free(then.list);
}

/* Packed files have no names. */
static void names_and_numbers(void **state)
{
    struct pictures pictures = make(10), fewer = make(9);
    struct dataset_identity with = identity_of(&pictures, &with_names);
    struct dataset_identity without = identity_of(&pictures, &without_names);
    struct dataset_identity few = identity_of(&fewer, &without_names);
    struct text text = {0};
    assert_int_equal(dataset_identity_compare(&with, &without, &text), IDENTITY_CHANGED);
    assert_int_equal(dataset_identity_compare(&without, &with, &text), IDENTITY_CHANGED);
    assert_int_equal(dataset_identity_compare(&with, &few, &text), IDENTITY_OTHER);
    assert_non_null(strstr(text.data, "had names, these have numbers"));
    assert_non_null(strstr(text.data, "had numbers, these have names"));
    text_free(&text);
    dataset_identity_free(&with);
    dataset_identity_free(&without);
    dataset_identity_free(&few);
    free(pictures.list);
    free(fewer.list);
}

static uint64_t hash_of(struct pictures *pictures, const struct format *format, const int64_t *subset,
                        int64_t count)
{
    const struct dataset dataset = {.format = format, .target = TARGET_CLASS, .count = pictures->count,
                                    .classes = 3, .class_names = classes, .state = pictures};
    return dataset_identity_hash(&dataset, subset, count);
}

static void hashes_of_subsets(void **state)
{
    static const int64_t all[] = {0, 1, 2, 3}, some[] = {0, 1, 3}, others[] = {0, 3, 1};
    struct pictures pictures = make(4);
    uint64_t hash = hash_of(&pictures, &with_names, NULL, 4);
    assert_true(hash == hash_of(&pictures, &with_names, all, 4));
    assert_true(hash != hash_of(&pictures, &without_names, NULL, 4));
    assert_true(hash != hash_of(&pictures, &with_names, some, 3));
    assert_true(hash_of(&pictures, &with_names, others, 3) != hash_of(&pictures, &with_names, some, 3));
    pictures.list[2].label = 1;
    assert_true(hash != hash_of(&pictures, &with_names, NULL, 4));
    free(pictures.list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same), cmocka_unit_test(first_differences), cmocka_unit_test(long_names),
        cmocka_unit_test(contents), cmocka_unit_test(contents_changed_places),
        cmocka_unit_test(contents_of_many), cmocka_unit_test(large_files), cmocka_unit_test(another_data_set),
        cmocka_unit_test(replaced), cmocka_unit_test(same_ends),
        cmocka_unit_test(all_changes_are_found), cmocka_unit_test(damaged_text),
        cmocka_unit_test(forged_cells), cmocka_unit_test(unknown_classes),
        cmocka_unit_test(names_and_numbers), cmocka_unit_test(hashes_of_subsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
