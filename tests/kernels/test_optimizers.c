/* test_optimizers: updates on known numbers (torch 2.11; LARS and LAMB by hand), and the whole sequence. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/memory.h"
#include "base/random.h"
#include "kernels/optimizer/optimizer_step.h"
#include "kernels/optimizer/orthogonalize.h"
#include "tests/support/unit.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

typedef void update(const struct optimizer_settings *settings, const struct optimizer_param *param,
                    double lr, double momentum, float factor, int64_t t);

/* Three steps from (0.5, -1.25, 2), learning rate 0.1, as torch takes them. */
struct known {
    const char *name;
    struct optimizer_settings settings;
    double expected[3];
};
static const struct known known[] = {
    {"sgd", {.momentum = 0}, {0.460000038, -1.31500006, 2}},
    {"sgd", {.momentum = 0.9, .weight_decay = 0.01}, {0.476095408, -1.27836442, 1.88366365}},
    {"sgd", {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
     {0.436950952, -1.33691382, 1.88968515}},
    {"adam", {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, {0.422841549, -1.15586972, 1.81014168}},
    {"adam", {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1},
     {0.402693927, -1.11193359, 1.78701627}},
    {"adamw", {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01,
      .decoupled_weight_decay = true},
     {0.421487004, -1.15237033, 1.80444419}},
    {"adamw", {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.5,
      .decoupled_weight_decay = true},
     {0.358481497, -0.989685714, 1.53946757}},
    {"adagrad", {.eps = 1e-10}, {0.410850167, -1.27109003, 1.89073563}},
    {"adagrad", {.eps = 0.01, .weight_decay = 0.1}, {0.408521622, -1.22275162, 1.87874877}},
    {"rmsprop", {.alpha = 0.99, .eps = 1e-8}, {-0.392388344, -1.4626323, 0.908181787}},
    {"rmsprop", {.alpha = 0.9, .momentum = 0.9, .weight_decay = 0.1, .eps = 0.01},
     {0.0435184576, -0.670249403, 0.90709722}},
    /* Values of its paper's formula, in double. */
    {"lion", {.beta1 = 0.9, .beta2 = 0.99}, {0.4, -1.35, 1.9}},
    {"lion", {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.5}, {0.3334375, -1.17646875, 1.6295}},
    {"lion", {.beta1 = 0.6, .beta2 = 0.8, .weight_decay = 0.1}, {0.3861395, -1.11586375, 1.843588}},
};

/* Values where the schedule moves momentum, or beta1 in its place. */
static const double moved[3] = {0.95, 0.9, 0.85};
static const struct known known_moved[] = {
    {"adam", {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, {0.422745466, -1.19887912, 1.84745157}},
    {"adam", {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1},
     {0.410352677, -1.15173352, 1.82806003}},
    {"adamw", {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.5,
      .decoupled_weight_decay = true},
     {0.357979357, -1.03106999, 1.57602859}},
    {"rmsprop", {.alpha = 0.9, .momentum = 0.5, .eps = 1e-8}, {-0.0497624837, -0.864330351, 0.887745559}},
    {"lion", {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.3}, {0.3592465, -1.24375125, 1.734256}},
};
static const float known_gradients[3][3] = {{0.1f, -0.2f, 0.3f}, {-0.4f, 0.05f, 0.6f}, {0.7f, 0.8f, -0.9f}};

/* Gradients come scaled by 1024. */
static void check_known(const struct known *k, const struct optimizer *optimizer, update *function,
                        const double *momentums)
{
    float w[3] = {0.5f, -1.25f, 2}, g[3], slots[OPTIMIZER_MAX_SLOTS][3] = {{0}};
    struct optimizer_param param = {.count = 3, .master = w, .gradient = g, .decay = true, .adapt = true};
    for (int i = 0; i < OPTIMIZER_MAX_SLOTS; i++) param.slots[i] = slots[i];
    for (int64_t t = 1; t <= 3; t++) {
        for (int i = 0; i < 3; i++) g[i] = 1024 * known_gradients[t - 1][i];
        double momentum = momentums ? momentums[t - 1] : optimizer_momentum(optimizer, &k->settings);
        function(&k->settings, &param, 0.1, momentum, 1.0f / 1024, t);
    }
    for (int i = 0; i < 3; i++)
        if (!(fabs(w[i] - k->expected[i]) <= 1e-6))
            fail_msg("%s, element %d: %.9g, not %.9g", k->name, i, w[i], k->expected[i]);
}

static void check_all_known(const struct known *rows, int count, const double *momentums)
{
    for (int i = 0; i < count; i++) {
        const struct optimizer *optimizer = optimizer_find(rows[i].name);
        assert_non_null(optimizer);
        check_known(&rows[i], optimizer, optimizer->reference, momentums);
        check_known(&rows[i], optimizer, optimizer->update, momentums);
    }
}

static void test_known_values(void **state)
{
    check_all_known(known, COUNT(known), NULL);
}

static void test_known_values_of_a_moving_momentum(void **state)
{
    check_all_known(known_moved, COUNT(known_moved), moved);
}

static struct optimizer_settings layerwise_settings(void)
{
    return (struct optimizer_settings){
        .momentum = 0.9, .weight_decay = 0.5, .trust = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 0};
}

/* |w| = 5, |g| = 10: ratio 0.01 * 5 / (10 + 0.5 * 5) = 0.004. */
static void test_lars_by_hand(void **state)
{
    struct optimizer_settings settings = layerwise_settings();
    for (int i = 0; i < 2; i++) {
        float w[2] = {3, 4}, g[2] = {6, -8}, buffer[2] = {0};
        struct optimizer_param p = {.count = 2, .master = w, .gradient = g, .slots = {buffer}, .decay = true,
                                    .adapt = true};
        const struct optimizer *lars = optimizer_find("lars");
        (i ? lars->update : lars->reference)(&settings, &p, 0.5, 0.9, 1, 1);
        assert_float_equal(w[0], 3 - 0.5 * 0.004 * (6 + 1.5), 1e-6);
        assert_float_equal(w[1], 4 - 0.5 * 0.004 * (-8 + 2), 1e-6);
    }
}

/* timm's Lars with nesterov adds momentum times the buffer to the gradient; here the rate is in both:
 * two steps of ratio 0.004, between which w, and with it the second ratio, moves. */
static void test_lars_with_nesterov_by_hand(void **state)
{
    struct optimizer_settings settings = layerwise_settings();
    settings.nesterov = true;
    settings.weight_decay = 0;
    for (int i = 0; i < 2; i++) {
        float w[2] = {3, 4}, g[2] = {6, -8}, buffer[2] = {0};
        struct optimizer_param p = {.count = 2, .master = w, .gradient = g, .slots = {buffer}, .adapt = true};
        const struct optimizer *lars = optimizer_find("lars");
        double first = 0.5 * 0.01 * 5 / 10, x = 3 - first * 6 * 1.9, y = 4 + first * 8 * 1.9;
        double second = 0.5 * 0.01 * sqrt(x * x + y * y) / 10, held = 0.9 * first + second;
        for (int t = 1; t <= 2; t++)
            (i ? lars->update : lars->reference)(&settings, &p, 0.5, 0.9, 1, t);
        assert_float_equal(w[0], x - (second + 0.9 * held) * 6, 1e-6);
        assert_float_equal(w[1], y + (second + 0.9 * held) * 8, 1e-6);
    }
}

/* First step without eps: m/(1-b1) / sqrt(v/(1-b2)) is the gradient's sign, so r = sign + 0.5 w =
 * (2.5, 1), |r| = sqrt(7.25), |w| = 5. */
static void test_lamb_by_hand(void **state)
{
    struct optimizer_settings settings = layerwise_settings();
    for (int i = 0; i < 2; i++) {
        float w[2] = {3, 4}, g[2] = {6, -8}, mean[2] = {0}, square[2] = {0};
        struct optimizer_param p = {.count = 2, .master = w, .gradient = g, .slots = {mean, square},
                                    .decay = true, .adapt = true};
        const struct optimizer *lamb = optimizer_find("lamb");
        (i ? lamb->update : lamb->reference)(&settings, &p, 0.1, 0.9, 1, 1);
        assert_float_equal(w[0], 3 - 0.1 * 5 / sqrt(7.25) * 2.5, 1e-5);
        assert_float_equal(w[1], 4 - 0.1 * 5 / sqrt(7.25) * 1, 1e-5);
    }
}

/* Matrices after three steps of muon, by its author's formula in fp64 (NumPy): weights, and gradients of step
 * t, by the formula of `number` with seeds 1 and 2 + t. */
static const struct {
    int64_t rows, columns;
    double decay;
    bool nesterov;
    double expected[3];        /* the first two, and the last */
    double sum;                /* of each times the cosine of its index */
} known_matrices[] = {
    {3, 5, 0, true, {-0.629196673, -0.087194048, 0.307394836}, -0.466061849},
    {3, 5, 0.1, false, {-0.621734323, -0.0737543764, 0.305372672}, -0.440215736},
    {5, 3, 0, true, {-0.595582395, -0.0740687466, 0.308154917}, -0.414220524},
    {5, 3, 0.1, false, {-0.597094531, -0.0667386545, 0.305720483}, -0.398844098},
    {40, 70, 0, true, {-0.640793116, -0.083744108, -0.811832244}, 11.2083499},
    {40, 70, 0.1, false, {-0.635595405, -0.0840408255, -0.807360852}, 11.1174641},
    {130, 33, 0, true, {-0.636379621, -0.0801778669, 0.983610465}, 10.7274051},
    {130, 33, 0.1, false, {-0.632542699, -0.077261727, 0.975956949}, 10.7753631},
    {64, 64, 0, true, {-0.642198135, -0.0803164755, -0.831137567}, 19.500309},
    {64, 64, 0.1, false, {-0.637390051, -0.0776578315, -0.822045018}, 19.4090452},
    {2, 200, 0, true, {-0.642308247, -0.0825515236, -0.527311252}, 10.3101516},
    {2, 200, 0.1, false, {-0.637693698, -0.0814696318, -0.524881092}, 10.2437111},
};

/* splitmix64, uniform in -1..1. */
static float number(uint64_t seed, uint64_t i)
{
    uint64_t z = i * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)((double)(z >> 40) / 16777216 * 2 - 1);
}

static double near_sum(const float *w, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += w[i] * cos((double)i);
    return sum;
}

static void check_matrix(int k, update *function)
{
    const struct optimizer *muon = optimizer_find("muon");
    int64_t rows = known_matrices[k].rows, count = rows * known_matrices[k].columns;
    struct optimizer_settings settings = muon->initial;
    settings.weight_decay = known_matrices[k].decay;
    settings.nesterov = known_matrices[k].nesterov;
    float *w = memory_new((size_t)(3 * count), sizeof *w), *gradient = w + count;
    struct optimizer_param param = {
        .count = count, .rows = rows, .master = w, .gradient = gradient, .slots = {w + 2 * count},
        .decay = true,
        .scratch = aligned_alloc(64, (size_t)orthogonalize_scratch(rows, count / rows) * sizeof(float)),
    };
    for (int64_t i = 0; i < count; i++) w[i] = number(1, (uint64_t)i);
    for (int64_t t = 1; t <= 3; t++) {
        for (int64_t i = 0; i < count; i++) gradient[i] = 1024 * number((uint64_t)t + 1, (uint64_t)i);
        function(&settings, &param, 0.02, 0.95, 1.0f / 1024, t);
    }
    assert_float_equal(w[0], known_matrices[k].expected[0], 2e-6);
    assert_float_equal(w[1], known_matrices[k].expected[1], 2e-6);
    assert_float_equal(w[count - 1], known_matrices[k].expected[2], 2e-6);
    assert_float_equal(near_sum(w, count), known_matrices[k].sum, 2e-5);
    free(param.scratch);
    free(w);
}

static void test_matrices_of_muon(void **state)
{
    for (int k = 0; k < COUNT(known_matrices); k++) {
        check_matrix(k, optimizer_find("muon")->reference);
        check_matrix(k, optimizer_find("muon")->update);
    }
}

/* Singular values of 1e-3 to 1 become ones near 1: the sum of their squares is the shorter side, roughly. */
static void test_orthogonal_rows(void **state)
{
    enum { ROWS = 33, COLUMNS = 70 };
    float *scratch = aligned_alloc(64, (size_t)orthogonalize_scratch(ROWS, COLUMNS) * sizeof(float));
    float *x = orthogonalize_input(scratch, ROWS, COLUMNS);
    double squares = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        x[i] = number(5, (uint64_t)i);
        squares += (double)x[i] * x[i];
    }
    const struct orthogonal made = orthogonalize(scratch, ROWS, COLUMNS, squares);
    for (int a = 0; a < ROWS; a++)
        for (int b = 0; b <= a; b++) {
            double dot = 0;
            for (int k = 0; k < COLUMNS; k++)
                dot += (double)orthogonal_at(&made, a, k) * (double)orthogonal_at(&made, b, k);
            if (a == b) assert_in_range((uint64_t)(1000 * dot), 450, 1500);
            else assert_true(fabs(dot) < 0.4);
        }
    free(scratch);
}

/* Without adaptation the trust ratio is 1: norms and biases; so it is for weights that are zero. */
static void test_trust_ratio_is_one_for_norms_and_zeros(void **state)
{
    struct optimizer_settings settings = layerwise_settings();
    const struct optimizer *lars = optimizer_find("lars");
    float w[2] = {3, 0}, g[2] = {6, 2}, buffer[2] = {0};
    struct optimizer_param norm = {.count = 1, .master = w, .gradient = g, .slots = {buffer}};
    struct optimizer_param zero = {.count = 1, .master = w + 1, .gradient = g + 1, .slots = {buffer + 1},
                                   .adapt = true, .decay = true};
    lars->update(&settings, &norm, 0.5, 0.9, 1, 1);
    lars->update(&settings, &zero, 0.5, 0.9, 1, 1);
    assert_float_equal(w[0], 0, 1e-6);
    assert_float_equal(w[1], -1, 1e-6);
}

/* A small network's parameters in one piece of memory, so that it can be compared bit by bit. */
#define PARAMS 4
static const int64_t sizes[PARAMS] = {70001, 1, 24, 4096};
#define MATRIX_ROWS 32         /* of the last one, for muon */
struct network {
    int64_t total;
    float *memory;          /* masters, gradients, three slots, averages */
    uint16_t *low;
    float *scratch;         /* of a matrix */
    struct optimizer_param params[PARAMS];
    struct optimizer_state state;
};

static struct network network_open(double gradient_scale)
{
    struct network n = {0};
    for (int i = 0; i < PARAMS; i++) n.total += sizes[i];
    n.memory = memory_new((size_t)(6 * n.total), sizeof(float));
    n.low = memory_new((size_t)n.total, sizeof *n.low);
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    for (int64_t i = 0; i < n.total; i++) {
        n.memory[i] = n.memory[5 * n.total + i] = (float)random_normal(&random);
        n.memory[n.total + i] = (float)(gradient_scale * random_normal(&random));
    }
    float *at = n.memory;
    for (int i = 0; i < PARAMS; i++, at += sizes[i - 1]) {
        n.params[i] = (struct optimizer_param){
            .count = sizes[i], .master = at, .gradient = at + n.total,
            .slots = {at + 2 * n.total, at + 3 * n.total, at + 4 * n.total},
            .average = at + 5 * n.total, .low = n.low + (at - n.memory), .low_dtype = BF16,
            .decay = i != 1, .adapt = i != 1, .lr_scale = 1,
        };
    }
    n.params[3].rows = MATRIX_ROWS;
    n.scratch = memory_new((size_t)orthogonalize_scratch(MATRIX_ROWS, sizes[3] / MATRIX_ROWS), sizeof(float));
    n.params[3].scratch = n.scratch;
    n.state.scaler.scale = 1024;
    return n;
}

static void network_close(struct network *n)
{
    free(n->scratch);
    free(n->memory);
    free(n->low);
}

static const struct scaler_settings scaling = {
    .dynamic = true, .growth = 2, .backoff = 0.5, .growth_interval = 2, .min_scale = 1, .max_scale = 65536};

static struct optimizer_settings settings_of(const struct optimizer *optimizer)
{
    struct optimizer_settings settings = optimizer->initial;
    settings.weight_decay = 0.01;
    settings.momentum = 0.9;
    return settings;
}

static void test_update_agrees_with_reference(void **state)
{
    for (const struct optimizer *const *o = optimizer_table; *o; o++) {
        struct network a = network_open(1), b = network_open(1);
        struct optimizer_settings settings = settings_of(*o);
        for (int i = 0; i < PARAMS; i++)
            for (int t = 1; t <= 3; t++) {
                settings.nesterov = t > 1;
                (*o)->update(&settings, &a.params[i], 0.01, 0.9, 0.5f, t);
                (*o)->reference(&settings, &b.params[i], 0.01, 0.9, 0.5f, t);
            }
        for (int64_t i = 0; i < 5 * a.total; i++)
            if (!(fabsf(a.memory[i] - b.memory[i]) <= 2e-5f * fmaxf(1, fabsf(b.memory[i]))))
                fail_msg("%s: %.9g, not %.9g", (*o)->name, a.memory[i], b.memory[i]);
        network_close(&a);
        network_close(&b);
    }
}

static void test_any_number_of_threads_gives_the_same_bits(void **state)
{
#ifdef _OPENMP
    int most = omp_get_max_threads();
    for (const struct optimizer *const *o = optimizer_table; *o; o++) {
        struct network a = network_open(1000), b = network_open(1000);
        struct optimizer_settings settings = settings_of(*o);
        settings.clip_norm = 1;
        settings.ema = 0.9;
        const struct optimizer_options options = {*o, &settings, &scaling, 0.1, 0.9, 0.9, NULL};
        for (int t = 0; t < 2; t++) {
            omp_set_num_threads(1);
            optimizer_step(&options, optimizer_squares(a.params, PARAMS), a.params, PARAMS, &a.state);
            omp_set_num_threads(3);
            optimizer_step(&options, optimizer_squares(b.params, PARAMS), b.params, PARAMS, &b.state);
        }
        assert_memory_equal(a.memory, b.memory, (size_t)(6 * a.total) * sizeof(float));
        assert_memory_equal(a.low, b.low, (size_t)a.total * sizeof *a.low);
        assert_true(a.state.grad_norm == b.state.grad_norm);
        network_close(&a);
        network_close(&b);
    }
    omp_set_num_threads(most);
#endif
}

static void test_overflow_leaves_everything_untouched(void **state)
{
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (const struct optimizer *const *o = optimizer_table; *o; o++)
        for (int k = 0; k < COUNT(bad); k++) {
            struct network a = network_open(1), b = network_open(1);
            struct optimizer_settings settings = settings_of(*o);
            settings.ema = 0.5;
            const struct optimizer_options options = {*o, &settings, &scaling, 0.1, 0.9, 0.5, NULL};
            ((float *)a.params[3].gradient)[4095] = ((float *)b.params[3].gradient)[4095] = bad[k];
            optimizer_step(&options, optimizer_squares(a.params, PARAMS), a.params, PARAMS, &a.state);
            assert_memory_equal(a.memory, b.memory, (size_t)(6 * a.total) * sizeof(float));
            assert_memory_equal(a.low, b.low, (size_t)a.total * sizeof *a.low);
            assert_int_equal(a.state.skipped, 1);
            assert_int_equal(a.state.skipped_steps, 1);
            assert_int_equal(a.state.updates, 0);
            assert_false(isfinite(a.state.grad_norm));
            assert_true(a.state.scaler.scale == 512);
            network_close(&a);
            network_close(&b);
        }
}

static void test_sequence(void **state)
{
    float w[2] = {1, -1}, g[2] = {3 * 8, 4 * 8}, buffer[2] = {0}, average[2] = {1, -1};
    uint16_t low[2] = {0};
    struct optimizer_param param = {.count = 2, .master = w, .gradient = g, .slots = {buffer},
                                    .average = average, .low = low, .low_dtype = F16, .decay = true,
                                    .lr_scale = 1};
    struct optimizer_settings settings = {.clip_norm = 1, .ema = 0.75};
    struct optimizer_state s = {.scaler = {.scale = 8}};
    const struct optimizer_options options = {optimizer_find("sgd"), &settings, &scaling, .lr = 0.5,
                                              .ema = 0.75};
    optimizer_step(&options, optimizer_squares(&param, 1), &param, 1, &s);
    assert_float_equal(s.grad_norm, 5, 1e-6);
    assert_float_equal(w[0], 1 - 0.5 * 0.6, 1e-6);
    assert_float_equal(w[1], -1 - 0.5 * 0.8, 1e-6);
    assert_float_equal(average[0], 0.75 + 0.25 * 0.7, 1e-6);
    assert_int_equal(low[0], f16_from_float(w[0]));
    assert_int_equal(low[1], f16_from_float(w[1]));
    assert_int_equal(s.updates, 1);
    assert_int_equal(s.skipped, 0);
    assert_true(s.lr == 0.5f);
    assert_int_equal(s.scaler.good_steps, 1);
    optimizer_step(&options, optimizer_squares(&param, 1), &param, 1, &s);
    assert_true(s.scaler.scale == 16);
}

/* The average moves by an update's own decay, and training goes on from it; where that is 1, neither does. */
static void test_lookahead(void **state)
{
    float w[1] = {1}, g[1] = {0.5f}, buffer[1] = {0}, average[1] = {3};
    uint16_t low[1] = {0};
    struct optimizer_param param = {.count = 1, .master = w, .gradient = g, .slots = {buffer},
                                    .average = average, .low = low, .low_dtype = F16, .lr_scale = 1};
    struct optimizer_settings settings = {.ema = 0.9, .lookahead = true};
    struct optimizer_state s = {.scaler = {.scale = 1}};
    struct optimizer_options options = {optimizer_find("sgd"), &settings, &scaling, .lr = 1, .ema = 1};
    optimizer_step(&options, optimizer_squares(&param, 1), &param, 1, &s);
    assert_true(w[0] == 0.5f && average[0] == 3);
    options.ema = 0.25;
    optimizer_step(&options, optimizer_squares(&param, 1), &param, 1, &s);
    assert_true(average[0] == 0.75f && w[0] == 0.75f && s.ema == 0.25f);
    assert_int_equal(low[0], f16_from_float(0.75f));
}

static void test_small_gradients_are_not_clipped(void **state)
{
    float w[1] = {1}, g[1] = {0.5f}, buffer[1] = {0};
    struct optimizer_param param = {.count = 1, .master = w, .gradient = g, .slots = {buffer}, .lr_scale = 1};
    struct optimizer_settings settings = {.clip_norm = 1};
    struct optimizer_state s = {.scaler = {.scale = 1}};
    const struct optimizer_options options = {optimizer_find("sgd"), &settings, &scaling, .lr = 1};
    optimizer_step(&options, optimizer_squares(&param, 1), &param, 1, &s);
    assert_true(w[0] == 0.5f);
}

static void test_weight_decay_spares_norms(void **state)
{
    for (const struct optimizer *const *o = optimizer_table; *o; o++) {
        float w[1] = {1}, g[1] = {0}, slots[3][1] = {{0}};
        struct optimizer_param param = {.count = 1, .master = w, .gradient = g,
                                        .slots = {slots[0], slots[1], slots[2]}};
        struct optimizer_settings settings = settings_of(*o);
        (*o)->update(&settings, &param, 0.1, 0.9, 1, 1);
        assert_true(w[0] == 1);
        param.decay = true;
        (*o)->update(&settings, &param, 0.1, 0.9, 1, 2);
        assert_true(w[0] < 1);
    }
}

/* ---- Matrices that ranks share ---- */

#define RANKS 3
static const struct {
    int64_t rows, count;
} shared[] = {{40, 2800}, {0, 50}, {70, 2800}, {8, 64}, {40, 2800}, {33, 33}};
#define SHARED COUNT(shared)
#define SHARED_TOTAL (3 * 2800 + 50 + 64 + 33)
#define SCRATCH (1 << 18)      /* floats */

struct meeting {
    pthread_barrier_t all;
    const void *from[RANKS];
};

struct seat {
    struct meeting *meeting;
    int rank, gathers;
    bool idle;                 /* nothing was made in the others' places */
    float *memory;             /* masters, gradients, two slots, averages */
    float *scratch;
    struct optimizer_param params[SHARED];
    struct optimizer_state state;
};

static enum status meet(void *context, const void *from, void *to, size_t bytes, void *stream)
{
    struct seat *seat = context;
    seat->meeting->from[seat->rank] = from;
    int64_t floats = (int64_t)(bytes / sizeof(float));
    for (int r = 0; r < RANKS && seat->gathers == 0; r++)
        if (r != seat->rank) seat->idle = seat->idle && isnan(((float *)to)[r * floats]);
    seat->gathers++;
    pthread_barrier_wait(&seat->meeting->all);
    for (int r = 0; r < RANKS; r++)
        if (r != seat->rank) memcpy((char *)to + r * (int64_t)bytes, seat->meeting->from[r], bytes);
    pthread_barrier_wait(&seat->meeting->all);
    return OK;
}

static void seat_open(struct seat *seat)
{
    seat->memory = memory_new(5 * SHARED_TOTAL, sizeof(float));
    seat->scratch = aligned_alloc(64, SCRATCH * sizeof(float));
    seat->idle = true;
    seat->state.scaler.scale = 1;
    for (int i = 0; i < SCRATCH; i++) seat->scratch[i] = NAN;
    for (int i = 0; i < 2 * SHARED_TOTAL; i++) seat->memory[i] = number(7, (uint64_t)i);
    float *at = seat->memory;
    for (int i = 0; i < SHARED; at += shared[i++].count)
        seat->params[i] = (struct optimizer_param){
            .count = shared[i].count, .rows = shared[i].rows, .master = at, .gradient = at + SHARED_TOTAL,
            .slots = {at + 2 * SHARED_TOTAL, at + 3 * SHARED_TOTAL}, .average = at + 4 * SHARED_TOTAL,
            .decay = i % 2, .lr_scale = 1 + i, .scratch = seat->scratch,
        };
}

static void seat_close(struct seat *seat)
{
    free(seat->memory);
    free(seat->scratch);
}

static void *seat_run(void *of)
{
    struct seat *seat = of;
    const struct matrix_ranks ranks = {seat->rank, RANKS, meet, seat};
    const struct optimizer *muon = optimizer_find("muon");
    struct optimizer_settings settings = muon->initial;
    settings.weight_decay = 0.1;
    settings.ema = 0.5;
    struct matrix_sharing *sharing = seat->meeting ? matrix_sharing_open(&ranks, false, seat->params, SHARED)
                                                   : NULL;
    const struct optimizer_options options = {muon, &settings, &scaling, 0.02, 0.9, 0.5, sharing};
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
    for (int t = 0; t < 2; t++)
        optimizer_step(&options, optimizer_squares(seat->params, SHARED), seat->params, SHARED, &seat->state);
    matrix_sharing_close(sharing);
    return NULL;
}

static void test_ranks_share_matrices(void **state)
{
    struct meeting meeting;
    struct seat alone = {0}, seats[RANKS] = {{0}};
    pthread_t threads[RANKS];
#ifdef _OPENMP
    int most = omp_get_max_threads();
#endif
    assert_int_equal(pthread_barrier_init(&meeting.all, NULL, RANKS), 0);
    for (int r = 0; r < RANKS; r++) {
        seats[r].meeting = &meeting;
        seats[r].rank = r;
        seat_open(&seats[r]);
        assert_int_equal(pthread_create(&threads[r], NULL, seat_run, &seats[r]), 0);
    }
    seat_open(&alone);
    seat_run(&alone);
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        assert_memory_equal(seats[r].memory, alone.memory, 5 * SHARED_TOTAL * sizeof(float));
        assert_true(seats[r].idle);
        assert_int_equal(seats[r].gathers, 4);
        seat_close(&seats[r]);
    }
    assert_true(alone.memory[0] != number(7, 0));
    seat_close(&alone);
    pthread_barrier_destroy(&meeting.all);
#ifdef _OPENMP
    omp_set_num_threads(most);
#endif
}

static struct matrix_sharing *divide(int ranks, bool on_gpu, const struct optimizer_param *params, int count)
{
    const struct matrix_ranks of = {.count = ranks};
    return matrix_sharing_open(&of, on_gpu, params, count);
}

/* The part that ranks exchange lies behind what the largest needs. */
static void test_bytes_of_shared_matrices(void **state)
{
    const struct optimizer_param params[] = {{.count = 50}, {.count = 2800, .rows = 40, .alike = 1}};
    struct matrix_sharing *sharing = divide(1, false, params, COUNT(params));
    int64_t alone = sharing->bytes;
    assert_int_equal(alone, orthogonalize_scratch(40, 70) * 4);
    matrix_sharing_close(sharing);
    sharing = divide(3, false, params, COUNT(params));
    assert_int_equal(sharing->gathered, alone);
    assert_int_equal(sharing->bytes, alone + 3 * 64 * 96 * 4);
    matrix_sharing_close(sharing);
    sharing = divide(3, true, params, COUNT(params));
    assert_int_equal(sharing->bytes - sharing->gathered, 3 * 2816 * 2);
    matrix_sharing_close(sharing);
    sharing = divide(3, true, params, 1);
    assert_int_equal(sharing->bytes, 0);
    assert_int_equal(matrix_sharing_rounds(sharing), 0);
    matrix_sharing_close(sharing);
}

/* ViT-S: twelve of each size. */
#define BLOCKS 12
static void test_batches_of_equal_matrices(void **state)
{
    static const struct {
        int64_t rows, columns;
    } each[] = {{384, 1536}, {384, 384}, {1536, 384}, {1152, 384}};
    struct optimizer_param params[BLOCKS * COUNT(each)];
    int64_t bytes = INT64_MAX;
    for (int i = 0; i < COUNT(params); i++) {
        int64_t rows = each[i % COUNT(each)].rows;
        params[i] = (struct optimizer_param){.rows = rows, .alike = BLOCKS,
                                             .count = rows * each[i % COUNT(each)].columns};
    }
    for (int ranks = 1; ranks <= 8; ranks++) {
        struct matrix_sharing *sharing = divide(ranks, true, params, COUNT(params));
        int share = (BLOCKS + ranks - 1) / ranks, done = 0;
        assert_int_equal(sharing->batch_count, COUNT(each) * ((BLOCKS + share - 1) / share));
        for (int i = 0; i < sharing->batch_count; i++) {
            const struct matrix_batch *batch = &sharing->batches[i];
            const struct optimizer_param *param = &params[sharing->order[batch->first]];
            assert_int_equal(batch->first, done);
            assert_in_range(batch->count, 1, share);
            assert_int_equal(batch->bytes, batch->count * param->count * 2);
            for (int k = 1; k < batch->count; k++) {
                assert_int_equal(params[sharing->order[batch->first + k]].rows, param->rows);
                assert_int_equal(params[sharing->order[batch->first + k]].count, param->count);
            }
            done += batch->count;
        }
        assert_int_equal(done, COUNT(params));
        assert_true(sharing->gathered <= bytes);
        bytes = sharing->gathered;
        for (int r = 0; r < matrix_sharing_rounds(sharing); r++) {
            const struct matrix_round round = matrix_sharing_round(sharing, r);
            for (int i = 0; i < round.count; i++) assert_true(round.batches[i].bytes <= round.room);
            assert_true(sharing->gathered + ranks * round.room <= sharing->bytes || ranks == 1);
        }
        matrix_sharing_close(sharing);
    }
    assert_int_equal(orthogonalize_batch(384, 1536, BLOCKS), BLOCKS);
    assert_int_equal(orthogonalize_batch(384, 1536, 0), 1);
    assert_int_equal(orthogonalize_batch(1024, 4096, BLOCKS), 2);
    assert_int_equal(orthogonalize_batch(4096, 4096, BLOCKS), 1);
}

static void test_no_such_optimizer(void **state)
{
    assert_null(optimizer_find("sdg"));
    assert_null(optimizer_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_known_values_of_a_moving_momentum),
        cmocka_unit_test(test_lars_by_hand),
        cmocka_unit_test(test_lars_with_nesterov_by_hand),
        cmocka_unit_test(test_lamb_by_hand),
        cmocka_unit_test(test_matrices_of_muon),
        cmocka_unit_test(test_orthogonal_rows),
        cmocka_unit_test(test_trust_ratio_is_one_for_norms_and_zeros),
        cmocka_unit_test(test_update_agrees_with_reference),
        cmocka_unit_test(test_any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(test_overflow_leaves_everything_untouched),
        cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_small_gradients_are_not_clipped),
        cmocka_unit_test(test_lookahead),
        cmocka_unit_test(test_weight_decay_spares_norms),
        cmocka_unit_test(test_ranks_share_matrices),
        cmocka_unit_test(test_bytes_of_shared_matrices),
        cmocka_unit_test(test_batches_of_equal_matrices),
        cmocka_unit_test(test_no_such_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
