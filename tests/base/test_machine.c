/* Functions for several instruction sets: which one is called, and that each gives what plain code gives. */
#include <stdlib.h>

#include "base/machine.h"
#include "tests/support/unit.h"

static void test_limits(void **state)
{
    enum machine_vectors here = machine_vectors_within(NULL);
    assert_int_equal(machine_vectors_within("SSE41"), MACHINE_BASELINE);
    assert_int_equal(machine_vectors_within("avx"), MACHINE_BASELINE);
    const char *const avx2[] = {"AVX2", "avx2", "AVX2_VNNI", "Avx2_Vnni_2"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(machine_vectors_within(avx2[i]), here < MACHINE_AVX2 ? here : MACHINE_AVX2);
    const char *const more[] = {"AVX512_CORE", "AVX512_CORE_AMX", "ALL", "DEFAULT", "AVX9", ""};
    for (int i = 0; i < 6; i++) assert_int_equal(machine_vectors_within(more[i]), here);
}

static void test_environment(void **state)
{
    assert_int_equal(machine_vectors(), machine_vectors_within(getenv("ONEDNN_MAX_CPU_ISA")));
}

static EVERY_MACHINE(int, sum, (const int *values, int count), (values, count))
{
    int sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++) sum += values[i];
    return sum;
}

static void test_call(void **state)
{
    int values[1000];
    for (int i = 0; i < 1000; i++) values[i] = i;
    assert_int_equal(sum(values, 1000), 499500);
#if defined(__x86_64__)
    assert_int_equal(sum_code(values, 1000), 499500);
    if (machine_vectors() >= MACHINE_AVX2) assert_int_equal(sum_avx2(values, 1000), 499500);
    if (machine_vectors() >= MACHINE_AVX512) assert_int_equal(sum_avx512(values, 1000), 499500);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
