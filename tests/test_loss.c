/* test_loss: softmax cross entropy and ranks on known numbers (torch 2.11), bad labels included. */
#include "known.h"

static struct op_case *loss_open(const char *op, const char *settings, int32_t first, int32_t second)
{
    struct op_example example = {settings, 2, {SHAPE(2, 1, 1, 4), SHAPE(2, 1, 1, 1)}};
    struct op_case *c = known_open(op, example, true);
    SET(&c->x[0], 1, 2, 3, -1, 0.5, -0.5, 0, 4);
    SET(&c->x[1], first, second);
    return c;
}

/* op_case's calls have loss weight 0.5 and a scale of our choice. */
static void run_loss(struct op_case *c, const struct op_code *code)
{
    c->loss_scale = 2;
    known_run(c, code, PHASE_FORWARD);
    known_run(c, code, PHASE_BACKWARD);
}

static void test_labels(void **state)
{
    struct op_case *c = loss_open("softmax_cross_entropy", "", 2, 0);
    EACH_CODE(code, c) {
        run_loss(c, code);
        EXPECT(&c->y, 0.419716656, 3.55791235);
        EXPECT(&c->d_x[0], 0.0444734097, 0.120891266, -0.1713835, 0.00601882022, -0.485750884, 0.00524196122,
               0.00864253286, 0.471866369);
    }
    op_case_close(c);
}

static void test_label_smoothing(void **state)
{
    struct op_case *c = loss_open("softmax_cross_entropy", "label_smoothing=0.1", 2, 0);
    EACH_CODE(code, c) {
        run_loss(c, code);
        EXPECT(&c->y, 0.594716668, 3.50791216);
        EXPECT(&c->d_x[0], 0.0319734067, 0.108391255, -0.133883491, -0.00648118043, -0.44825086,
               -0.00725803943, -0.00385746825, 0.459366322);
    }
    op_case_close(c);
}

static void use_soft_targets(struct op_case *c)
{
    free(c->x[1].data);
    c->x[1] = (struct tensor){memory_new(10, sizeof(float)), F32, shape_nhwc(2, 1, 1, 5)};
    SET(&c->x[1], 0.1, 0.2, 0.3, 0.4, 3, 0, 0.5, 0, 0.5, 1);
}

static void test_soft_targets(void **state)
{
    struct op_case *c = loss_open("softmax_cross_entropy", "label_smoothing=0.1", 0, 0);
    use_soft_targets(c);
    EACH_CODE(code, c) {
        run_loss(c, code);
        EXPECT(&c->y, 2.39471674, 2.38291216);
        EXPECT(&c->d_x[0], -0.0130265877, 0.0183912665, 0.181116492, -0.186481178, 0.0017491281,
               -0.232258037, -0.00385746732, 0.234366372);
    }
    op_case_close(c);
}

static void test_large_logits_do_not_overflow(void **state)
{
    struct op_case *c = loss_open("softmax_cross_entropy", "", 0, 1);
    SET(&c->x[0], 1e30, -1e30, 0, 0, 3000, 3001, 2000, -3000);
    EACH_CODE(code, c) {
        run_loss(c, code);
        EXPECT(&c->y, 0, 0.313261688);
        for (int i = 0; i < 8; i++) assert_true(isfinite(tensor_get(&c->d_x[0], i)));
    }
    op_case_close(c);
}

static void test_bad_labels_give_nan_for_their_image_only(void **state)
{
    const int32_t bad[] = {-1, 4, INT32_MIN, INT32_MAX};
    for (int i = 0; i < COUNT(bad); i++) {
        struct op_case *c = loss_open("softmax_cross_entropy", "", bad[i], 0);
        EACH_CODE(code, c) {
            run_loss(c, code);
            EXPECT(&c->y, NAN, 3.55791235);
        }
        op_case_close(c);
    }
}

static void expect_ranks(const char *why, const double *logits, int32_t label, int32_t rank)
{
    struct op_case *c = loss_open("topk", "", label, label);
    for (int i = 0; i < 8; i++) tensor_set(&c->x[0], i, logits[i % 4]);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        int32_t found = ((int32_t *)c->y.data)[1];
        if (found != rank) fail_msg("%s: %d, not %d", why, found, rank);
    }
    op_case_close(c);
}

static void test_ranks(void **state)
{
    expect_ranks("best", (double[]){1, 5, 2, 3}, 1, 0);
    expect_ranks("last", (double[]){1, 5, 2, 3}, 0, 3);
    expect_ranks("tie, lower index", (double[]){5, 5, 2, 3}, 0, 0);
    expect_ranks("tie, higher index", (double[]){5, 5, 2, 3}, 1, 1);
    expect_ranks("NaN is last", (double[]){NAN, 5, 2, 3}, 0, 3);
    expect_ranks("NaN beats nobody", (double[]){NAN, 5, 2, 3}, 2, 2);
    expect_ranks("NaNs by index", (double[]){NAN, NAN, NAN, NAN}, 2, 2);
    expect_ranks("label below range", (double[]){1, 5, 2, 3}, -1, 4);
    expect_ranks("label above range", (double[]){1, 5, 2, 3}, 4, 4);
}

static void test_ranks_of_soft_targets(void **state)
{
    struct op_case *c = loss_open("topk", "", 0, 0);
    use_soft_targets(c);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 3, 3);
    }
    const double none[] = {-1, 4, NAN};
    for (int i = 0; i < COUNT(none); i++) {
        tensor_set(&c->x[1], 4, none[i]);
        EACH_CODE(code, c) {
            known_run(c, code, PHASE_FORWARD);
            EXPECT(&c->y, 4, 3);
        }
    }
    op_case_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_label_smoothing),
        cmocka_unit_test(test_soft_targets),
        cmocka_unit_test(test_large_logits_do_not_overflow),
        cmocka_unit_test(test_bad_labels_give_nan_for_their_image_only),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_ranks_of_soft_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
