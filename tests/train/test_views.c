/* The mean of several views' logits, with its loss and rank. */
#include <math.h>

#include "explain/views.h"
#include "tests/support/unit.h"

static void logits_are_averaged(void **state)
{
    struct views views = views_open(4, 3);
    views_add(&views, (float[]){7, 8, 9, 7, 7, 7, 7, 7, 7, NAN, 7, 7}, 4, 1, true);
    views_add(&views, (float[]){1, 2, 3, 0, 0, 0, 1, NAN, 1, 7, 7, 7}, 4, 0.5f, true);   /* another batch */
    views_add(&views, (float[]){6, 4, 2, 8, 4, 2, 1, 1, 3, 7, 7, 7}, 4, 0.25f, false);
    views_add(&views, (float[]){0, 0, 0, 0, 0, 0, 1, 1, 3, 7, 7, 7}, 4, 0.25f, false);
    views_end(&views, LOSS_CE, (int32_t[]){1, 2, 1, -1}, NULL, 4);
    static const float want[] = {2, 2, 2, 2, 1, 0.5f};
    assert_memory_equal(views.logits, want, sizeof want);
    assert_true(fabs(views.losses[0] - log(3)) < 1e-6);
    assert_true(fabs(views.losses[1] - (log(exp(2) + exp(1) + exp(0.5)) - 0.5)) < 1e-6);
    assert_true(isnan(views.losses[2]));
    assert_int_equal(views.ranks[0], 1);            /* of equal logits the first one wins */
    assert_int_equal(views.ranks[1], 2);
    assert_int_equal(views.ranks[2], 2);            /* NaN is the last */
    assert_int_equal(views.ranks[3], 3);            /* no image */
    views_close(&views);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_are_averaged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
