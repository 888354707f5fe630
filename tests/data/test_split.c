/* Holdouts and folds: disjoint, of every class to the image, and the same wherever the data are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/dataset/split.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define CLASSES 12

struct pictures {
    char (*names)[32];
    int *labels;
    uint64_t *groups;          /* NULL: none */
};

static int label_of(const struct dataset *dataset, int64_t index)
{
    return ((const struct pictures *)dataset->state)->labels[index];
}

static const char *name_of(const struct dataset *dataset, int64_t index)
{
    return ((const struct pictures *)dataset->state)->names[index];
}

static uint64_t group_of(const struct dataset *dataset, int64_t index)
{
    const struct pictures *pictures = dataset->state;
    return pictures->groups ? pictures->groups[index] : 0;
}

static const struct format grouped = {
    .name = "grouped", .label = label_of, .image_name = name_of, .group = group_of,
};
static const struct format named = {.name = "named", .label = label_of, .image_name = name_of};
static const struct format numbered = {.name = "numbered", .label = label_of};
static char *class_names[CLASSES] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};

/* So many images of each class. */
static struct dataset make(const int counts[CLASSES])
{
    int64_t count = 0;
    for (int k = 0; k < CLASSES; k++) count += counts[k];
    struct pictures *pictures = memory_new(1, sizeof *pictures);
    pictures->names = memory_new((size_t)count + 1, sizeof *pictures->names);
    pictures->labels = memory_new((size_t)count + 1, sizeof *pictures->labels);
    int64_t at = 0;
    for (int k = 0; k < CLASSES; k++)
        for (int i = 0; i < counts[k]; i++, at++) {
            snprintf(pictures->names[at], sizeof *pictures->names, "%s/%d.png", class_names[k], i);
            pictures->labels[at] = k;
        }
    return (struct dataset){.format = &named, .count = count, .classes = CLASSES, .class_names = class_names,
                            .state = pictures};
}

static void release(struct dataset *dataset)
{
    struct pictures *pictures = dataset->state;
    free(pictures->names);
    free(pictures->labels);
    free(pictures);
}

static int64_t hold_out(const struct dataset *dataset, const struct split_holdout *holdout, bool *held,
                        int by_class[CLASSES])
{
    memset(held, 0, (size_t)dataset->count);
    for (int k = 0; k < CLASSES; k++) by_class[k] = 0;
    int64_t count = split_hold_out(dataset, holdout, held), marked = 0;
    for (int64_t i = 0; i < dataset->count; i++) {
        marked += held[i];
        by_class[label_of(dataset, i)] += held[i];
    }
    assert_int_equal(count, marked);
    return count;
}

static void of_each_class_to_the_image(void **state)
{
    static const int counts[CLASSES] = {10, 10, 10, 7, 5, 1, 1, 2, 0, 100, 33, 21};    /* 200 */
    struct dataset dataset = make(counts);
    bool *held = memory_new(200, sizeof *held);
    int by_class[CLASSES];
    const struct split_holdout fifth = {.fraction = 0.2};
    assert_int_equal(hold_out(&dataset, &fifth, held, by_class), 40);
    static const int wanted[CLASSES] = {2, 2, 2, 2, 1, 0, 0, 0, 0, 20, 7, 4};      /* of 198 images 39.6 */
    for (int k = 0; k < CLASSES; k++) assert_int_equal(by_class[k], wanted[k]);
    const struct split_holdout most = {.fraction = 0.99};
    assert_int_equal(hold_out(&dataset, &most, held, by_class), 200 - 11);             /* each keeps one */
    for (int k = 0; k < CLASSES; k++) assert_int_equal(by_class[k], counts[k] > 0 ? counts[k] - 1 : 0);
    const struct split_holdout half = {.fraction = 0.5};
    assert_int_equal(hold_out(&dataset, &half, held, by_class), 99);
    const struct split_holdout least = {.fraction = 0.0001};
    assert_int_equal(hold_out(&dataset, &least, held, by_class), 1);
    free(held);
    release(&dataset);
}

/* ... and do not make others give more. */
static void classes_of_one_image_stay(void **state)
{
    static const int some[CLASSES] = {10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, few[CLASSES] = {3, 3};
    struct dataset mixed = make(some), small = make(few);
    bool marks[21];
    int of[CLASSES];
    const struct split_holdout part = {.fraction = 0.5}, all = {.fraction = 0.99};
    assert_int_equal(hold_out(&mixed, &part, marks, of), 5);
    assert_int_equal(of[0], 5);
    assert_int_equal(hold_out(&small, &all, marks, of), 4);
    release(&mixed);
    release(&small);
    static const int ones[CLASSES] = {1, 1, 1};
    struct dataset dataset = make(ones);
    bool held[3];
    int by_class[CLASSES];
    const struct split_holdout half = {.fraction = 0.5}, fold = {.fold = 1, .folds = 2};
    assert_int_equal(hold_out(&dataset, &half, held, by_class), 0);
    assert_int_equal(hold_out(&dataset, &fold, held, by_class), 0);
    release(&dataset);
}

/* Random data sets: shares differ from the exact ones by less than an image, folds cover all. */
static void any_data_set(void **state)
{
    long count = rounds(200, 20000);
    for (long round = 0; round < count; round++) {
        struct random random = random_open((uint64_t)round, PURPOSE_TEST, 0, 0);
        int counts[CLASSES], by_class[CLASSES], folds = 2 + (int)random_below(&random, 9);
        for (int k = 0; k < CLASSES; k++) counts[k] = (int)random_below(&random, 4 + 40 * (k % 2));
        counts[0] = 2;
        struct dataset dataset = make(counts);
        if (round % 2) dataset.format = &numbered;
        bool *held = memory_new((size_t)dataset.count, sizeof *held);
        int *times = memory_new((size_t)dataset.count, sizeof *times);
        struct split_holdout holdout = {.seed = (uint64_t)round, .fraction = 0.4 * random_uniform(&random)};
        hold_out(&dataset, &holdout, held, by_class);
        double total = 0;
        for (int k = 0; k < CLASSES; k++) total += counts[k] > 1 ? counts[k] : 0;
        for (int k = 0; k < CLASSES; k++) {
            double exact = counts[k] > 1 ? counts[k] * fmax(1, rint(total * holdout.fraction)) / total : 0;
            assert_true(by_class[k] < counts[k] || counts[k] == 0);
            assert_true(by_class[k] > exact - 1 && by_class[k] < exact + 1);
        }
        int64_t sizes = 0;
        for (int fold = 1; fold <= folds; fold++) {
            const struct split_holdout part = {.seed = (uint64_t)round, .fold = fold, .folds = folds};
            int64_t size = hold_out(&dataset, &part, held, by_class);
            sizes += size;
            for (int64_t i = 0; i < dataset.count; i++) times[i] += held[i];
            for (int k = 0; k < CLASSES; k++) {
                int least = counts[k] < 2 ? 0 : counts[k] / folds;
                assert_true(by_class[k] >= least && by_class[k] <= least + 1);
                assert_true(by_class[k] < counts[k] || counts[k] == 0);
            }
        }
        int64_t divided = 0;
        for (int64_t i = 0; i < dataset.count; i++) {
            assert_int_equal(times[i], counts[label_of(&dataset, i)] > 1);
            divided += times[i];
        }
        assert_int_equal(sizes, divided);
        free(times);
        free(held);
        release(&dataset);
    }
}

/* The seed and the names decide, and a few images more change little. */
static void the_same_for_the_same_names(void **state)
{
    static const int counts[CLASSES] = {40, 40}, more[CLASSES] = {41, 40};
    struct dataset dataset = make(counts), grown = make(more);
    bool held[81], again[81], other[81];
    int by_class[CLASSES], moved = 0, differ = 0;
    struct split_holdout fifth = {.seed = 3, .fraction = 0.2};
    hold_out(&dataset, &fifth, held, by_class);
    hold_out(&dataset, &fifth, again, by_class);
    assert_memory_equal(held, again, 80);
    hold_out(&grown, &fifth, again, by_class);
    for (int i = 0; i < 80; i++) moved += held[i] != again[i + (i >= 40)];
    assert_true(moved <= 2);
    fifth.seed = 4;
    hold_out(&dataset, &fifth, other, by_class);
    for (int i = 0; i < 80; i++) differ += held[i] != other[i];
    assert_true(differ > 8);
    release(&dataset);
    release(&grown);
}

static bool groups_are_whole(const struct dataset *dataset, const bool *held)
{
    for (int64_t i = 0; i < dataset->count; i++)
        for (int64_t k = 0; k < i; k++)
            if (group_of(dataset, i) && group_of(dataset, i) == group_of(dataset, k) && held[i] != held[k])
                return false;
    return true;
}

static struct dataset make_grouped(struct random *random, uint32_t groups)
{
    int counts[CLASSES] = {0};
    for (int k = 0; k < 4; k++) counts[k] = 20 + (int)random_below(random, 60);
    struct dataset dataset = make(counts);
    struct pictures *pictures = dataset.state;
    dataset.format = &grouped;
    pictures->groups = memory_new((size_t)dataset.count, sizeof *pictures->groups);
    for (int64_t i = 0; i < dataset.count; i++) pictures->groups[i] = random_below(random, groups + 1);
    return dataset;
}

static void release_grouped(struct dataset *dataset)
{
    free(((struct pictures *)dataset->state)->groups);
    release(dataset);
}

/* Each fold, and a fraction, have of each class what they should, give or take the images of a group; with
 * many groups, none is further off than a few images. */
static void groups_stay_on_one_side(void **state)
{
    for (int round = 0; round < 40; round++) {
        struct random random = random_open((uint64_t)round, PURPOSE_TEST, 1, 0);
        struct dataset dataset = make_grouped(&random, 40);
        bool *held = memory_new((size_t)dataset.count, sizeof *held);
        int *times = memory_new((size_t)dataset.count, sizeof *times), by_class[CLASSES], all[CLASSES] = {0};
        for (int64_t i = 0; i < dataset.count; i++) all[label_of(&dataset, i)]++;
        struct split_holdout holdout = {.seed = (uint64_t)round, .folds = 4};
        for (holdout.fold = 1; holdout.fold <= 4; holdout.fold++) {
            hold_out(&dataset, &holdout, held, by_class);
            assert_true(groups_are_whole(&dataset, held));
            for (int64_t i = 0; i < dataset.count; i++) times[i] += held[i];
            for (int k = 0; k < 4; k++) assert_true(fabs(by_class[k] - all[k] / 4.0) <= 6);
        }
        for (int64_t i = 0; i < dataset.count; i++) assert_int_equal(times[i], 1);
        holdout = (struct split_holdout){.seed = (uint64_t)round, .fraction = 0.2};
        hold_out(&dataset, &holdout, held, by_class);
        assert_true(groups_are_whole(&dataset, held));
        for (int k = 0; k < 4; k++) assert_true(fabs(by_class[k] - all[k] / 5.0) <= 6);
        free(held);
        free(times);
        release_grouped(&dataset);
    }
}

static void few_groups(void **state)
{
    static const int counts[CLASSES] = {6, 6};
    struct dataset dataset = make(counts);
    struct pictures *pictures = dataset.state;
    int by_class[CLASSES];
    bool held[12];
    const struct split_holdout most = {.fraction = 0.99}, least = {.fraction = 0.01};
    const struct split_holdout fold = {.fold = 2, .folds = 3};
    pictures->groups = memory_new(12, sizeof *pictures->groups);
    dataset.format = &grouped;
    for (int i = 0; i < 12; i++) pictures->groups[i] = 1;
    assert_int_equal(hold_out(&dataset, &most, held, by_class), 0);
    for (int i = 0; i < 4; i++) pictures->groups[i] = 2;
    assert_int_equal(hold_out(&dataset, &most, held, by_class), 4);
    assert_int_equal(hold_out(&dataset, &least, held, by_class), 4);
    assert_int_equal(hold_out(&dataset, &fold, held, by_class), 0);
    release_grouped(&dataset);
}

static void drawn_from_a_subset(void **state)
{
    static const int counts[CLASSES] = {10, 10, 10};
    struct dataset dataset = make(counts);
    static const int64_t subset[] = {0, 2, 4, 6, 20, 21, 22, 23};
    bool drawn[8] = {false};
    split_draw(&dataset, subset, 8, 4, 1, drawn);
    assert_int_equal(drawn[0] + drawn[1] + drawn[2] + drawn[3], 2);
    assert_int_equal(drawn[4] + drawn[5] + drawn[6] + drawn[7], 2);
    split_draw(&dataset, subset, 8, 8, 1, drawn);
    for (int i = 0; i < 8; i++) assert_true(drawn[i]);
    release(&dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_each_class_to_the_image), cmocka_unit_test(classes_of_one_image_stay),
        cmocka_unit_test(any_data_set), cmocka_unit_test(the_same_for_the_same_names),
        cmocka_unit_test(groups_stay_on_one_side), cmocka_unit_test(few_groups),
        cmocka_unit_test(drawn_from_a_subset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
