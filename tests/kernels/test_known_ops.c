/* test_known_ops: ops on numbers whose results are known (torch 2.11), corners included. */
#include "known.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static void test_relus_pass_nan(void **state)
{
    const char *const names[] = {"relu", "relu6", "leaky_relu"};
    for (int i = 0; i < COUNT(names); i++) {
        struct op_case *c = known_open(names[i], (struct op_example){"", 1, {SHAPE(1, 1, 1, 4)}}, true);
        SET(&c->x[0], NAN, 7, 0, -1);
        EACH_CODE(code, c) {
            known_run(c, code, PHASE_FORWARD);
            EXPECT(&c->y, NAN, i == 1 ? 6 : 7, 0, i == 2 ? -0.01 : 0);
        }
        op_case_close(c);
    }
}

static void test_relu6_gradient_is_zero_at_corners(void **state)
{
    struct op_case *c = known_open("relu6", (struct op_example){"", 1, {SHAPE(1, 1, 1, 4)}}, true);
    SET(&c->x[0], 0, 6, 3, 9);
    SET(&c->d_y, 1, 1, 1, 1);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->d_x[0], 0, 0, 1, 0);
    }
    op_case_close(c);
}

static void test_smooth_activations(void **state)
{
    static const struct {
        const char *name, *settings;
        double y[3];
    } rows[] = {
        {"gelu", "", {-0.0455002785, -0.154268771, 0.841344714}},
        {"gelu", "approximate=tanh", {-0.0454022884, -0.154285997, 0.841192007}},
        {"silu", "", {-0.238405839, -0.188770339, 0.731058598}},
        {"sigmoid", "", {0.119202919, 0.377540678, 0.731058598}},
        {"hardsigmoid", "", {0.166666672, 0.416666657, 0.666666687}},
        {"hardswish", "", {-0.333333343, -0.208333328, 0.666666687}},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        struct op_case *c =
            known_open(rows[i].name, (struct op_example){rows[i].settings, 1, {SHAPE(1, 1, 1, 3)}}, true);
        SET(&c->x[0], -2, -0.5, 1);
        EACH_CODE(code, c) {
            known_run(c, code, PHASE_FORWARD);
            known_expect(&c->y, rows[i].y, 3);
        }
        op_case_close(c);
    }
}

static void test_hard_activations_at_corners(void **state)
{
    struct op_case *c = known_open("hardsigmoid", (struct op_example){"", 1, {SHAPE(1, 1, 1, 4)}}, true);
    SET(&c->x[0], -3, 3, -0.5, 4);
    SET(&c->d_y, 1, 1, 1, 1);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->y, 0, 1, 0.416666657, 1);
        EXPECT(&c->d_x[0], 0, 0, 0.166666672, 0);
    }
    op_case_close(c);
    c = known_open("hardswish", (struct op_example){"", 1, {SHAPE(1, 1, 1, 5)}}, true);
    SET(&c->x[0], -3, 3, -0.5, 4, NAN);
    SET(&c->d_y, 1, 1, 1, 1, 1);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->y, 0, 3, -0.208333328, 4, NAN);
        EXPECT(&c->d_x[0], 0, 1, 0.333333313, 1, NAN);
    }
    op_case_close(c);
}

static void test_layernorm(void **state)
{
    struct op_case *c = known_open("layernorm", (struct op_example){"eps=0.1", 1, {SHAPE(1, 1, 2, 3)}}, true);
    SET(&c->x[0], 1, 2, 4, 0, -1, 3);
    SET(&c->params[0], 1, 2, 0.5);
    SET(&c->params[1], 0, 1, -1);
    SET(&c->d_y, 1, -1, 2, 0.5, 3, 1);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->y, -1.03625536, 0.48187238, -0.352340341, -0.385614932, -0.928074718, -0.325173795);
        EXPECT(&c->d_x[0], 0.985833585, -1.50222266, 0.516389072, -1.45465708, 1.13534224, 0.319315076);
        EXPECT(&c->d_params[0], -1.2290628, -2.63304806, 3.94029093);
        EXPECT(&c->d_params[1], 1.5, 2, 3);
    }
    op_case_close(c);
}

/* Two images of two pixels and two channels. */
/* torchvision's shifted_window_attention of a 3x3 map, padded to 4x4, where q = k = v = x. */
static void test_attention_in_shifted_windows(void **state)
{
    struct op_example example = {"heads=1 window=2 shift=1", 2, {SHAPE(1, 4, 4, 3), SHAPE(1, 3, 3, 1)}};
    struct op_case *c = known_open("attention", example, true);
    for (int64_t i = 0; i < 48; i++) {
        int64_t h = i / 12, w = i / 3 % 4;
        tensor_set(&c->x[0], i, h < 3 && w < 3 ? (double)(h * 3 + w - 4) / 2 : 0);
    }
    SET(&c->params[0], 0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, -2, -1.352892514, -1.325677432, -0.1323724803, 0.8453954134, 1.154604587, 0.6323724803,
               1.626231072, 1.751572477);
    }
    op_case_close(c);
}

static void test_attention_passes_nan(void **state)
{
    struct op_case *c = known_open("attention", (struct op_example){"heads=1", 1, {SHAPE(1, 2, 1, 3)}}, true);
    for (int k = 0; k < 3; k++) {
        SET(&c->x[0], 1, 1, 1, 1, 1, 1);
        tensor_set(&c->x[0], k, NAN);
        EACH_CODE(code, c) {
            known_run(c, code, PHASE_FORWARD);
            EXPECT(&c->y, NAN, k == 0 ? 1 : NAN);
        }
    }
    op_case_close(c);
}

static void test_multiply_by_channel(void **state)
{
    struct op_example example = {"", 2, {SHAPE(2, 1, 2, 2), SHAPE(2, 1, 1, 2)}};
    struct op_case *c = known_open("multiply", example, true);
    SET(&c->x[0], 1, 2, 3, 4, 5, 6, 7, 8);
    SET(&c->x[1], 1, 10, 100, 1000);
    SET(&c->d_y, 1, 1, 1, 2, 1, 1, 0, 1);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->y, 1, 20, 3, 40, 500, 6000, 700, 8000);
        EXPECT(&c->d_x[0], 1, 10, 1, 20, 100, 1000, 0, 1000);
        EXPECT(&c->d_x[1], 4, 10, 5, 14);
    }
    op_case_close(c);
}

static void test_channels_are_sliced_and_shuffled(void **state)
{
    struct op_case *c =
        known_open("slice", (struct op_example){"first=1 channels=2", 1, {SHAPE(1, 1, 2, 4)}}, true);
    SET(&c->x[0], 1, 2, 3, 4, 5, 6, 7, 8);
    SET(&c->d_y, 1, 2, 3, 4);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->y, 2, 3, 6, 7);
        EXPECT(&c->d_x[0], 0, 1, 2, 0, 0, 3, 4, 0);
    }
    op_case_close(c);
    c = known_open("channel_shuffle", (struct op_example){"groups=2", 1, {SHAPE(1, 1, 1, 6)}}, true);
    SET(&c->x[0], 0, 1, 2, 3, 4, 5);
    SET(&c->d_y, 0, 3, 1, 4, 2, 5);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->y, 0, 3, 1, 4, 2, 5);
        EXPECT(&c->d_x[0], 0, 1, 2, 3, 4, 5);
    }
    op_case_close(c);
}

/* Two images of a map of 2x2, whose pixels are tokens. */
static void test_tokens_are_sliced(void **state)
{
    struct op_example example = {"first=1 count=2", 1, {SHAPE(2, 2, 2, 2)}};
    struct op_case *c = known_open("token_slice", example, true);
    SET(&c->x[0], 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
    SET(&c->d_y, 1, 2, 3, 4, 5, 6, 7, 8);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->y, 3, 4, 5, 6, 11, 12, 13, 14);
        EXPECT(&c->d_x[0], 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0);
    }
    op_case_close(c);
}

/* The labels' half: ln 2, ln 4; the teacher's, of classes 1 and 0: ln 4, ln 2. */
static void test_distillation_of_two_heads(void **state)
{
    struct op_example example = {"kind=hard", 4, {SHAPE(2, 1, 1, 2), SHAPE(2, 1, 1, 1), SHAPE(2, 1, 1, 2),
                                                  SHAPE(2, 1, 1, 2)}};
    struct op_case *c = known_open("distill", example, true);
    SET(&c->x[0], 5, 5, 0, 1.098612289);
    SET(&c->x[1], 0, 0);
    SET(&c->x[2], -1, 2, 7, 7);
    SET(&c->x[3], 1.098612289, 0, 0, 0);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 1.039720771, 1.039720771);
    }
    op_case_close(c);
}

static void test_mean(void **state)
{
    struct op_example example = {"", 2, {SHAPE(2, 1, 1, 2), SHAPE(2, 1, 1, 2)}};
    struct op_case *c = known_open("mean", example, true);
    SET(&c->x[0], 1, 2, 3, NAN);
    SET(&c->x[1], 5, -2, 8, 1);
    SET(&c->d_y, 1, 2, 3, 4);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->y, 3, 0, 5.5, NAN);
        EXPECT(&c->d_x[0], 0.5, 1, 1.5, 2);
        EXPECT(&c->d_x[1], 0.5, 1, 1.5, 2);
    }
    op_case_close(c);
}

/* Two channels of a batch of three. */
static struct op_case *batchnorm_open(bool training)
{
    struct op_case *c = known_open("batchnorm", (struct op_example){"", 1, {SHAPE(3, 1, 1, 2)}}, training);
    SET(&c->x[0], 1, 2, 4, 8, 3, -1);
    SET(&c->params[0], 2, -1);
    SET(&c->params[1], 0.5, 0.25);
    SET(&c->params[2], 0, 0);
    SET(&c->params[3], 1, 1);
    SET(&c->params[4], 0);
    return c;
}

static void test_batchnorm_training(void **state)
{
    for (int i = 0; i < KNOWN_CODES; i++) {
        const struct op_code *code = known_code(op_find("batchnorm"), i);
        if (!code) continue;
        struct op_case *c = batchnorm_open(true);
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, -2.17260408, 0.517261147, 2.63808274, -1.08630574, 1.03452051, 1.31904459);
        EXPECT(&c->params[2], 0, 0);
        known_run(c, code, PHASE_UPDATE);
        EXPECT(&c->params[2], 0.266666681, 0.300000012);
        EXPECT(&c->params[3], 1.13333333, 3);
        EXPECT(&c->params[4], 1);
        op_case_close(c);
    }
}

static void test_batchnorm_evaluation(void **state)
{
    struct op_case *c = batchnorm_open(false);
    SET(&c->params[2], 0.266666681, 0.300000012);
    SET(&c->params[3], 1.13333333, 3);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 1.87768722, -0.731493831, 7.51368093, -4.19558954, 5.63501644, 1.00055408);
    }
    op_case_close(c);
}

/* Values far from zero and close together: a sum of squares would lose them. */
static void test_batchnorm_variance_far_from_zero(void **state)
{
    struct op_case *c = known_open("batchnorm", (struct op_example){"", 1, {SHAPE(8, 32, 32, 3)}}, true);
    int64_t count = shape_count(c->x[0].shape);
    for (int64_t i = 0; i < count; i++) tensor_set(&c->x[0], i, 10000 + (i / 3 % 2 ? 0.25 : -0.25));
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->saved[0], 10000, 10000, 10000);
        for (int k = 0; k < 3; k++) assert_float_equal(tensor_get(&c->saved[2], k), 0.0625, 1e-5);
    }
    op_case_close(c);
}

static void test_batchnorm_one_value_a_channel(void **state)
{
    struct op_case *c = known_open("batchnorm", (struct op_example){"", 1, {SHAPE(1, 1, 1, 2)}}, true);
    SET(&c->params[1], 3, 4);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 3, 4);
        EXPECT(&c->saved[2], 0, 0);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->d_x[0], 0, 0);
    }
    op_case_close(c);
}

static void test_batchnorm_hands_nan_on(void **state)
{
    struct op_case *c = known_open("batchnorm", (struct op_example){"", 1, {SHAPE(3, 1, 1, 1)}}, true);
    SET(&c->x[0], 1, NAN, 2);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, NAN, NAN, NAN);
    }
    op_case_close(c);
}

/* Chunks are cut by the shape alone. */
static void test_batchnorm_same_bits_on_any_number_of_threads(void **state)
{
#ifdef _OPENMP
    int most = omp_get_max_threads();
    struct op_case *c[2];
    for (int i = 0; i < 2; i++) {
        c[i] = known_open("batchnorm", (struct op_example){"activation=relu", 1, {SHAPE(7, 31, 31, 24)}},
                          true);
        omp_set_num_threads(i ? 3 : 1);
        known_run(c[i], op_cpu(c[i]->op), PHASE_FORWARD);
        known_run(c[i], op_cpu(c[i]->op), PHASE_BACKWARD);
    }
    omp_set_num_threads(most);
    assert_memory_equal(c[0]->y.data, c[1]->y.data, tensor_bytes(&c[0]->y));
    assert_memory_equal(c[0]->d_x[0].data, c[1]->d_x[0].data, tensor_bytes(&c[0]->d_x[0]));
    for (int k = 0; k < 2; k++)
        assert_memory_equal(c[0]->d_params[k].data, c[1]->d_params[k].data, tensor_bytes(&c[0]->d_params[k]));
    op_case_close(c[0]);
    op_case_close(c[1]);
#endif
}

/* The numbers 1 to 20 in four rows of five. */
static struct op_case *pool_open(const char *op, const char *settings)
{
    struct op_case *c = known_open(op, (struct op_example){settings, 1, {SHAPE(1, 4, 5, 1)}}, true);
    for (int i = 0; i < 20; i++) tensor_set(&c->x[0], i, i + 1);
    return c;
}

static void test_pooling_windows(void **state)
{
    static const struct {
        const char *op, *settings;
        int count;
        double y[9];
    } rows[] = {
        {"avgpool", "kernel=3 stride=2 pad=1 ceil_mode=yes", 9,
         {1.77777779, 3.66666675, 3.11111116, 7.66666651, 13, 9.66666698, 5.5, 9, 6.5}},
        {"avgpool", "kernel=3 stride=2 pad=1 ceil_mode=yes count_include_pad=no", 9,
         {4, 5.5, 7, 11.5, 13, 14.5, 16.5, 18, 19.5}},
        {"maxpool", "kernel=2 stride=2 ceil_mode=yes", 6, {7, 9, 10, 17, 19, 20}},
        {"adaptive_avgpool", "size=3", 9, {4, 5.5, 7, 9, 10.5, 12, 14, 15.5, 17}},
        {"adaptive_maxpool", "size=2", 4, {8, 10, 18, 20}},
        {"globalavgpool", "", 1, {10.5}},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        struct op_case *c = pool_open(rows[i].op, rows[i].settings);
        EACH_CODE(code, c) {
            known_run(c, code, PHASE_FORWARD);
            known_expect(&c->y, rows[i].y, rows[i].count);
        }
        op_case_close(c);
    }
}

static void test_maxpool_takes_first_of_equals_and_nan(void **state)
{
    struct op_case *c = known_open("maxpool", (struct op_example){"kernel=2", 1, {SHAPE(2, 2, 2, 1)}}, true);
    SET(&c->x[0], 3, 5, 5, 1, 1, NAN, 5, 2);
    SET(&c->d_y, 1, 2);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 5, NAN);
        known_run(c, code, PHASE_BACKWARD);
        EXPECT(&c->d_x[0], 0, 1, 0, 0, 0, 2, 0, 0);
    }
    op_case_close(c);
}

static void test_pooling_refuses_windows_that_do_not_fit(void **state)
{
    struct reason reason;
    struct op_example large = {"kernel=5", 1, {SHAPE(1, 4, 4, 1)}};
    struct op_example border = {"kernel=2 pad=2", 1, {SHAPE(1, 4, 4, 1)}};
    assert_null(op_case_open(op_find("maxpool"), &large, F32, true, 1, &reason));
    assert_null(op_case_open(op_find("avgpool"), &border, F32, true, 1, &reason));
}

/* x and the weight count up from -3 and, modulo 5, from -2; the bias from 1; d_y, modulo 7, from -3. */
static void test_conv_transpose(void **state)
{
    static const struct {
        struct op_example example;
        double y[32], d_x[8], d_weight[18], d_bias[2];
    } rows[] = {
        {{"filters=2 kernel=2 stride=2", 1, {SHAPE(1, 1, 2, 2)}},
         {5, -4, 0, 6, 3, 0, 2, 4, 5, 1, 0, 6, 1, 3, 0, 2},
         {4, -5, -1, 13},
         {8, 0, 4, 3, 4, 3, 0, -1, 6, 2, 4, 0, 4, 0, 2, -2},
         {-3, -2}},
        {{"filters=2 kernel=3 stride=2 pad=1 output_pad=1 groups=2 bias=no", 1, {SHAPE(1, 2, 2, 2)}},
         {-6, -2, 5, -4, -2, 0, 2, 0, -1, -2, -8, 6, -3, -8, -1, -4,
          2, 2, 1, 4, 6, 4, -6, 8, 0, -2, -2, -8, 0, -4, 3, 0},
         {-4, -1, -8, -9, 0, 4, 6, -11},
         {0, 4, -9, 4, 16, -5, 6, -5, 2, 4, 10, -6, 8, -8, 0, 12, -4, 4},
         {0}},
        {{"filters=1 kernel=2 pad=1 dilation=3", 1, {SHAPE(1, 2, 2, 1)}},
         {1, 1, 2, 1, 1, 1, 1, 1, -2}, {-2, 0, 1, 6}, {0, 1, -6, 6}, {-5}},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        struct op_case *c = known_open("conv_transpose", rows[i].example, true);
        for (int64_t k = 0; k < shape_count(c->x[0].shape); k++) tensor_set(&c->x[0], k, (double)k - 3);
        for (int64_t k = 0; k < shape_count(c->params[0].shape); k++)
            tensor_set(&c->params[0], k, (double)(k % 5) - 2);
        for (int64_t k = 0; k < shape_count(c->y.shape); k++) tensor_set(&c->d_y, k, (double)(k % 7) - 3);
        for (int k = 0; c->param_count > 1 && k < shape_count(c->params[1].shape); k++)
            tensor_set(&c->params[1], k, k + 1);
        EACH_CODE(code, c) {
            known_run(c, code, PHASE_FORWARD);
            known_run(c, code, PHASE_BACKWARD_DATA);
            known_run(c, code, PHASE_BACKWARD_PARAMS);
            known_expect(&c->y, rows[i].y, (int)shape_count(c->y.shape));
            known_expect(&c->d_x[0], rows[i].d_x, (int)shape_count(c->x[0].shape));
            known_expect(&c->d_params[0], rows[i].d_weight, (int)shape_count(c->params[0].shape));
            if (c->param_count > 1) known_expect(&c->d_params[1], rows[i].d_bias, (int)c->y.shape.c);
        }
        op_case_close(c);
    }
}

static void test_conv_transpose_is_initialised_as_torch(void **state)
{
    struct op_example example = {"filters=12 kernel=3 groups=2", 1, {SHAPE(1, 2, 2, 8)}};
    struct op_case *c = known_open("conv_transpose", example, true);
    struct op_param params[OP_MAX_PARAMS];
    assert_int_equal(c->op->params(c->settings, 1, &c->x[0].shape, params), 2);
    assert_int_equal(params[0].shape.dim[0], 8);
    assert_int_equal(params[0].shape.dim[1], 6);
    assert_int_equal(params[1].shape.dim[0], 12);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(params[i].init, INIT_UNIFORM_FAN_IN);
        assert_int_equal(params[i].fan_in, 6 * 9);
    }
    op_case_close(c);
}

/* Rows of two pixels that become four, or five; of four that become two. */
static void test_upsample_positions(void **state)
{
    static const struct {
        const char *settings;
        int in, out;
        double y[8];
    } rows[] = {
        {"size=1x4", 2, 4, {0, 0, 8, 8}},
        {"size=1x5", 2, 5, {0, 0, 0, 8, 8}},
        {"size=1x2", 4, 2, {0, 0}},
        {"size=1x4 mode=bilinear", 2, 4, {0, 2, 6, 8}},
        {"size=1x5 mode=bilinear", 2, 5, {0, 0.8, 4, 7.2, 8}},
        {"size=1x5 mode=bilinear align_corners=yes", 2, 5, {0, 2, 4, 6, 8}},
        {"size=1x2 mode=bilinear", 4, 2, {4, 0}},
        {"size=1x2 mode=bilinear align_corners=yes", 4, 2, {0, 0}},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        struct op_example example = {rows[i].settings, 1, {SHAPE(1, 1, rows[i].in, 1)}};
        struct op_case *c = known_open("upsample", example, true);
        if (rows[i].in == 2) SET(&c->x[0], 0, 8);
        else SET(&c->x[0], 0, 8, 0, 0);
        EACH_CODE(code, c) {
            known_run(c, code, PHASE_FORWARD);
            known_expect(&c->y, rows[i].y, rows[i].out);
        }
        op_case_close(c);
    }
}

static void test_lrn_windows(void **state)
{
    static const struct {
        const char *settings;
        double y[4];
    } rows[] = {
        {"size=3 alpha=0.5 k=2", {0.457906455, -0.665906847, 0.709817648, 1.02216768}},
        {"size=2 alpha=0.5 k=2", {0.544331074, -0.826261401, 0.864971459, 0.821711838}},
    };
    for (int i = 0; i < COUNT(rows); i++) {
        struct op_case *c =
            known_open("lrn", (struct op_example){rows[i].settings, 1, {SHAPE(1, 1, 1, 4)}}, true);
        SET(&c->x[0], 1, -2, 3, 4);
        EACH_CODE(code, c) {
            known_run(c, code, PHASE_FORWARD);
            known_expect(&c->y, rows[i].y, 4);
        }
        op_case_close(c);
    }
}

static void test_flatten_is_in_torch_order(void **state)
{
    struct op_case *c = known_open("flatten", (struct op_example){"", 1, {SHAPE(1, 2, 1, 3)}}, true);
    SET(&c->x[0], 0, 10, 20, 1, 11, 21);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 0, 1, 10, 11, 20, 21);
    }
    op_case_close(c);
}

static void test_channel_pad_strides_and_pads_both_ends(void **state)
{
    struct op_case *c =
        known_open("channel_pad", (struct op_example){"channels=4", 1, {SHAPE(1, 1, 3, 2)}}, true);
    SET(&c->x[0], 1, 2, 3, 4, 5, 6);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 0, 1, 2, 0, 0, 5, 6, 0);
    }
    op_case_close(c);
}

static void test_pad_sides(void **state)
{
    struct op_case *c = known_open("pad", (struct op_example){"top=1 right=2", 1, {SHAPE(1, 1, 1, 1)}}, true);
    SET(&c->x[0], 9);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 0, 0, 0, 9, 0, 0);
    }
    op_case_close(c);
}

static void test_concat_is_by_pixel(void **state)
{
    struct op_case *c =
        known_open("concat", (struct op_example){"", 2, {SHAPE(1, 1, 2, 1), SHAPE(1, 1, 2, 2)}}, true);
    SET(&c->x[0], 1, 2);
    SET(&c->x[1], 3, 4, 5, 6);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        EXPECT(&c->y, 1, 3, 4, 2, 5, 6);
    }
    op_case_close(c);
}

static struct op_case *dropout_open(const char *settings, bool training, int64_t n)
{
    struct op_example example = {settings, 1, {SHAPE(n, 1, 1, 1001)}};
    struct op_case *c = known_open("dropout", example, training);
    for (int64_t i = 0; i < n * 1001; i++) {
        tensor_set(&c->x[0], i, 1);
        tensor_set(&c->d_y, i, 1);
    }
    return c;
}

static void test_dropout_rate_and_scale(void **state)
{
    struct op_case *c = dropout_open("rate=0.2", true, 10);
    EACH_CODE(code, c) {
        int64_t dropped = 0;
        known_run(c, code, PHASE_FORWARD);
        for (int64_t i = 0; i < 10010; i++) {
            double y = tensor_get(&c->y, i);
            if (y == 0) dropped++;
            else assert_float_equal(y, 1.25, 1e-6);
        }
        assert_in_range(dropped, 2002 - 160, 2002 + 160);
        known_run(c, code, PHASE_BACKWARD);
        assert_memory_equal(c->d_x[0].data, c->y.data, tensor_bytes(&c->y));
    }
    op_case_close(c);
}

static void test_dropout_is_identity_in_evaluation(void **state)
{
    struct op_case *c = dropout_open("", false, 1);
    EACH_CODE(code, c) {
        known_run(c, code, PHASE_FORWARD);
        assert_memory_equal(c->x[0].data, c->y.data, tensor_bytes(&c->y));
    }
    op_case_close(c);
}

/* The masks of a batch's micro-batches, one after the other, are the mask of the batch. */
static void test_dropout_micro_batches_make_up_the_batch(void **state)
{
    struct op_case *whole = dropout_open("", true, 2), *half = dropout_open("", true, 1);
    known_run(whole, op_cpu(whole->op), PHASE_FORWARD);
    for (uint32_t micro_batch = 0; micro_batch < 2; micro_batch++) {
        half->random.micro_batch = micro_batch;
        EACH_CODE(code, half) {
            known_run(half, code, PHASE_FORWARD);
            assert_memory_equal(half->y.data, (char *)whole->y.data + micro_batch * tensor_bytes(&half->y),
                                tensor_bytes(&half->y));
        }
    }
    op_case_close(whole);
    op_case_close(half);
}

static void test_dropout_differs_by_step_and_layer(void **state)
{
    struct op_case *a = dropout_open("", true, 1), *b = dropout_open("", true, 1);
    known_run(a, op_cpu(a->op), PHASE_FORWARD);
    b->random.step++;
    known_run(b, op_cpu(b->op), PHASE_FORWARD);
    assert_memory_not_equal(a->y.data, b->y.data, tensor_bytes(&a->y));
    b->random = a->random;
    b->random.layer++;
    known_run(b, op_cpu(b->op), PHASE_FORWARD);
    assert_memory_not_equal(a->y.data, b->y.data, tensor_bytes(&a->y));
    op_case_close(a);
    op_case_close(b);
}

static struct op_case *drop_path_open(int64_t n, bool training)
{
    struct op_example example = {"rate=0.2", 1, {SHAPE(n, 1, 1, 3)}};
    struct op_case *c = known_open("drop_path", example, training);
    for (int64_t i = 0; i < n * 3; i++) {
        tensor_set(&c->x[0], i, 1);
        tensor_set(&c->d_y, i, 1);
    }
    return c;
}

static void test_drop_path_takes_whole_images(void **state)
{
    struct op_case *c = drop_path_open(10000, true), *evaluated = drop_path_open(5, false);
    EACH_CODE(code, c) {
        int64_t dropped = 0;
        known_run(c, code, PHASE_FORWARD);
        for (int64_t i = 0; i < 30000; i++) {
            double y = tensor_get(&c->y, i);
            assert_true(y == tensor_get(&c->y, i - i % 3));
            if (y == 0) dropped++;
            else assert_float_equal(y, 1.25, 1e-6);
        }
        assert_in_range(dropped / 3, 2000 - 160, 2000 + 160);
        known_run(c, code, PHASE_BACKWARD);
        assert_memory_equal(c->d_x[0].data, c->y.data, tensor_bytes(&c->y));
    }
    EACH_CODE(code, evaluated) {
        known_run(evaluated, code, PHASE_FORWARD);
        assert_memory_equal(evaluated->x[0].data, evaluated->y.data, tensor_bytes(&evaluated->y));
    }
    op_case_close(c);
    op_case_close(evaluated);
}

static void test_drop_path_micro_batches_make_up_the_batch(void **state)
{
    struct op_case *whole = drop_path_open(90, true), *part = drop_path_open(30, true);
    known_run(whole, op_cpu(whole->op), PHASE_FORWARD);
    for (uint32_t micro_batch = 0; micro_batch < 3; micro_batch++) {
        part->random.micro_batch = micro_batch;
        EACH_CODE(code, part) {
            known_run(part, code, PHASE_FORWARD);
            assert_memory_equal(part->y.data, (char *)whole->y.data + micro_batch * tensor_bytes(&part->y),
                                tensor_bytes(&part->y));
        }
    }
    op_case_close(whole);
    op_case_close(part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relus_pass_nan),
        cmocka_unit_test(test_relu6_gradient_is_zero_at_corners),
        cmocka_unit_test(test_smooth_activations),
        cmocka_unit_test(test_hard_activations_at_corners),
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_attention_in_shifted_windows),
        cmocka_unit_test(test_attention_passes_nan),
        cmocka_unit_test(test_multiply_by_channel),
        cmocka_unit_test(test_channels_are_sliced_and_shuffled),
        cmocka_unit_test(test_tokens_are_sliced),
        cmocka_unit_test(test_distillation_of_two_heads),
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_batchnorm_training),
        cmocka_unit_test(test_batchnorm_evaluation),
        cmocka_unit_test(test_batchnorm_variance_far_from_zero),
        cmocka_unit_test(test_batchnorm_one_value_a_channel),
        cmocka_unit_test(test_batchnorm_hands_nan_on),
        cmocka_unit_test(test_batchnorm_same_bits_on_any_number_of_threads),
        cmocka_unit_test(test_pooling_windows),
        cmocka_unit_test(test_maxpool_takes_first_of_equals_and_nan),
        cmocka_unit_test(test_pooling_refuses_windows_that_do_not_fit),
        cmocka_unit_test(test_lrn_windows),
        cmocka_unit_test(test_conv_transpose),
        cmocka_unit_test(test_conv_transpose_is_initialised_as_torch),
        cmocka_unit_test(test_upsample_positions),
        cmocka_unit_test(test_flatten_is_in_torch_order),
        cmocka_unit_test(test_channel_pad_strides_and_pads_both_ends),
        cmocka_unit_test(test_pad_sides),
        cmocka_unit_test(test_concat_is_by_pixel),
        cmocka_unit_test(test_dropout_rate_and_scale),
        cmocka_unit_test(test_dropout_is_identity_in_evaluation),
        cmocka_unit_test(test_dropout_micro_batches_make_up_the_batch),
        cmocka_unit_test(test_dropout_differs_by_step_and_layer),
        cmocka_unit_test(test_drop_path_takes_whole_images),
        cmocka_unit_test(test_drop_path_micro_batches_make_up_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
