/* test_moments: batch norm's statistics where the mean is many times the deviation, and of constant channels,
 * against double: the CPU's code and, where AMPTRAIN_DEVICE names one, that device's, which also gets sums as
 * convolutions give them. It prints how far off they are; bench/batchnorm_precision.py prints PyTorch's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "kernels/norm/batchnorm.h"
#include "tests/support/op_case.h"
#include "tests/support/place.h"
#include "tests/support/unit.h"

#define SEED 11
#define RATIOS 6
#define BATCHES 2

/* Means, in deviations; 0 deviations: constant channels. */
static const struct values {
    double mean, deviation;
} values[RATIOS] = {{0, 1}, {4, 1}, {12, 1}, {100, 1}, {1000, 1}, {100, 0}};

/* Rows in whole packs, and not. */
static const struct op_example batches[BATCHES] = {
    {"", 1, {{.rank = 4, .n = 16, .h = 40, .w = 40, .c = 24}}},
    {"", 1, {{.rank = 4, .n = 16, .h = 83, .w = 83, .c = 5}}},
};

/* The greatest errors: of variances relative to variance + eps, of means relative to mean + deviation, of
 * results in deviations. */
struct errors {
    double variance, mean, y;
};

static void fill(struct op_case *c, const struct values *v)
{
    struct random random = random_open(SEED, PURPOSE_TEST, 0, 0);
    int64_t channels = c->x[0].shape.c;
    for (int64_t i = 0; i < shape_count(c->x[0].shape); i++) {
        double sign = i % channels % 2 ? -1 : 1, scale = 1 + 0.01 * (double)(i % channels);
        tensor_set(&c->x[0], i, scale * (sign * v->mean + v->deviation * random_normal(&random)));
    }
}

static void most(double *error, double found, double expected, double unit)
{
    double off = fabs(found - expected) / unit;
    if (!(off <= *error)) *error = off;
}

static void channel_errors(const struct op_case *c, int64_t channel, struct errors *errors)
{
    const struct batchnorm *s = c->settings;
    int64_t channels = c->x[0].shape.c, count = shape_count(c->x[0].shape) / channels;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) sum += tensor_get(&c->x[0], i * channels + channel);
    double mean = sum / (double)count;
    for (int64_t i = 0; i < count; i++) {
        double deviation = tensor_get(&c->x[0], i * channels + channel) - mean;
        squares += deviation * deviation;
    }
    double variance = squares / (double)(count - 1), spread = sqrt(squares / (double)count + s->eps);
    double weight = tensor_get(&c->params[0], channel), bias = tensor_get(&c->params[1], channel);
    most(&errors->variance, tensor_get(&c->saved[SAVED_VARIANCE], channel), variance, variance + s->eps);
    most(&errors->variance, tensor_get(&c->saved[SAVED_INVSTD], channel), 1 / spread, 1 / spread);
    most(&errors->mean, tensor_get(&c->saved[SAVED_MEAN], channel), mean, fabs(mean) + spread);
    for (int64_t i = channel; i < count * channels; i += channels) {
        double z = (tensor_get(&c->x[0], i) - mean) / spread * weight + bias;
        most(&errors->y, tensor_get(&c->y, i), z, 1 + fabs(z));
    }
}

/* Storage rounds y; the mean that is saved is rounded to fp32, and so in turn is y. Sums that are given were
 * rounded, too. */
static void assert_small(const struct errors *errors, const struct values *v, enum dtype dtype, bool sums)
{
    double step = dtype == F32 ? 0x1p-22 : dtype == F16 ? 0x1p-10 : 0x1p-7;
    assert_true(errors->variance <= (sums ? 5e-5 : 1e-5));
    assert_true(errors->mean <= 0x1p-22);
    assert_true(errors->y <= step + (sums ? 5e-5 : 1e-5) + 0x1p-21 * v->mean);
}

static void check(const struct op_example *example, const struct op_code *code, const struct values *v,
                  enum dtype dtype, bool sums)
{
    struct reason reason;
    struct op_case *c = op_case_open(op_find("batchnorm"), example, dtype, true, SEED, &reason);
    assert_non_null(c);
    fill(c, v);
    if (sums) op_case_take_sums(c);
    if (code == c->op->cuda) c->device = place_open(1);
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_FORWARD, &storage);
    assert_int_equal(op_case_run(code, NULL, &call), OK);
    struct errors errors = {0, 0, 0};
    for (int64_t channel = 0; channel < c->x[0].shape.c; channel++) channel_errors(c, channel, &errors);
    print_message("%s %s, %2d channels, mean %4g, deviation %g%s: variance off by %.1e, mean %.1e, y %.1e\n",
                  c->device ? "cuda" : "cpu ", dtype_table[dtype].name, (int)c->x[0].shape.c, v->mean,
                  v->deviation, sums ? ", sums given" : "", errors.variance, errors.mean, errors.y);
    assert_small(&errors, v, dtype, sums);
    device_close(c->device);
    op_case_close(c);
}

static bool takes_moments(const struct op_code *code)
{
    struct tensor x = {.dtype = F32, .shape = shape_nhwc(1, 1, 1, 1)};
    const struct batchnorm settings = {.affine = true};
    struct call call = {.phase = PHASE_FORWARD, .settings = &settings, .x_count = 1, .x = &x};
    call_put(&call, OPERAND_X_MOMENTS)->shape.rank = 2;
    return op_code_supports(code, &call);
}

/* bf16 does not tell a thousandth of a number from nothing. */
static void check_all(const struct op_code *code, enum dtype dtype)
{
    for (int b = 0; b < BATCHES; b++)
        for (int i = 0; i < RATIOS; i++) {
            if (dtype == BF16 && values[i].mean >= 1000) continue;
            check(&batches[b], code, &values[i], dtype, false);
            if (takes_moments(code)) check(&batches[b], code, &values[i], dtype, true);
        }
}

/* Calls that are told what a rank alone has, as if it were common to several, do what one call does. */

static void assert_close(const struct tensor *a, const struct tensor *b)
{
    double step = a->dtype == F32 ? 2e-5 : a->dtype == F16 ? 2e-3 : 2e-2;
    for (int64_t i = 0; i < shape_count(a->shape); i++)
        assert_true(fabs(tensor_get(a, i) - tensor_get(b, i)) <= step * (1 + fabs(tensor_get(a, i))));
}

/* Runs it again, by what it has left in the case, and compares what it writes `to`. */
static void again(const struct op_code *code, struct call *call, struct tensor *to)
{
    struct tensor before = *to;
    before.data = memory_new(tensor_bytes(to), 1);
    memcpy(before.data, to->data, tensor_bytes(to));
    op_case_poison(to);
    call->ranks = 1;
    assert_int_equal(op_case_run(code, NULL, call), OK);
    assert_close(&before, to);
    free(before.data);
}

static void check_parts(const struct op_code *code, const struct op_example *example, enum dtype dtype)
{
    struct reason reason;
    struct op_case *c = op_case_open(op_find("batchnorm"), example, dtype, true, SEED, &reason);
    assert_non_null(c);
    if (code == c->op->cuda) c->device = place_open(1);
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_FORWARD, &storage);
    assert_int_equal(op_case_run(code, NULL, &call), OK);
    again(code, &call, &c->y);

    float sums[2 * 1100];
    struct call back = op_case_call(c, PHASE_BACKWARD, &storage);
    struct tensor d_x = back.d_x[0];
    assert_int_equal(op_case_run(code, NULL, &back), OK);
    back.d_x[0] = (struct tensor){0};
    *call_put(&back, OPERAND_RANK_SUMS) = (struct tensor){
        .data = sums, .dtype = F32, .shape = {.rank = 4, .n = 1, .h = 1, .w = 2, .c = c->x[0].shape.c}};
    memset(sums, 0xff, sizeof sums);
    assert_int_equal(op_case_run(code, NULL, &back), OK);
    back.d_x[0] = d_x;
    for (int i = 1; i < back.x_count; i++) back.d_x[i] = (struct tensor){0};
    for (int i = 0; i < back.param_count; i++) back.d_params[i] = (struct tensor){0};
    again(code, &back, &c->d_x[0]);
    device_close(c->device);
    op_case_close(c);
}

static void check_all_parts(const struct op_code *code)
{
    static const enum dtype dtypes[] = {F32, F16, BF16};
    for (const struct op_example *example = op_find("batchnorm")->examples; example->settings; example++)
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) check_parts(code, example, dtypes[i]);
}

static void test_cpu(void **state)
{
    check_all_parts(op_find("batchnorm")->reference);
    check_all_parts(op_find("batchnorm")->cpu);
    check_all(op_find("batchnorm")->cpu, F32);
    check_all(op_find("batchnorm")->cpu, F16);
    check_all(op_find("batchnorm")->cpu, BF16);
}

static void test_device(void **state)
{
    const char *which = getenv("AMPTRAIN_DEVICE");
    const struct op_code *code = op_find("batchnorm")->cuda;
    if (!which || strncmp(which, "cuda", 4) != 0) skip();
    assert_non_null(code);
    check_all_parts(code);
    check_all(code, F32);
    check_all(code, F16);
    check_all(code, BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
