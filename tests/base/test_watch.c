/* test_watch: work that takes long reports so while it runs. */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/watch.h"
#include "tests/support/unit.h"

/* From the thread that watches, one line at a time. */
static void count_line(void *context, enum log_level level, const char *line)
{
    bool good = level == LOG_WARNING && strncmp(line, "waiting has been running for ", 29) == 0;
    atomic_fetch_add((atomic_int *)context, good ? 1 : 1000000);
}

static void it_is_said_again_and_again(void **state)
{
    atomic_int lines = 0;
    log_set_sink((struct log_sink){count_line, &lines});
    struct watch *watch = watch_begin(0.001, "%sing", "wait");
    assert_non_null(watch);
    for (int i = 0; i < 60000 && atomic_load(&lines) < 3; i++) usleep(1000);
    watch_end(watch);
    log_set_sink((struct log_sink){NULL, NULL});
    assert_in_range(atomic_load(&lines), 3, 100000);
}

static void what_is_soon_over_is_not_worth_a_word(void **state)
{
    atomic_int lines = 0;
    log_set_sink((struct log_sink){count_line, &lines});
    for (int i = 0; i < 100; i++) watch_end(watch_begin(1000, "waiting"));
    watch_end(NULL);
    log_set_sink((struct log_sink){NULL, NULL});
    assert_int_equal(atomic_load(&lines), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_said_again_and_again),
        cmocka_unit_test(what_is_soon_over_is_not_worth_a_word),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
