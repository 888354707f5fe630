/* test_algorithm: how a kernel plan is chosen without timing, what runs it and frees it, and the call as the
 * autotuner's key and list of tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tests/support/op_case.h"
#include "tests/support/unit.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}

/* ---- Plans of algorithms that only say what they were asked ---- */

struct asked {
    int supports, made, run, released;
};
static struct asked asked;
static bool refuses_make;

static bool never(const struct call *call) { return asked.supports++, false; }
static bool always(const struct call *call) { return asked.supports++, true; }

static bool make(const struct call *call, struct kernel_plan *plan)
{
    asked.made++;
    plan->workspace = 100;
    return !refuses_make;
}

static enum status run(const struct call *call, const struct kernel_plan *plan)
{
    asked.run++;
    return OK;
}

static void release(struct kernel_plan *plan) { asked.released++; }
static const char *lacks_amx(void) { return "AMX"; }

static const struct algorithm unfit = {.name = "unfit", .supports = never, .make = make},
                              fit = {.name = "fit", .supports = always, .make = make, .run = run,
                                     .release = release, .lacks = lacks_amx},
                              plain = {.name = "plain", .run = run};
static const struct algorithm *const algorithms[] = {&unfit, &fit, &plain, NULL};
static const struct algorithm *const unfit_alone[] = {&unfit, NULL};
static const struct op_code code = {.algorithms = algorithms};

/* Code with a choice of its own. */
static enum status choose(const struct op_code *code, const struct call *call, struct kernel_plan **made)
{
    *made = kernel_plan_bound(3);
    return OK;
}

static size_t seven(const struct call *call) { return 7; }

static struct call call_with(const char *variant)
{
    asked = (struct asked){0};
    refuses_make = false;
    return (struct call){.op = op_find("conv"), .phase = PHASE_FORWARD, .variant = variant};
}

static void expect_plan(const char *variant, const struct algorithm *algorithm)
{
    struct call call = call_with(variant);
    struct kernel_plan *plan = NULL;
    assert_int_equal(kernel_plan_make(&code, &call, &plan), OK);
    assert_ptr_equal(plan->algorithm, algorithm);
    assert_string_equal(plan->name, algorithm->name);
    assert_int_equal(plan->workspace, algorithm == &fit ? 100 : 0);
    call.kernel_plan = plan;
    assert_int_equal(op_code_workspace(&code, &call), plan->workspace);
    assert_int_equal(kernel_plan_run(&call), OK);
    assert_int_equal(asked.run, 1);
    kernel_plan_free(plan);
    assert_int_equal(asked.released, algorithm == &fit);
}

static void test_first_that_supports(void **state)
{
    expect_plan(NULL, &fit);
    expect_plan("plain", &plain);
    expect_plan("unfit", &fit);
    expect_plan("other", &fit);
    kernel_plan_free(NULL);
}

static void test_own_choice(void **state)
{
    struct call call = call_with(NULL);
    struct kernel_plan *plan = NULL;
    assert_int_equal(kernel_plan_make(&(struct op_code){.algorithms = algorithms, .choose = choose}, &call,
                                      &plan), OK);
    assert_int_equal(plan->workspace, 3);
    kernel_plan_free(plan);
}

static void test_none(void **state)
{
    struct call call = call_with(NULL);
    struct kernel_plan *plan = NULL;
    assert_int_equal(kernel_plan_make(&(struct op_code){.algorithms = unfit_alone}, &call, &plan), FAILED);
    assert_null(plan);
    assert_int_equal(asked.supports, 1);
    assert_int_equal(asked.made, 0);
}

static void test_by_name(void **state)
{
    struct call call = call_with(NULL);
    struct kernel_plan *plan = algorithm_plan(algorithms, &call, "fit 3 4");
    assert_ptr_equal(plan->algorithm, &fit);
    assert_string_equal(plan->name, "fit 3 4");
    kernel_plan_free(plan);
    assert_null(algorithm_plan(algorithms, &call, "fitting"));
    assert_null(algorithm_plan(algorithms, &call, "unfit"));
    refuses_make = true;
    assert_null(algorithm_plan(algorithms, &call, "fit"));
}

static void test_state_is_freed(void **state)
{
    struct kernel_plan *plan = kernel_plan_bound(12);
    assert_null(plan->algorithm);
    plan->state = memory_new(1, 8);
    kernel_plan_free(plan);
}

static void test_workspace(void **state)
{
    struct call call = call_with(NULL);
    assert_int_equal(op_code_workspace(&code, &call), 0);
    struct kernel_plan *bound = kernel_plan_bound(12);
    call.kernel_plan = bound;
    assert_int_equal(op_code_workspace(&code, &call), 12);
    assert_int_equal(op_code_workspace(&(struct op_code){.workspace = seven}, &call), 7);
    kernel_plan_free(bound);
}

/* A gradient that nobody wants is not computed. */
static void test_unwanted_gradient(void **state)
{
    struct call call = call_with(NULL);
    struct tensor d_x = {.dtype = F32};
    struct kernel_plan plan = {.algorithm = &plain};
    call.d_x = &d_x, call.kernel_plan = &plan, call.phase = PHASE_BACKWARD_DATA;
    assert_int_equal(kernel_plan_run(&call), OK);
    assert_int_equal(asked.run, 0);
    d_x.data = &d_x;
    assert_int_equal(kernel_plan_run(&call), OK);
    assert_int_equal(asked.run, 1);
}

static void test_lacks(void **state)
{
    assert_string_equal(algorithm_lacks(&code, "fit"), "AMX");
    assert_null(algorithm_lacks(&code, "plain"));
    assert_null(algorithm_lacks(&(struct op_code){0}, "fit"));
}

/* The reference, as an algorithm, runs the phase's function: results are those of plain code. */
static void test_reference(void **state)
{
    static const enum phase phases[] = {PHASE_FORWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};
    struct reason reason = {0};
    const struct op_example example = {"filters=3 kernel=3 pad=1", 1, {SHAPE(2, 4, 4, 2)}};
    struct op_case *c = op_case_open(op_find("conv"), &example, F32, true, 1, &reason);
    struct op_case_storage storage;
    struct kernel_plan plan = {.algorithm = &algorithm_reference};
    for (int i = 0; i < COUNT(phases); i++) {
        struct call call = op_case_call(c, phases[i], &storage);
        const struct tensor *result = i == 0 ? &call.y : i == 1 ? &call.d_x[0] : &call.d_params[0];
        size_t bytes = tensor_bytes(result);
        void *copy = memory_new(1, bytes);
        assert_int_equal(op_case_function(c->op->reference, phases[i])(&call), OK);
        memcpy(copy, result->data, bytes);
        op_case_poison(result);
        call.kernel_plan = &plan;
        assert_int_equal(kernel_plan_run(&call), OK);
        assert_memory_equal(copy, result->data, bytes);
        free(copy);
    }
    op_case_close(c);
}

/* ---- The call as text, and its tensors ---- */

/* The text, then for each tensor its role, number, and whether it is read ("<") or written (">"). */
static void expect_call(const struct call *call, const char *key, const char *tensors)
{
    struct call copy = *call;
    struct call_tensor list[CALL_TENSORS];
    struct text text = {0}, listed = {0};
    int count = call_tensors(&copy, list);
    call_print(call, &text);
    assert_string_equal(text.data, key);
    for (int i = 0; i < count; i++) {
        text_add(&listed, "%s%s%d%s", i ? " " : "", operand_words[list[i].role], list[i].index,
                 list[i].reads ? "<" : ">");
        assert_true(list[i].tensor->shape.rank > 0);
    }
    assert_string_equal(listed.data, tensors);
    text_free(&text);
    text_free(&listed);
}

struct described {
    const char *op;
    struct op_example example;
    void (*prepare)(struct op_case *c);
    enum phase phase;
    const char *key, *tensors;
};

static void join(struct op_case *c) { op_case_join(c, false); }
static void be_exact(struct op_case *c) { c->deterministic = c->tf32 = true; }
static void nothing(struct op_case *c) {}

static const struct described described[] = {
    {"conv", {"filters=8 kernel=3 pad=1", 1, {SHAPE(2, 4, 4, 3)}}, be_exact, PHASE_FORWARD,
     "forward conv filters:8 kernel:3 pad:1 tf32 deterministic (x fp16[2x4x4x3], params "
     "fp16[8x3x3x3], params fp16[8], y fp16[2x4x4x8])",
     "x0< params0< params1< y0>"},
    {"conv", {"filters=8 kernel=3 pad=1", 1, {SHAPE(2, 4, 4, 8)}}, join, PHASE_BACKWARD_DATA,
     "backward_data conv filters:8 kernel:3 pad:1 (d_x fp16[2x4x4x8], params fp16[8x8x3x3], params "
     "fp16[8], d_y fp16[2x4x4x8], d_x_addend fp16[2x4x4x8], mask uint8[2x4x4x1], d_x_sums "
     "fp32[1x8]) then add, multiply, sums",
     "d_x0> params0< params1< d_y0< d_x_addend0< mask0< d_x_sums0>"},
    {"conv", {"filters=8 kernel=3 pad=1", 1, {SHAPE(2, 4, 4, 3)}}, nothing, PHASE_BACKWARD_PARAMS,
     "backward_params conv filters:8 kernel:3 pad:1 (x fp16[2x4x4x3], d_params fp32[8x3x3x3], "
     "d_params fp32[8], d_y fp16[2x4x4x8])",
     "x0< d_params0> d_params1> d_y0<"},
    {"linear", {"units=5 bias=no", 1, {SHAPE(2, 1, 1, 3)}}, op_case_add_residual, PHASE_FORWARD,
     "forward linear units:5 bias:no (x fp16[2x1x1x3], params fp16[5x3], y fp16[2x1x1x5], y_addend "
     "fp16[2x1x1x5]) then add",
     "x0< params0< y0> y_addend0<"},
    {"batchnorm", {"", 1, {SHAPE(2, 4, 4, 8)}}, op_case_take_sums, PHASE_FORWARD,
     "forward batchnorm (x fp16[2x4x4x8], params fp32[8], params fp32[8], params fp32[8], params "
     "fp32[8], y fp16[2x4x4x8], saved fp32[8], saved fp32[8], saved fp32[8], x_moments fp32[2x8])",
     "x0< params0< params1< params2< params3< y0> saved0> saved1> saved2> x_moments0<"},
    {"batchnorm", {"", 1, {SHAPE(2, 4, 4, 8)}}, op_case_add_gradient, PHASE_BACKWARD,
     "backward batchnorm (x fp16[2x4x4x8], d_x fp16[2x4x4x8], params fp32[8], params fp32[8], "
     "params fp32[8], params fp32[8], d_params fp32[8], d_params fp32[8], d_y fp16[2x4x4x8], saved "
     "fp32[8], saved fp32[8], saved fp32[8], d_y_addend fp16[2x4x4x8])",
     "x0< d_x0> params0< params1< params2< params3< d_params0> d_params1> d_y0< saved0< saved1< "
     "saved2< d_y_addend0<"},
    {"relu", {"", 1, {SHAPE(2, 4, 4, 8)}}, nothing, PHASE_BACKWARD,
     "backward relu (d_x fp16[2x4x4x8], y fp16[2x4x4x8], d_y fp16[2x4x4x8])",
     "d_x0> y0< d_y0<"},
    {"gelu", {"", 1, {SHAPE(2, 4, 4, 8)}}, nothing, PHASE_BACKWARD,
     "backward gelu (x fp16[2x4x4x8], d_x fp16[2x4x4x8], d_y fp16[2x4x4x8])",
     "x0< d_x0> d_y0<"},
};

static void test_calls(void **state)
{
    for (int i = 0; i < COUNT(described); i++) {
        const struct described *d = &described[i];
        struct reason reason = {0};
        struct op_case *c = op_case_open(op_find(d->op), &d->example, F16, true, 1, &reason);
        struct op_case_storage storage;
        d->prepare(c);
        struct call call = op_case_call(c, d->phase, &storage);
        expect_call(&call, d->key, d->tensors);
        op_case_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_that_supports), cmocka_unit_test(test_none),
        cmocka_unit_test(test_own_choice),
        cmocka_unit_test(test_by_name), cmocka_unit_test(test_state_is_freed),
        cmocka_unit_test(test_workspace), cmocka_unit_test(test_unwanted_gradient),
        cmocka_unit_test(test_lacks), cmocka_unit_test(test_reference), cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
