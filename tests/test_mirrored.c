/* The mean of logits, with its loss and rank. */
#include <math.h>

#include "train/mirrored.h"
#include "tests/unit.h"

static void logits_are_averaged(void **state)
{
    struct mirrored mirrored = mirrored_open(4, 3);
    mirrored_begin(&mirrored, (float[]){1, 2, 3, 0, 0, 0, 1, NAN, 1, 7, 7, 7}, 4);
    mirrored_end(&mirrored, (float[]){3, 2, 1, 4, 2, 1, 1, 1, 3, 7, 7, 7}, (int32_t[]){1, 2, 1, -1}, 4);
    static const float want[] = {2, 2, 2, 2, 1, 0.5f};
    assert_memory_equal(mirrored.logits, want, sizeof want);
    assert_true(fabs(mirrored.losses[0] - log(3)) < 1e-6);
    assert_true(fabs(mirrored.losses[1] - (log(exp(2) + exp(1) + exp(0.5)) - 0.5)) < 1e-6);
    assert_true(isnan(mirrored.losses[2]));
    assert_int_equal(mirrored.ranks[0], 1);            /* of equal logits the first one wins */
    assert_int_equal(mirrored.ranks[1], 2);
    assert_int_equal(mirrored.ranks[2], 2);            /* NaN is the last */
    assert_int_equal(mirrored.ranks[3], 3);            /* no image */
    mirrored_close(&mirrored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_are_averaged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
