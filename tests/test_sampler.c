/* Permutations hold every number once and favour none; the ranks' shares cover a batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/memory.h"
#include "data/sampler.h"

#include <cmocka.h>

static void permutations_are_bijections(void **state)
{
    (void)state;
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
    (void)state;
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

/* Of any batch for any number of ranks: one after the other, to the last place, as even as can be. */
static void shares_cover_a_batch(void **state)
{
    (void)state;
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
        cmocka_unit_test(shares_cover_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
