/* test_product: convolution and linear really run in the library, and in the reference where it cannot. */
#include <stdlib.h>
#include <string.h>

#include "kernels/conv/conv.h"
#include "kernels/support/product.h"
#include "tests/support/op_case.h"
#include "tests/support/unit.h"

static const enum phase phases[] = {PHASE_FORWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};

static struct op_case *open_case(const char *op, const struct op_example *example, enum dtype dtype)
{
    struct reason reason = {0};
    struct op_case *c = op_case_open(op_find(op), example, dtype, true, 3, &reason);
    if (!c) fail_msg("%s", reason.text);
    return c;
}

static void assert_in_library(const char *op, enum dtype dtype)
{
    for (const struct op_example *example = op_find(op)->examples; example->settings; example++) {
        struct op_case *c = open_case(op, example, dtype);
        void *kernel_plan;
        op_case_prepare(c->op->cpu, &kernel_plan);
        for (int i = 0; i < 3; i++) {
            struct op_case_storage storage;
            struct call call = op_case_call(c, phases[i], &storage);
            assert_int_equal(op_case_plan(c->op->cpu, kernel_plan, &call), OK);
            if (strcmp(call.kernel_plan->name, "reference") == 0)
                fail_msg("%s %s runs as reference in phase %d", op, example->settings, i);
        }
        op_case_release(kernel_plan);
        op_case_close(c);
    }
}

static void test_conv_in_library(void **state)
{
    assert_in_library("conv", F32);
    assert_in_library("conv", BF16);
    assert_in_library("conv", F16);
}

static void test_linear_in_library(void **state)
{
    assert_in_library("linear", F32);
    assert_in_library("linear", BF16);
    assert_in_library("linear", F16);
}

static const struct op_example small = {"filters=4 kernel=3 pad=1", 1, {{.rank = 4, .dim = {1, 4, 4, 3}}}};

static void test_f64_runs_as_reference(void **state)
{
    struct op_case *a = open_case("conv", &small, F64), *b = open_case("conv", &small, F64);
    void *kernel_plan;
    op_case_prepare(b->op->cpu, &kernel_plan);
    for (int i = 0; i < 3; i++) {
        struct op_case_storage storage;
        struct call call = op_case_call(a, phases[i], &storage);
        assert_int_equal(op_case_run(a->op->reference, NULL, &call), OK);
        call = op_case_call(b, phases[i], &storage);
        assert_int_equal(op_case_run(b->op->cpu, kernel_plan, &call), OK);
        assert_string_equal(call.kernel_plan->name, "reference");
    }
    assert_memory_equal(a->y.data, b->y.data, tensor_bytes(&a->y));
    assert_memory_equal(a->d_x[0].data, b->d_x[0].data, tensor_bytes(&a->d_x[0]));
    assert_memory_equal(a->d_params[0].data, b->d_params[0].data, tensor_bytes(&a->d_params[0]));
    assert_memory_equal(a->d_params[1].data, b->d_params[1].data, tensor_bytes(&a->d_params[1]));
    op_case_release(kernel_plan);
    op_case_close(a);
    op_case_close(b);
}

/* Only arithmetic happens before the first run: sizes are known without any memory. */
static void test_workspace_before_memory(void **state)
{
    const struct op_example large = {"filters=512 kernel=3 pad=1", 1, {{.rank = 4, .dim = {1, 7, 7, 512}}}};
    struct op_case *c = open_case("conv", &large, F16);
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_FORWARD, &storage);
    call.x[0].data = call.params[0].data = call.params[1].data = call.y.data = NULL;
    struct kernel_plan *plan;
    assert_int_equal(kernel_plan_make(c->op->cpu, &call, &plan), OK);
    size_t widened = 4 * (size_t)(shape_count(c->x[0].shape) + shape_count(c->params[0].shape));
    assert_true(plan->workspace >= widened);
    kernel_plan_free(plan);
    op_case_close(c);
}

/* Two kernel plans for one shape: what one run computes, any run computes. */
static void assert_plans_agree(const char *op, struct op_example example)
{
    struct op_case *a = open_case(op, &example, F32), *b = open_case(op, &example, F32);
    struct op_case *cases[] = {a, b};
    for (int k = 0; k < 2; k++) {
        void *kernel_plan;
        op_case_prepare(cases[k]->op->cpu, &kernel_plan);
        for (int i = 0; i < 3; i++) {
            struct op_case_storage storage;
            struct call call = op_case_call(cases[k], phases[i], &storage);
            assert_int_equal(op_case_run(cases[k]->op->cpu, kernel_plan, &call), OK);
        }
        op_case_release(kernel_plan);
    }
    assert_memory_equal(a->y.data, b->y.data, tensor_bytes(&a->y));
    assert_memory_equal(a->d_x[0].data, b->d_x[0].data, tensor_bytes(&a->d_x[0]));
    for (int i = 0; i < 2; i++)
        assert_memory_equal(a->d_params[i].data, b->d_params[i].data, tensor_bytes(&a->d_params[i]));
    op_case_close(a);
    op_case_close(b);
}

static void test_kernel_plans_agree(void **state)
{
    const struct op_example conv = {"filters=64 kernel=3 pad=1", 1, {shape_nhwc(8, 14, 14, 32)}};
    const struct op_example linear = {"units=768 per_pixel=yes", 1, {shape_nhwc(8, 49, 1, 384)}};
    assert_plans_agree("conv", conv);
    assert_plans_agree("linear", linear);
}

static void run_case(struct op_case *c, void *kernel_plan, bool keep)
{
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_FORWARD, &storage);
    assert_int_equal(op_case_plan(c->op->cpu, kernel_plan, &call), OK);
    if (keep) conv_cpu_keep_weights((struct kernel_plan *)call.kernel_plan);
    assert_int_equal(op_case_run(c->op->cpu, kernel_plan, &call), OK);
}

/* Two layers share a kernel plan that keeps what it derives of weights: of each its own. Those that change all the
 * same are not seen where anything is derived, which shows that it is kept. */
static void assert_weights_kept(const char *op, struct op_example example, enum dtype dtype, bool derives)
{
    struct op_case *cases[] = {open_case(op, &example, dtype), open_case(op, &example, dtype)};
    size_t bytes = tensor_bytes(&cases[0]->y), weights = tensor_bytes(&cases[0]->params[0]);
    char *wanted[2];
    void *kernel_plan;
    memset(cases[1]->params[0].data, 0, weights / 2);
    op_case_prepare(cases[0]->op->cpu, &kernel_plan);
    for (int i = 0; i < 2; i++) {
        run_case(cases[i], kernel_plan, false);
        wanted[i] = memcpy(test_malloc(bytes), cases[i]->y.data, bytes);
    }
    assert_memory_not_equal(wanted[0], wanted[1], bytes);
    for (int run = 0; run < 6; run++) {
        struct op_case *c = cases[run % 2];
        memset(c->y.data, 0xff, bytes);
        run_case(c, kernel_plan, true);
        if (run < 4 || derives) assert_memory_equal(c->y.data, wanted[run % 2], bytes);
        if (run >= 2) memset(c->params[0].data, 0, weights);
    }
    op_case_release(kernel_plan);
    for (int i = 0; i < 2; i++) {
        test_free(wanted[i]);
        op_case_close(cases[i]);
    }
}

static void test_weights_are_kept(void **state)
{
    const struct op_example conv = {"filters=96 kernel=3 pad=1", 1, {shape_nhwc(1, 14, 14, 96)}};
    const struct op_example strided = {"filters=64 kernel=3 stride=2 pad=1", 1, {shape_nhwc(1, 14, 14, 32)}};
    const struct op_example linear = {"units=96", 1, {shape_nhwc(1, 1, 1, 384)}};
    assert_weights_kept("conv", conv, F32, true);
    assert_weights_kept("conv", strided, F32, true);
    assert_weights_kept("conv", strided, F16, false);
    assert_weights_kept("linear", linear, F32, false);
    assert_weights_kept("linear", linear, BF16, false);
}

static void test_version(void **state)
{
    char text[ONEDNN_VERSION_TEXT];
    assert_ptr_equal(strstr(onednn_version(text), "oneDNN "), text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv_in_library),       cmocka_unit_test(test_linear_in_library),
        cmocka_unit_test(test_f64_runs_as_reference), cmocka_unit_test(test_workspace_before_memory),
        cmocka_unit_test(test_kernel_plans_agree),    cmocka_unit_test(test_weights_are_kept),
        cmocka_unit_test(test_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
