/* test_conv_batchnorm: a convolution and its batch norm folded into one op, against double and beside the two
 * apart, as the CPU or the device of AMPTRAIN_DEVICE computes them: the error of a result may exceed
 * storage's spacing or some times that of the two ops, but not both. It prints them.
 *
 * Tensor cores truncate their fp32 sums, which are then wrong by some 3e-6: that shows where sums are
 * hundreds of times what is left when means have been subtracted, in the gradient of the weights most of
 * all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "kernels/folded/conv_batchnorm.h"
#include "tests/support/op_case.h"
#include "tests/support/place.h"
#include "tests/support/unit.h"

#define SEED 5

static const struct values {
    const char *name;
    double mean, deviation;      /* of a ... */
    bool relu;                   /* ... which may have gone through relu */
    double gamma;                /* the factor of batch norm's weights */
    double d_mean, d_size, d_along;   /* d_y: mean, deviation, and the part that goes with x */
    double worse;                /* times the error of the two ops that are allowed */
} cases[] = {
    {"after relu", 0, 1, true, 1, 0.02, 1, 0.1, 2},
    {"mean 2", 2, 1, true, 1, 0.02, 1, 0.1, 2},
    {"mean 2, d_y along x", 2, 1, true, 1, 1, 1, 0.5, 5},
    {"mean 100", 100, 1, false, 1, 0.02, 1, 0.1, 30},
    {"constant", 2, 0, false, 1, 0.02, 1, 0, 2},
    {"gamma 0.01", 0, 1, true, 0.01, 0.02, 1, 0.1, 2},
    {"gamma 0", 0, 1, true, 0, 0.02, 1, 0.1, 2},
    {"small gradients", 0, 1, true, 1, 2e-6, 1e-4, 1e-5, 2},
};

enum result { Y, D_NORM_WEIGHT, D_NORM_BIAS, D_WEIGHT, D_A, RESULTS };
static const char *const names[RESULTS] = {"y", "d_norm_weight", "d_norm_bias", "d_weight", "d_a"};

/* Odd numbers of pixels, and one image. */
static const struct layer {
    int64_t n, size, channels, filters;
} layers[] = {{1, 31, 16, 40}, {3, 17, 24, 128}}, large = {3, 28, 64, 256};

/* Where and how both are computed. */
struct setting {
    enum dtype dtype;
    bool tf32;
    struct device *device;
};

/* The two ops, or the one (norm NULL). */
struct form {
    struct op_case *conv, *norm;
};

static const struct op_code *code_of(const struct op_case *c)
{
    if (c->dtype == F64) return c->op->reference;
    return c->device ? c->op->cuda : op_cpu(c->op);
}

static void run(struct op_case *c, const enum phase *phases, int count)
{
    void *plan;
    const struct op_code *code = code_of(c);
    op_case_prepare(code, &plan);
    for (int i = 0; i < count; i++) {
        struct op_case_storage storage;
        struct call call = op_case_call(c, phases[i], &storage);
        assert_int_equal(op_case_run(code, plan, &call), OK);
    }
    op_case_release(plan);
}

static void copy(struct tensor *to, const struct tensor *from)
{
    for (int64_t i = 0; i < shape_count(to->shape); i++) tensor_set(to, i, tensor_get(from, i));
}

static struct op_case *open_op(const char *op, const struct op_example *example, struct setting s)
{
    struct reason reason = {0};
    struct op_case *c = op_case_open(op_find(op), example, s.dtype, true, SEED, &reason);
    if (!c) fail_msg("%s", reason.text);
    c->device = s.device;
    c->tf32 = s.tf32;
    return c;
}

static struct form form_open(const struct layer *l, bool folded, struct setting s)
{
    struct shape x = shape_nhwc(l->n, l->size, l->size, l->channels), y = x;
    y.c = l->filters;
    char *conv = text_format("filters=%d%s", (int)l->filters,
                             folded ? " residual=yes activation=relu" : " kernel=1 bias=no");
    struct form form = {.conv = open_op(folded ? "conv_batchnorm" : "conv",
                                        &(struct op_example){conv, 1 + folded, {x, y}}, s)};
    if (!folded)
        form.norm = open_op("batchnorm", &(struct op_example){"residual=yes activation=relu", 2, {y, y}}, s);
    if (folded && dtype_bytes(s.dtype) == 2) op_case_mask(form.conv);
    free(conv);
    return form;
}

static void form_close(struct form *form)
{
    op_case_close(form->conv);
    op_case_close(form->norm);
}

static struct op_case *norm_of(const struct form *form) { return form->norm ? form->norm : form->conv; }

static struct tensor *weight_of(const struct form *form, struct tensor *params)
{
    return &params[form->norm ? 0 : form->conv->param_count - 1];
}

/* All forms get the numbers of the first, which are those of its storage. */
static void fill(const struct form *form, const struct values *v)
{
    struct random random = random_open(SEED, PURPOSE_TEST, 1, 0);
    struct tensor *a = &form->conv->x[0], *weight = &norm_of(form)->params[0];
    for (int64_t i = 0; i < shape_count(a->shape); i++) {
        double value = v->mean + v->deviation * random_normal(&random);
        tensor_set(a, i, v->relu && value < 0 ? 0 : value);
    }
    for (int64_t k = 0; k < shape_count(weight->shape); k++)
        tensor_set(weight, k, tensor_get(weight, k) * v->gamma);
}

static void share(const struct form *to, const struct form *from)
{
    copy(&to->conv->x[0], &from->conv->x[0]);
    copy(weight_of(to, to->conv->params), weight_of(from, from->conv->params));
    copy(&norm_of(to)->x[1], &norm_of(from)->x[1]);
    for (int i = 0; i < 2; i++) copy(&norm_of(to)->params[i], &norm_of(from)->params[i]);
}

static void forward(const struct form *form)
{
    const enum phase phase = PHASE_FORWARD;
    run(form->conv, &phase, 1);
    if (!form->norm) return;
    copy(&form->norm->x[0], &form->conv->y);
    run(form->norm, &phase, 1);
}

static void backward(const struct form *form)
{
    const enum phase phases[] = {PHASE_BACKWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};
    run(norm_of(form), phases, 1);
    if (!form->norm) return;
    copy(&form->conv->d_y, &form->norm->d_x[0]);
    run(form->conv, phases + 1, 2);
}

/* d_y, by the exact x; it is rounded to 16 bits. */
static void fill_d_y(const struct form *exact, const struct values *v, struct tensor *d_y)
{
    struct random random = random_open(SEED, PURPOSE_TEST, 2, 0);
    const struct tensor *x = &exact->conv->y, *saved = exact->norm->saved;
    for (int64_t i = 0; i < shape_count(x->shape); i++) {
        int64_t k = i % x->shape.c;
        double deviation = tensor_get(x, i) - tensor_get(&saved[SAVED_MEAN], k);
        double along = v->d_along * deviation * tensor_get(&saved[SAVED_INVSTD], k);
        tensor_set(d_y, i, v->d_mean + v->d_size * random_normal(&random) + along);
    }
}

/* Where z is 0 by chance, a library may have the bit. */
static void assert_masked(const struct op_case *c)
{
    const uint8_t *bytes = c->mask.data;
    int64_t count = shape_count(c->y.shape), chances = 0;
    for (int64_t i = 0; i < count; i++) {
        bool bit = bytes[i / 8] >> i % 8 & 1, positive = tensor_get(&c->y, i) > 0;
        if (positive) assert_true(bit);
        chances += bit && !positive;
    }
    assert_true(chances <= count / 100);
}

/* Both forms go on from the exact y, so that they agree about relu's sides. */
static void share_y(const struct form *to, const struct form *exact)
{
    struct op_case *c = norm_of(to);
    copy(&c->y, &exact->norm->y);
    uint8_t *bytes = c->mask.data;
    for (int64_t i = 0; bytes && i < shape_count(c->y.shape); i++) {
        unsigned bit = tensor_get(&exact->norm->y, i) > 0;
        bytes[i / 8] = (uint8_t)((bytes[i / 8] & ~(1u << i % 8)) | bit << i % 8);
    }
}

static const struct tensor *result_of(const struct form *form, enum result result)
{
    switch (result) {
    case Y: return &norm_of(form)->y;
    case D_NORM_WEIGHT: return &norm_of(form)->d_params[0];
    case D_NORM_BIAS: return &norm_of(form)->d_params[1];
    case D_WEIGHT: return weight_of(form, form->conv->d_params);
    case D_A: return &form->conv->d_x[0];
    case RESULTS: break;
    }
    return NULL;
}

static double norm_of_tensor(const struct tensor *a, const struct tensor *b)
{
    double sum = 0;
    for (int64_t i = 0; i < shape_count(a->shape); i++) {
        double off = tensor_get(a, i) - (b ? tensor_get(b, i) : 0);
        sum += off * off;
    }
    return sqrt(sum);
}

/* Errors are relative to the exact result's size, at least what that is in the first case. */
struct unit {
    double of[RESULTS];
};

static void compare(const struct form *exact, const struct form *apart, const struct form *folded,
                    enum result result, const struct values *v, struct unit *unit)
{
    enum dtype dtype = folded->conv->dtype;
    double size = norm_of_tensor(result_of(exact, result), NULL) / (result == Y ? 1 : v->d_size);
    if (v == cases) unit->of[result] = size;
    if (size < unit->of[result]) size = unit->of[result];
    if (result != Y) size *= v->d_size;
    double a = norm_of_tensor(result_of(apart, result), result_of(exact, result)) / size;
    double b = norm_of_tensor(result_of(folded, result), result_of(exact, result)) / size;
    print_message("  %-20s %s %-13s apart %.1e folded %.1e\n", v->name,
                  folded->conv->tf32 ? "tf32" : dtype_table[dtype].name, names[result], a, b);
    double floor = dtype == BF16 ? 0x1p-7 : 0x1p-10;
    if (folded->conv->tf32) floor *= 1 + v->mean;        /* products round a itself, not its deviations */
    if (!(b <= floor || b <= v->worse * a)) fail_msg("%s, %s: %.3g, not %.3g", v->name, names[result], b, a);
}

static void check(const struct layer *l, struct setting setting)
{
    struct unit unit = {{0}};
    print_message("%lldx%lldx%lldx%lld to %lld\n", (long long)l->n, (long long)l->size, (long long)l->size,
                  (long long)l->channels, (long long)l->filters);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct form exact = form_open(l, false, (struct setting){.dtype = F64}),
                    apart = form_open(l, false, setting), folded = form_open(l, true, setting);
        fill(&apart, &cases[i]);
        share(&exact, &apart);
        share(&folded, &apart);
        forward(&exact);
        forward(&apart);
        forward(&folded);
        if (folded.conv->mask.data) assert_masked(folded.conv);
        fill_d_y(&exact, &cases[i], &apart.norm->d_y);
        copy(&exact.norm->d_y, &apart.norm->d_y);
        copy(&folded.conv->d_y, &apart.norm->d_y);
        compare(&exact, &apart, &folded, Y, &cases[i], &unit);
        share_y(&apart, &exact);
        share_y(&folded, &exact);
        backward(&exact);
        backward(&apart);
        backward(&folded);
        for (int r = Y + 1; r < RESULTS; r++)
            compare(&exact, &apart, &folded, (enum result)r, &cases[i], &unit);
        form_close(&exact);
        form_close(&apart);
        form_close(&folded);
    }
}

static void test_numerics(void **state)
{
    struct setting setting = *(const struct setting *)*state;
    if (place_is_cpu() && setting.tf32) skip();
    setting.device = place_is_cpu() ? NULL : place_open(0);
    int count = setting.device || setting.dtype == F16 ? 2 : 1;     /* plain loops take their time */
    for (int i = 0; i < count; i++) check(&layers[i], setting);
    if (setting.device) check(&large, setting);
    device_close(setting.device);
}

/* The gradient of the pixels that a stride takes, with the others, which are 0, and alone. */
static void test_picked(void **state)
{
    struct setting setting = *(const struct setting *)*state;
    if (place_is_cpu() && setting.tf32) skip();
    setting.device = place_is_cpu() ? NULL : place_open(0);
    const enum phase phases[] = {PHASE_FORWARD, PHASE_BACKWARD};
    const struct op_example example = {"filters=32 stride=2", 1,
                                       {{.rank = 4, .n = 3, .h = 27, .w = 26, .c = 16}}};
    struct op_case *whole = open_op("conv_batchnorm", &example, setting),
                   *picked = open_op("conv_batchnorm", &example, setting);
    struct shape taken = conv_batchnorm_taken(picked->settings, picked->x[0].shape);
    whole->deterministic = picked->deterministic = true;
    picked->d_x[0].shape = taken;
    run(whole, phases, 2);
    run(picked, phases, 2);
    for (int64_t i = 0; i < shape_count(taken); i++) {
        int64_t p = i / taken.c, row = p / taken.w, h = row % taken.h * 2, w = p % taken.w * 2;
        int64_t at = tensor_at(&whole->d_x[0], row / taken.h, h, w, i % taken.c);
        assert_true(tensor_get(&picked->d_x[0], i) == tensor_get(&whole->d_x[0], at));
    }
    op_case_close(whole);
    op_case_close(picked);
    device_close(setting.device);
}

int main(void)
{
    static struct setting settings[] = {{.dtype = F16}, {.dtype = BF16}, {.dtype = F32, .tf32 = true}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_numerics, &settings[0]),
        cmocka_unit_test_prestate(test_numerics, &settings[1]),
        cmocka_unit_test_prestate(test_numerics, &settings[2]),
        cmocka_unit_test_prestate(test_picked, &settings[0]),
        cmocka_unit_test_prestate(test_picked, &settings[1]),
        cmocka_unit_test_prestate(test_picked, &settings[2]),
    };
    return cmocka_run_group_tests_name("conv_batchnorm", tests, NULL, NULL);
}
