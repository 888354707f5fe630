/* Permutations hold every number once and favour none; the ranks' shares cover a batch. */
#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"
#include "data/loader/sampler.h"
#include "tests/support/unit.h"

static void permutations_are_bijections(void **state)
{
    for (int64_t count = 1; count < 5000; count = count < 70 ? count + 1 : count * 2 - 59) {
        bool *seen = memory_new((size_t)count, sizeof *seen);
        for (int64_t i = 0; i < count; i++) {
            int64_t to = sampler_permute(9, 2, count, i);
            assert_in_range(to, 0, count - 1);
            assert_false(seen[to]);
            seen[to] = true;
        }
        free(seen);
    }
    int64_t large = (int64_t)1 << 40;
    assert_in_range(sampler_permute(1, 1, large, large - 1), 0, large - 1);
}

/* Over many epochs every element comes to every place, and every pair of places is filled in every way. */
static void permutations_are_uniform(void **state)
{
    int epochs = 20000, place[10][10] = {{0}}, pair[10][10] = {{0}};
    for (int epoch = 0; epoch < epochs; epoch++) {
        int64_t to[10];
        for (int i = 0; i < 10; i++) {
            to[i] = sampler_permute(77, (uint64_t)epoch, 10, i);
            place[i][to[i]]++;
        }
        pair[to[0]][to[1]]++;
    }
    /* 2,000 with a deviation of 42; 222 with 15. */
    for (int i = 0; i < 100; i++) {
        assert_in_range((&place[0][0])[i], 2000 - 200, 2000 + 200);
        if (i / 10 != i % 10) assert_in_range((&pair[0][0])[i], 222 - 72, 222 + 72);
    }
}

static int label(const struct dataset *dataset, int64_t index)
{
    (void)dataset;
    return index < 3 ? 4 : index < 20 ? 1 : 0;      /* 3, 17 and 80 images; classes 2 and 3 have none */
}

/* Classes come equally often, give or take one, and so do the images of each, with a count of how often. */
static void classes_take_turns(void **state)
{
    const struct format format = {.label = label};
    const struct dataset dataset = {.format = &format, .classes = 5};
    struct by_class by = by_class_make(&dataset, NULL, 100);
    assert_int_equal(by.classes, 3);
    int differ = 0, first[100];
    for (int epoch = 0; epoch < 4; epoch++) {
        int64_t times[100] = {0}, sums[5] = {0};
        for (int i = 0; i < 100; i++) {
            struct draw draw = sampler_balance(7, (uint64_t)epoch, &by, i);
            assert_in_range(draw.image, 0, 99);
            assert_int_equal(draw.repetition, times[draw.image]++);
            sums[label(&dataset, draw.image)]++;
            if (epoch == 0) first[i] = (int)draw.image;
            differ += first[i] != draw.image;
        }
        for (int k = 0; k < 5; k++)
            if (k != 2 && k != 3) assert_in_range(sums[k], 33, 34);
        for (int i = 0; i < 100; i++)
            assert_in_range(times[i], i < 3 ? 11 : i < 20 ? 1 : 0, i < 3 ? 12 : i < 20 ? 2 : 1);
    }
    assert_true(differ > 200);
    by_class_free(&by);
    /* A part of the images, as it numbers them. */
    const int64_t subset[] = {1, 30, 31, 50};
    by = by_class_make(&dataset, subset, 4);
    assert_int_equal(by.classes, 2);
    assert_memory_equal(by.images, ((int64_t[]){1, 2, 3, 0}), 4 * sizeof(int64_t));
    assert_memory_equal(by.begins, ((int64_t[]){0, 3, 4}), 3 * sizeof(int64_t));
    by_class_free(&by);
}

/* A batch has each of its images `repeats` times, or once less if there is no room; no other batch has it. */
static void batches_repeat_images(void **state)
{
    for (int repeats = 1; repeats < 6; repeats++) {
        int times[60] = {0}, images = (10 + repeats - 1) / repeats;
        for (int number = 0; number < 5; number++)
            for (int place = 0; place < 10; place++) {
                struct draw draw = sampler_repeat(repeats, 10, number, place);
                assert_int_equal(draw.image / images, number);
                assert_int_equal(draw.repetition, times[draw.image]++);
            }
        for (int i = 0; i < 5 * images; i++) assert_in_range(times[i], repeats - 1, repeats);
    }
    assert_int_equal(sampler_repeat(1, 10, 3, 4).image, 34);
}

/* Shares of any batch for any number of ranks: one after the other, to the last place, as even as can be. */
static void shares_cover_a_batch(void **state)
{
    for (int batch = 0; batch < 70; batch++) {
        for (int ranks = 1; ranks < 40; ranks++) {
            int next = 0;
            for (int rank = 0; rank < ranks; rank++) {
                struct share share = sampler_share(batch, ranks, rank);
                assert_int_equal(share.first, next);
                assert_in_range(share.count, batch / ranks, (batch + ranks - 1) / ranks);
                next += share.count;
            }
            assert_int_equal(next, batch);
        }
    }
    struct share last = sampler_share(1 << 30, 1 << 20, (1 << 20) - 1);
    assert_int_equal(last.first, (1 << 30) - 1024);
    assert_int_equal(last.count, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutations_are_bijections),
        cmocka_unit_test(permutations_are_uniform),
        cmocka_unit_test(classes_take_turns),
        cmocka_unit_test(batches_repeat_images),
        cmocka_unit_test(shares_cover_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
