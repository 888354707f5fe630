/* Libraries that are opened at run time: there, not there, and of a version that lacks a function. */
#include <math.h>
#include <string.h>

#include "base/library.h"
#include "tests/support/unit.h"

#define FUNCTIONS(X) X(floor) X(ldexp)

struct libm {
    FUNCTIONS(LIBRARY_MEMBER)
};
LIBRARY_ONCE(static, libm, LIBRARY_FILE("m", 6), FUNCTIONS)

static void test_once(void **state)
{
    struct reason why;
    assert_null(libm());
    assert_true(libm_open(&why));
    assert_true(libm_open(&why));
    assert_true(libm()->floor(3.7) == 3);
    assert_true(libm()->ldexp(5, 2) == 20);
}

static void test_not_there(void **state)
{
    static const char *const names[] = {FUNCTIONS(LIBRARY_NAME) NULL};
    struct libm functions;
    struct reason why;
    memset(&functions, 1, sizeof functions);
    assert_false(library_open("libnowhere.so.6", names, &functions, &why));
    assert_non_null(strstr(why.text, "libnowhere.so.6"));
    assert_null(functions.floor);
    assert_null(functions.ldexp);
}

static void test_lacks(void **state)
{
    static const char *const names[] = {"floor", "no_function_of_libm", "ldexp", NULL};
    void *functions[] = {&functions, &functions, &functions};
    struct reason why;
    assert_false(library_open("libm.so.6", names, functions, &why));
    assert_string_equal(why.text, "libm.so.6 is of another version: it has no no_function_of_libm");
    assert_non_null(functions[0]);
    assert_null(functions[1]);
    assert_null(functions[2]);
}

struct nowhere {
    FUNCTIONS(LIBRARY_MEMBER)
};
LIBRARY_ONCE(static, nowhere, "libnowhere.so.6", FUNCTIONS)

static void test_never(void **state)
{
    struct reason why;
    for (int i = 0; i < 2; i++) {
        why.text[0] = '\0';
        assert_false(nowhere_open(&why));
        assert_non_null(strstr(why.text, "libnowhere.so.6"));
        assert_null(nowhere());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_lacks),
        cmocka_unit_test(test_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
