/* Tables of names: as many as a model may have, in order, whatever a stranger calls them. */
#include <stdio.h>

#include "graph/names.h"
#include "tests/support/unit.h"

#define MANY 100000

/* Names so many that each wants the slot of a few others. */
static void names_that_want_one_slot(void **state)
{
    struct names names = {0};
    char name[24];
    assert_int_equal(names_find(&names, "layer0"), -1);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        assert_int_equal(names_find(&names, name), -1);
        assert_true(names_add(&names, name, 2 * i));
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        assert_false(names_add(&names, name, 0));
        assert_int_equal(names_find(&names, name), i);
        assert_string_equal(names.name[i], name);
        assert_int_equal(names.value[i], 2 * i);
    }
    assert_int_equal(names.count, MANY);
    names_free(&names);
    assert_int_equal(names_find(&names, "layer0"), -1);
}

/* Names that collide in one table are no trouble in another: nobody knows a key before it is used. */
static void no_two_tables_have_one_key(void **state)
{
    struct names one = {0}, two = {0};
    int alike = 0;
    assert_true(names_add(&one, "", 0));
    assert_true(names_add(&two, "", 0));
    assert_true(one.key != two.key);
    char name[24];
    for (int i = 0; i < MANY / 10; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        names_add(&one, name, i);
        names_add(&two, name, i);
    }
    assert_int_equal(one.slot_count, two.slot_count);
    for (int i = 0; i < one.slot_count; i++) alike += one.slots[i] && one.slots[i] == two.slots[i];
    assert_in_range(alike, 0, MANY / 1000);
    names_free(&one);
    names_free(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_want_one_slot),
        cmocka_unit_test(no_two_tables_have_one_key),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
