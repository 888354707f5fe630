/* test_loss: losses and ranks on known numbers (torch 2.11 and 2.12), bad labels included. */
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

/* A loss of each output, whose mean is taken; numbers are of torch.nn.functional with reduction="none". */
static void expect_pointwise(const char *settings, bool soft, const double *y, const double *d_x)
{
    struct op_case *c = loss_open("pointwise_loss", settings, 2, 0);
    if (soft) use_soft_targets(c);
    EACH_CODE(code, c) {
        run_loss(c, code);
        known_expect(&c->y, y, 2);
        known_expect(&c->d_x[0], d_x, 8);
    }
    op_case_close(c);
}

static void test_binary_cross_entropy(void **state)
{
    expect_pointwise("", false, (double[]){0.950509727, 1.41486275},
                     (double[]){0.0913823247, 0.110099629, -0.00592823327, 0.033617679, -0.047192581,
                                0.0471925847, 0.0625, 0.12275172});
    expect_pointwise("label_smoothing=0.1", false, (double[]){0.994259715, 1.40236282},
                     (double[]){0.0882573277, 0.106974632, 0.00344677269, 0.0304926783, -0.037817575,
                                0.044067584, 0.0593749993, 0.119626723});
    expect_pointwise("", true, (double[]){1.45050955, 1.10236275},
                     (double[]){0.0788823217, 0.0850996301, 0.0815717652, -0.0163823217, 0.077807419,
                                -0.0153074153, 0.0625, 0.0602517202});
}

/* BCEWithLogitsLoss(pos_weight=[1, 2, 0.5, 4]) */
static void test_positive_weights(void **state)
{
    struct op_case *c = loss_open("pointwise_loss", "", 0, 0);
    free(c->x[1].data);
    c->x[1] = (struct tensor){memory_new(18, sizeof(float)), F32, shape_nhwc(2, 1, 1, 9)};
    SET(&c->x[1], 0.1, 0.2, 0.3, 0.4, 3, 1, 2, 0.5, 4, 0, 0.5, 0, 0.5, 1, 1, 2, 0.5, 4);
    EACH_CODE(code, c) {
        run_loss(c, code);
        EXPECT(&c->y, 1.84901261, 1.23092866);
        EXPECT(&c->d_x[0], 0.0788823217, 0.0821195543, 0.0824609995, -0.126041114, 0.077807419, -0.0542111248,
               0.0625, 0.0568793118);
    }
    op_case_close(c);
}

static void test_losses_of_numbers(void **state)
{
    expect_pointwise("kind=mse", true, (double[]){3.32500005, 3.375},
                     (double[]){0.224999994, 0.449999988, 0.675000012, -0.349999994, 0.125, -0.25, 0, 0.875});
    expect_pointwise("kind=l1", true, (double[]){1.69999993, 1.25},
                     (double[]){0.125, 0.125, 0.125, -0.125, 0.125, -0.125, 0, 0.125});
    expect_pointwise("kind=huber delta=0.75", true, (double[]){0.993749976, 0.734375},
                     (double[]){0.09375, 0.09375, 0.09375, -0.09375, 0.0625, -0.09375, 0, 0.09375});
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
    c = loss_open("pointwise_loss", "", 0, 1);
    SET(&c->x[0], 1e30, -1e30, 0, 0, 3000, 3001, 2000, -3000);
    EACH_CODE(code, c) {
        run_loss(c, code);
        EXPECT(&c->y, 0.346573591, 1250);
        EXPECT(&c->d_x[0], 0, 0, 0.0625, 0.0625, 0.125, 0, 0.125, 0);
    }
    op_case_close(c);
}

static void expect_bad_label(const char *op, int32_t label, double other)
{
    struct op_case *c = loss_open(op, "", label, 0);
    EACH_CODE(code, c) {
        run_loss(c, code);
        EXPECT(&c->y, NAN, other);
        for (int i = 0; i < 4; i++) assert_true(isnan(tensor_get(&c->d_x[0], i)));
    }
    op_case_close(c);
}

static void test_bad_labels_give_nan_for_their_image_only(void **state)
{
    const int32_t bad[] = {-1, 4, INT32_MIN, INT32_MAX};
    for (int i = 0; i < COUNT(bad); i++) {
        expect_bad_label("softmax_cross_entropy", bad[i], 3.55791235);
        expect_bad_label("pointwise_loss", bad[i], 1.41486275);
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
        cmocka_unit_test(test_binary_cross_entropy),
        cmocka_unit_test(test_positive_weights),
        cmocka_unit_test(test_losses_of_numbers),
        cmocka_unit_test(test_large_logits_do_not_overflow),
        cmocka_unit_test(test_bad_labels_give_nan_for_their_image_only),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_ranks_of_soft_targets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
