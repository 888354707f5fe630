/* test_families: a family of ways is hopeless once members were far from the best three times, unless one
 * came near it. */
#include "device/cuda_families.h"
#include "tests/support/unit.h"

static void learn(struct families *families, const char *name, enum family_result result, int times)
{
    for (int i = 0; i < times; i++) families_learn(families, name, result);
}

static void test_far_three_times(void **state)
{
    struct families *families = families_new();
    assert_false(families_hopeless(families, "0 fp32 cudnn plain 37"));
    learn(families, "0 fp32 cudnn plain 37", FAMILY_FAR, 2);
    learn(families, "0 fp32 cudnn plain 3", FAMILY_FAR, 1);
    learn(families, "0 fp32 cudnn plain 37", FAMILY_BETWEEN, 5);
    assert_false(families_hopeless(families, "0 fp32 cudnn plain 37"));
    learn(families, "0 fp32 cudnn plain 37", FAMILY_FAR, 1);
    assert_true(families_hopeless(families, "0 fp32 cudnn plain 37"));
    assert_false(families_hopeless(families, "0 fp32 cudnn plain 3"));
    families_free(families);
}

static void test_near_once(void **state)
{
    struct families *families = families_new();
    learn(families, "2 fp16 cudnn plain 5", FAMILY_FAR, 3);
    assert_true(families_hopeless(families, "2 fp16 cudnn plain 5"));
    learn(families, "2 fp16 cudnn plain 5", FAMILY_NEAR, 1);
    learn(families, "2 fp16 cudnn plain 5", FAMILY_FAR, 10);
    assert_false(families_hopeless(families, "2 fp16 cudnn plain 5"));
    families_free(families);
    families_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_three_times),
        cmocka_unit_test(test_near_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
