/* A data set is known again wherever it is, and what has changed in it is named. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/dataset/dataset_identity.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

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

/* The identity as a checkpoint has it. */
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
    struct pictures then = make(400), now = copy_of(&then);
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
    now.count = 398;
    expect(&then, &now, &with_names, IDENTITY_CHANGED,
           "apple/399.png is missing, plum/398.png is missing (400 images, now 398)");
    expect(&now, &then, &with_names, IDENTITY_CHANGED,
           "apple/399.png is new, plum/398.png is new (398 images, now 400)");
    struct picture swapped = now.list[7];
    now.list[7] = now.list[8];
    now.list[8] = swapped;
    now.count = 400;
    expect(&then, &now, &with_names, IDENTITY_CHANGED, "the same images in another order");
    free(now.list);
    free(then.list);
}

static void long_names(void **state)
{
    struct pictures then = make(20), now = copy_of(&then);
    strcpy(now.list[3].name, "apple/a/folder/with/a/name/that/is/longer/than/what/is/kept/3.png");
    expect(&then, &now, &with_names, IDENTITY_CHANGED,
           "...e/that/is/longer/than/what/is/kept/3.png is new, apple/3.png is missing");
    expect(&now, &then, &with_names, IDENTITY_CHANGED,
           "...e/that/is/longer/than/what/is/kept/3.png is missing, apple/3.png is new");
    strcpy(now.list[3].name, "a name\n\xff%");
    expect(&now, &then, &with_names, IDENTITY_CHANGED,
           "a name\\x0a\\xff% is missing, apple/3.png is new");
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

/* The contents of some of many images are looked at: a hundredth that changed is found. */
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
    int known = 0;
    for (int i = 0; i < identity.sampled; i++) known += identity.samples[i].known;
    assert_int_equal(identity.sampled, 300);
    assert_int_equal(known, 32);
    dataset_identity_free(&identity);
    free(then.list);
}

/* Names stay, with other sizes, other contents, or both: nothing is left of the old images. */
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
    assert_non_null(strstr(text.data, "apple/"));
    assert_non_null(strstr(text.data, " is missing, "));
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
    expect(&then, &now, &with_names, IDENTITY_OTHER,
           "apple/0.png is new, pear/1.png is new, plum/2.png is new, same is missing, and 59 more "
           "(60 images, now 3)");
    free(now.list);
    free(then.list);
}

/* Up to fifty changes of every kind are all noticed, and counted if all images are in the sample. */
static void all_changes_are_found(void **state)
{
    long count = rounds(100, 20000), told = 0;
    for (int64_t round = 0; round < count; round++) {
        struct random random = random_open((uint64_t)round, PURPOSE_TEST, 0, 0);
        struct pictures then = make(round % 2 ? 400 : 2000), now = copy_of(&then);
        struct dataset_identity old = stored(&then, &with_names);
        int changes = 5 + (int)random_below(&random, 46);
        int gone = (int)random_below(&random, (uint32_t)changes + 1);
        for (int i = 0; i < changes; i++) {
            struct picture *picture = &now.list[random_below(&random, (uint32_t)now.count)];
            if (i < gone) *picture = now.list[--now.count];
            else snprintf(picture->name, sizeof picture->name, "new/%" PRId64 "/%d", round, i);
        }
        struct dataset_identity new = identity_of(&now, &with_names);
        struct text text = {0};
        assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_CHANGED);
        told += strstr(text.data, " is ") != NULL;
        int more = 0, missing = 0, fresh = 0;
        for (int i = 0, k; i < then.count; i++) {
            for (k = 0; k < now.count && strcmp(now.list[k].name, then.list[i].name) != 0;) k++;
            missing += k == now.count;
        }
        for (int i = 0; i < now.count; i++) fresh += strncmp(now.list[i].name, "new/", 4) == 0;
        const char *rest = strstr(text.data, ", and ");
        bool counted = then.count == 400 && missing + fresh > 4;
        if (counted) assert_int_equal(sscanf(rest, ", and %d more", &more), 1);
        if (counted) assert_int_equal(more + 4, missing + fresh);
        text_free(&text);
        dataset_identity_free(&old);
        dataset_identity_free(&new);
        free(then.list);
        free(now.list);
    }
    figure("an image was named in %ld of %ld sets of up to fifty changes", told, count);
    assert_true(told * 10 > count * 9);
}

/* One image that is not in the sample: the data set is another one, although none can be named. */
static void outside_of_the_sample(void **state)
{
    struct pictures then = make(5000), now = copy_of(&then);
    struct dataset_identity old = stored(&then, &with_names), new;
    struct text text = {0};
    int unnamed = 0;
    for (int i = 0; i < 40; i++) {
        now.list[i].label = (now.list[i].label + 1) % 3;
        new = identity_of(&now, &with_names);
        assert_int_equal(dataset_identity_compare(&old, &new, &text), IDENTITY_CHANGED);
        unnamed += strcmp(text.data, "differences that the recorded sample does not show") == 0;
        dataset_identity_free(&new);
        text_free(&text);
        now.list[i].label = then.list[i].label;
    }
    assert_in_range(unnamed, 30, 40);
    dataset_identity_free(&old);
    free(now.list);
    free(then.list);
}

/* An identity as version 1 wrote it, with any table. */
static char *older_text(const struct dataset_identity *identity)
{
    struct text text = {0};
    text_add(&text, "1 %s %" PRId64 " %016" PRIx64 " 0123456789abcdef ",
             identity->named ? "names" : "numbers", identity->count, identity->sequence);
    for (int i = 0; i < identity->sampled; i++)
        if (identity->samples[i].known)
            text_add(&text, "%016" PRIx64 "%08" PRIx32, identity->samples[i].key, identity->samples[i].crc);
    return text.data;
}

static enum identity_change compare_older(const char *text, struct pictures *now, const char *words)
{
    struct dataset_identity old, new = identity_of(now, &with_names);
    struct text differences = {0};
    struct reason reason;
    if (!dataset_identity_parse(text, &old, &reason)) fail_msg("%s", reason.text);
    enum identity_change change = dataset_identity_compare(&old, &new, &differences);
    assert_string_equal(differences.data ? differences.data : "", words);
    dataset_identity_free(&old);
    dataset_identity_free(&new);
    text_free(&differences);
    return change;
}

static void older_version(void **state)
{
    for (int count = 1; count < 3000; count = 7 * count + 1) {
        struct pictures then = make(count), now = copy_of(&then);
        then.list[0].unreadable = now.list[0].unreadable = true;
        struct dataset_identity identity = identity_of(&then, &with_names);
        char *text = older_text(&identity);
        assert_int_equal(compare_older(text, &now, ""), IDENTITY_SAME);
        dataset_identity_free(&identity);
        free(text);
        free(now.list);
        free(then.list);
    }
    struct pictures then = make(100), now = copy_of(&then);
    struct dataset_identity identity = identity_of(&then, &with_names);
    char *text = older_text(&identity);
    now.list[42].contents++;
    assert_int_equal(compare_older(text, &now, "apple/42.png: contents differ, and perhaps others"),
                     IDENTITY_CHANGED);
    now.list[42] = then.list[42];
    strcpy(now.list[10].name, "apple/new.png");
    assert_int_equal(compare_older(text, &now, "an image is missing, apple/new.png is new, and perhaps others"),
                     IDENTITY_CHANGED);
    now.list[10] = then.list[10];
    now.list[10].label = 0;
    assert_int_equal(compare_older(text, &now, "differences that the recorded sample does not show"),
                     IDENTITY_CHANGED);
    dataset_identity_free(&identity);
    free(text);
    free(now.list);
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
    static const char first[] = "2 names 40 0123456789abcdef\n";
    static const char *const wrong[] = {
        "1 names 5 0123 ", "1 names 5", "1 ", "2 ", "2 names 5 0123", "0 names 5 0123\n", "2 nomes 5 0123\n",
        "2 names -5 0123\n", "2 names 99999999999999 0123\n", "1 names 40 0123456789abcdef 01x",
        "1 names 40 0123456789abcdef 01 x", "2 names 0 0123\n0 1 0 0 0 x\n",
    };
    static const char *const lines[] = {
        "x\n", "\n", "0 1 0 0 0\n", "0 1 0 0 0 x", "0 1 0 0 x\n", "0 1 0 0 0 x\n1 1 0 0 0 y\n0 1 0 0 0 z\n",
    };
    struct pictures then = make(1000);
    struct dataset_identity identity = identity_of(&then, &with_names), parsed;
    struct text text = {0};
    struct reason reason;
    refuse("", "is not an identity of a data set");
    refuse("x", "is not an identity of a data set");
    refuse("3 ", "has version 3; this amptrain reads 2");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) refuse(wrong[i], "is damaged");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char *all = text_format("%s%s", first, lines[i]);
        refuse(all, "is damaged");
        free(all);
    }
    dataset_identity_print(&identity, &text);
    for (size_t length = 1; length < text.length; length += 7) {
        char *cut = text_format("%.*s", (int)(text.length - length), text.data);
        if (!dataset_identity_parse(cut, &parsed, &reason)) assert_string_equal(reason.text, "is damaged");
        else dataset_identity_free(&parsed);
        free(cut);
    }
    text_add(&text, "ffffffffffffffff 1 00000000 00000000 64 x\n");
    refuse(text.data, "is damaged");                   /* one sample more than there may be */
    struct random random = random_open(1, PURPOSE_TEST, 1, 0);
    for (int round = 0; round < 1000; round++) {       /* read or refused, and then compared */
        struct text differences = {0};
        char *byte = &text.data[random_below(&random, (uint32_t)text.length)], was = *byte;
        *byte = (char)(1 + random_below(&random, 127));
        if (dataset_identity_parse(text.data, &parsed, &reason)) {
            dataset_identity_compare(&parsed, &identity, &differences);
            dataset_identity_free(&parsed);
        }
        text_free(&differences);
        *byte = was;
    }
    text_free(&text);
    dataset_identity_free(&identity);
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
    assert_string_equal(text.data, "pear/1.png: the label, the mask or the group differs");
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
        cmocka_unit_test(unknown_classes), cmocka_unit_test(outside_of_the_sample),
        cmocka_unit_test(older_version),
        cmocka_unit_test(names_and_numbers), cmocka_unit_test(hashes_of_subsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
