/* The part of what feeds a step that limits it, and how that is said. */
#include <string.h>

#include "measure/bench_feed.h"
#include "tests/support/unit.h"

static void expect(struct feed feed, const char *limit, const char *sentence)
{
    struct text said = {0};
    feed_explain(&feed, &said);
    assert_string_equal(feed_limit(&feed), limit);
    assert_string_equal(said.data, sentence);
    text_free(&said);
}

static void the_slowest_limits(void **state)
{
    expect((struct feed){.loader = 500, .compute = 100, .together = 99}, "compute",
           "The bottleneck is computing: the loader alone is 5.0 times as fast.");
    expect((struct feed){.loader = 40, .copy = 900, .compute = 100, .together = 39}, "loader",
           "The bottleneck is the loader: computing alone is 2.5 times as fast.");
    expect((struct feed){.loader = 40, .copy = 10, .compute = 100, .together = 10}, "copy",
           "The bottleneck is copying: the loader alone is 4.0 times as fast.");
}

static void less_than_the_slowest_is_said(void **state)
{
    expect((struct feed){.loader = 300, .compute = 100, .together = 75}, "compute",
           "The bottleneck is computing: the loader alone is 3.0 times as fast, and the combination reaches "
           "75 % of computing alone, because they share the processors.");
    expect((struct feed){.loader = 300, .copy = 900, .compute = 100, .together = 75}, "compute",
           "The bottleneck is computing: the loader alone is 3.0 times as fast, and the combination reaches "
           "75 % of computing alone.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slowest_limits),
        cmocka_unit_test(less_than_the_slowest_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
