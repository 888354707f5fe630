/* The loss scale, step by step, as torch's GradScaler would move it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "amp/precision.h"
#include "amp/scaler.h"
#include "tests/support/unit.h"

static const struct scaler_settings torch_defaults = {
    .dynamic = true, .init_scale = 65536, .growth = 2, .backoff = 0.5,
    .growth_interval = 2000, .min_scale = 1, .max_scale = 16777216,
};

static struct scaler after(const struct scaler_settings *settings, const char *steps)
{
    struct scaler scaler = scaler_start(settings);
    for (; *steps; steps++) scaler_update(settings, &scaler, *steps == 'x');
    return scaler;
}

static void starts(void **state)
{
    struct scaler scaler = scaler_start(&torch_defaults);
    assert_true(scaler.scale == 65536);
    assert_int_equal(scaler.good_steps, 0);
    assert_int_equal(scaler.floor_overflows, 0);
}

static void grows_after_the_interval(void **state)
{
    struct scaler scaler = scaler_start(&torch_defaults);
    for (int i = 0; i < 1999; i++) scaler_update(&torch_defaults, &scaler, false);
    assert_true(scaler.scale == 65536);
    assert_int_equal(scaler.good_steps, 1999);
    scaler_update(&torch_defaults, &scaler, false);
    assert_true(scaler.scale == 131072);
    assert_int_equal(scaler.good_steps, 0);
}

static void backs_off_at_once(void **state)
{
    struct scaler scaler = after(&torch_defaults, "...x");
    assert_true(scaler.scale == 32768);
    assert_int_equal(scaler.good_steps, 0);
}

static void overflow_restarts_the_interval(void **state)
{
    struct scaler_settings settings = torch_defaults;
    settings.growth_interval = 3;
    assert_true(after(&settings, "..x..").scale == 32768);
    assert_true(after(&settings, "..x...").scale == 65536);
    assert_true(after(&settings, ".........").scale == 8 * 65536);
}

static void other_factors(void **state)
{
    struct scaler_settings settings = torch_defaults;
    settings.growth = 1.5;
    settings.backoff = 0.3;
    settings.growth_interval = 1;
    assert_true(after(&settings, ".").scale == 98304);
    assert_true(after(&settings, "x").scale == (float)(65536 * 0.3));
    assert_true(after(&settings, "x.").scale == (float)((double)(float)(65536 * 0.3) * 1.5));
}

static void stops_at_the_floor(void **state)
{
    struct scaler scaler = after(&torch_defaults, "xxxxxxxxxxxxxxxx");
    assert_true(scaler.scale == 1);
    assert_int_equal(scaler.floor_overflows, 0);
    scaler_update(&torch_defaults, &scaler, true);
    scaler_update(&torch_defaults, &scaler, true);
    assert_true(scaler.scale == 1);
    assert_int_equal(scaler.floor_overflows, 2);
    scaler_update(&torch_defaults, &scaler, false);
    assert_int_equal(scaler.floor_overflows, 0);
}

static void floor_between_powers(void **state)
{
    struct scaler_settings settings = torch_defaults;
    settings.min_scale = 40000;
    assert_true(after(&settings, "x").scale == 40000);
    assert_true(after(&settings, "xx").scale == 40000);
}

static void stops_at_the_ceiling(void **state)
{
    struct scaler_settings settings = torch_defaults;
    settings.growth_interval = 1;
    assert_true(after(&settings, "........").scale == 16777216);
    assert_true(after(&settings, "....................").scale == 16777216);
    assert_true(after(&settings, "....................x").scale == 8388608);
    assert_int_equal(after(&settings, "...................").good_steps, 0);
}

static void start_is_within_limits(void **state)
{
    struct scaler_settings settings = torch_defaults;
    settings.init_scale = 1e30;
    assert_true(scaler_start(&settings).scale == 16777216);
    settings.init_scale = 1e-5;
    assert_true(scaler_start(&settings).scale == 1);
}

static void static_never_moves(void **state)
{
    struct scaler_settings settings = torch_defaults;
    settings.dynamic = false;
    settings.scale = 128;
    settings.growth_interval = 1;
    struct scaler scaler = after(&settings, "...xxx.xx");
    assert_true(scaler.scale == 128);
    assert_int_equal(scaler.floor_overflows, 2);
}

/* Whatever happens, the scale is finite and within its limits. */
static void never_leaves_its_limits(void **state)
{
    struct scaler_settings settings = torch_defaults;
    settings.growth_interval = 2;
    settings.growth = 65536;
    settings.backoff = 1e-6;
    struct scaler scaler = scaler_start(&settings);
    unsigned random = 7;
    for (int i = 0; i < 100000; i++) {
        random = random * 1664525 + 1013904223;
        scaler_update(&settings, &scaler, random >> 30 == 0);
        assert_true(scaler.scale >= 1 && scaler.scale <= 16777216);
    }
}

/* The norm is that of unscaled gradients; one gradient that is not finite skips the step and backs off. */
static void checks_gradients(void **state)
{
    struct scaler scaler = scaler_start(&torch_defaults);
    double norm;
    assert_true(scaler_check(&torch_defaults, &scaler, 65536.0 * 65536.0 * 9, &norm));
    assert_true(norm == 3 && scaler.scale == 65536 && scaler.good_steps == 1);
    float largest = FLT_MAX;
    assert_true(scaler_check(&torch_defaults, &scaler, (double)largest * (double)largest, &norm));
    assert_false(scaler_check(&torch_defaults, &scaler, INFINITY, &norm));
    assert_true(isinf(norm) && scaler.scale == 32768 && scaler.good_steps == 0);
    assert_false(scaler_check(&torch_defaults, &scaler, NAN, &norm));
    assert_true(isnan(norm) && scaler.scale == 16384);
}

static void precisions(void **state)
{
    for (int i = 0; i < PRECISION_COUNT; i++) {
        const struct precision_row *row = &precision_table[i];
        assert_non_null(row->name);
        assert_non_null(row->help);
        assert_int_equal(row->low, row->storage != F32);
    }
    assert_string_equal(precision_table[PRECISION_FP16].name, "fp16");
    assert_true(precision_table[PRECISION_FP16].scale_by_default);
    assert_false(precision_table[PRECISION_BF16].scale_by_default);
    assert_false(precision_table[PRECISION_FP32].tf32);
    assert_true(precision_table[PRECISION_TF32].tf32);
    assert_int_equal(precision_table[PRECISION_BF16].storage, BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts),
        cmocka_unit_test(grows_after_the_interval),
        cmocka_unit_test(backs_off_at_once),
        cmocka_unit_test(overflow_restarts_the_interval),
        cmocka_unit_test(other_factors),
        cmocka_unit_test(stops_at_the_floor),
        cmocka_unit_test(floor_between_powers),
        cmocka_unit_test(stops_at_the_ceiling),
        cmocka_unit_test(start_is_within_limits),
        cmocka_unit_test(static_never_moves),
        cmocka_unit_test(never_leaves_its_limits),
        cmocka_unit_test(checks_gradients),
        cmocka_unit_test(precisions),
    };
    return cmocka_run_group_tests_name("amp", tests, NULL, NULL);
}
