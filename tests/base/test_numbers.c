/* Number types and random numbers: every half there is, rounding, published Philox blocks, fairness. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/random.h"
#include "base/shape.h"
#include "base/tensor.h"
#include "tests/support/unit.h"

/* A 16-bit float's value by its definition: `mantissa` bits of fraction, the given exponent bias. */
static double half_value(uint16_t bits, int mantissa, int bias)
{
    int exponent = (bits & 0x7fff) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    int highest = 0x7fff >> mantissa;
    double value;
    if (exponent == highest) value = fraction ? NAN : INFINITY;
    else if (exponent == 0) value = ldexp(fraction, 1 - bias - mantissa);
    else value = ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
    return bits & 0x8000 ? -value : value;
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void every_half_widens(void **state)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        assert_true(same(f16_to_float((uint16_t)bits), half_value((uint16_t)bits, 10, 15)));
        assert_true(same(bf16_to_float((uint16_t)bits), half_value((uint16_t)bits, 7, 127)));
    }
}

static void every_half_comes_back(void **state)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float f16 = f16_to_float((uint16_t)bits), bf16 = bf16_to_float((uint16_t)bits);
        if (isnan(f16)) assert_true(isnan(f16_to_float(f16_from_float(f16))));
        else assert_int_equal(f16_from_float(f16), bits);
        if (isnan(bf16)) assert_true(isnan(bf16_to_float(bf16_from_float(bf16))));
        else assert_int_equal(bf16_from_float(bf16), bits);
    }
}

/* Between each two neighbours: just below the middle, the middle (to even), just above. */
static void check_rounding(uint16_t (*round)(float), float (*widen)(uint16_t), uint16_t infinity)
{
    for (uint16_t bits = 0; bits < infinity - 1; bits++) {
        double low = widen(bits), high = widen((uint16_t)(bits + 1));
        float middle = (float)((low + high) / 2);
        uint16_t even = bits % 2 ? (uint16_t)(bits + 1) : bits;
        assert_int_equal(round(middle), even);
        assert_int_equal(round(-middle), even | 0x8000);
        assert_int_equal(round(nextafterf(middle, 0)), bits);
        assert_int_equal(round(nextafterf(middle, INFINITY)), bits + 1);
    }
}

static void halves_round_to_nearest_even(void **state)
{
    check_rounding(f16_from_float, f16_to_float, 0x7c00);
    check_rounding(bf16_from_float, bf16_to_float, 0x7f80);
}

static void halves_overflow_to_infinity(void **state)
{
    assert_int_equal(f16_from_float(65504), 0x7bff);
    assert_int_equal(f16_from_float(65519.996f), 0x7bff);
    assert_int_equal(f16_from_float(65520), 0x7c00);
    assert_int_equal(f16_from_float(-1e30f), 0xfc00);
    assert_int_equal(f16_from_float(INFINITY), 0x7c00);
    assert_int_equal(bf16_from_float(3.4e38f), 0x7f80);
    assert_int_equal(bf16_from_float(-INFINITY), 0xff80);
}

static void conversions_of_arrays(void **state)
{
    static const enum dtype types[] = {F32, F16, BF16};
    enum { COUNT = 1003 };
    uint64_t source[COUNT], target[COUNT];
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            for (int i = 0; i < COUNT; i++)
                dtype_set(types[from], source, i, (i - 500) * 131.7 / (1 + i % 97));
            dtype_convert(types[to], target, types[from], source, COUNT);
            for (int i = 0; i < COUNT; i++) {
                uint64_t one;
                dtype_set(types[to], &one, 0, dtype_get(types[from], source, i));
                assert_true(dtype_get(types[to], target, i) == dtype_get(types[to], &one, 0));
            }
        }
}

static void elements_of_every_type(void **state)
{
    for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        int64_t memory[4] = {0};
        for (int i = 0; i < 4; i++) dtype_set(dtype, memory, i, 3 * i + 1);
        for (int i = 0; i < 4; i++) assert_true(dtype_get(dtype, memory, i) == 3 * i + 1);
        assert_int_equal(dtype_is_float(dtype), dtype == F32 || dtype == F16 || dtype == BF16);
    }
}

static void shapes(void **state)
{
    char text[SHAPE_TEXT];
    struct shape shape = shape_nhwc(64, 7, 5, 3);
    assert_string_equal(shape_text(shape, text), "64x7x5x3");
    assert_string_equal(shape_text(shape_vector(10), text), "10");
    assert_int_equal(shape_count(shape), 64 * 7 * 5 * 3);
    assert_true(shape_equal(shape, shape_nhwc(64, 7, 5, 3)));
    assert_false(shape_equal(shape, shape_nhwc(64, 5, 7, 3)));
    assert_false(shape_equal(shape_vector(1), shape_nhwc(1, 1, 1, 1)));
    struct tensor tensor = {.dtype = F16, .shape = shape};
    assert_int_equal(tensor_bytes(&tensor), 64 * 7 * 5 * 3 * 2);
    assert_int_equal(tensor_at(&tensor, 63, 6, 4, 2), 64 * 7 * 5 * 3 - 1);
    char huge[SHAPE_TEXT];
    shape_text(shape_nhwc(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX), huge);
    assert_int_equal(strlen(huge), 4 * 19 + 3);
}

/* Known answers of Random123 (kat_vectors, philox4x32 10). */
static void philox_known_answers(void **state)
{
    static const struct {
        struct random random;
        uint64_t draw;
        uint32_t words[4];
    } answers[] = {
        {{.key = {0, 0}, .counter = {0, 0}}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{.key = {0xffffffff, 0xffffffff}, .counter = {0xffffffff, 0xffffffff}}, UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{.key = {0xa4093822, 0x299f31d0}, .counter = {0x13198a2e, 0x03707344}}, 0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint32_t words[4];
        random_words(&answers[i].random, answers[i].draw, words);
        assert_memory_equal(words, answers[i].words, sizeof words);
    }
}

static void draws_follow_the_blocks(void **state)
{
    struct random random = random_open(7, PURPOSE_TEST, 1, 2);
    for (uint64_t block = 0; block < 5; block++) {
        uint32_t words[4];
        random_words(&random, block, words);
        for (int i = 0; i < 4; i++) assert_int_equal(random_next(&random), words[i]);
    }
}

/* Each part of a stream's name matters. */
static void names_make_different_streams(void **state)
{
    const struct random base = random_open(1, PURPOSE_TEST, 2, 3);
    const struct random others[] = {
        random_open(2, PURPOSE_TEST, 2, 3),           random_open(1, PURPOSE_MIX, 2, 3),
        random_open(1, PURPOSE_TEST, 3, 3),           random_open(1, PURPOSE_TEST, 2, 4),
        random_open(1, PURPOSE_TEST, 3, 2),           random_open((uint64_t)1 << 32, PURPOSE_TEST, 2, 3),
        random_open(1, PURPOSE_TEST, 2ull << 32, 3),  random_open(1, PURPOSE_TEST, 2, 3ull << 32),
    };
    uint32_t words[4], other[4];
    random_words(&base, 0, words);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        random_words(&others[i], 0, other);
        assert_memory_not_equal(words, other, sizeof words);
    }
    struct random again = random_open(1, PURPOSE_TEST, 2, 3);
    assert_memory_equal(&again, &base, sizeof base);
}

/* Chi-squared with 9 degrees of freedom is above 33.7 once in 10,000 fair samples. */
static void below_is_fair(void **state)
{
    struct random random = random_open(5, PURPOSE_TEST, 0, 0);
    int counts[10] = {0}, draws = 100000;
    for (int i = 0; i < draws; i++) counts[random_below(&random, 10)]++;
    double chi = 0;
    for (int i = 0; i < 10; i++) chi += pow(counts[i] - draws / 10.0, 2) / (draws / 10.0);
    assert_true(chi < 33.7);
    for (int i = 0; i < 100; i++) assert_int_equal(random_below(&random, 1), 0);
    for (int i = 0; i < 1000; i++) assert_true(random_below(&random, 0x80000001u) <= 0x80000000u);
}

static void uniform_and_normal_moments(void **state)
{
    struct random random = random_open(6, PURPOSE_TEST, 0, 0);
    int draws = 200000;
    double sum = 0, squares = 0, fourth = 0, uniform = 0;
    for (int i = 0; i < draws; i++) {
        double u = random_uniform(&random), x = random_normal(&random);
        assert_true(u >= 0 && u < 1 && isfinite(x));
        uniform += u;
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    assert_true(fabs(uniform / draws - 0.5) < 0.003);
    assert_true(fabs(sum / draws) < 0.01);
    assert_true(fabs(squares / draws - 1) < 0.015);
    assert_true(fabs(fourth / draws - 3) < 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_widens),
        cmocka_unit_test(every_half_comes_back),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(halves_overflow_to_infinity),
        cmocka_unit_test(conversions_of_arrays),
        cmocka_unit_test(elements_of_every_type),
        cmocka_unit_test(shapes),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(draws_follow_the_blocks),
        cmocka_unit_test(names_make_different_streams),
        cmocka_unit_test(below_is_fair),
        cmocka_unit_test(uniform_and_normal_moments),
    };
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
