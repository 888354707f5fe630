/* Schedules against what torch's give for the same numbers. */
#include <math.h>

#include "session/step.h"
#include "task/schedule.h"
#include "tests/support/unit.h"

static struct schedule schedule(const char *name, double lr, int64_t total)
{
    return (struct schedule){
        .row = schedule_find(name), .lr = lr, .momentum = 0.9, .total = total, .gamma = 0.1, .power = 1,
        .pct_start = 0.3, .div = 25, .final_div = 1e4,
    };
}

static void follows(const struct schedule *schedule, const double *wanted, int count)
{
    for (int i = 0; i < count; i++) {
        double lr = schedule_at(schedule, i).lr;
        if (fabs(lr - wanted[i]) > 1e-12) fail_msg("update %d: %.17g, not %.17g", i, lr, wanted[i]);
    }
}

static void constant(void **state)
{
    struct schedule constant = schedule("constant", 0.25, 4);
    follows(&constant, (double[]){0.25, 0.25, 0.25, 0.25, 0.25}, 5);
    assert_true(schedule_at(&constant, 2).momentum == 0.9);
}

/* MultiStepLR(milestones=[2, 5], gamma=0.1). */
static void step(void **state)
{
    struct schedule step = schedule("step", 1, 8);
    step.milestones = (struct field_reals){.count = 2, .value = {2, 5}};
    follows(&step, (double[]){1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01}, 8);
}

/* CosineAnnealingLR(T_max=8, eta_min=0.001), by torch's recursion. */
static void cosine(void **state)
{
    struct schedule cosine = schedule("cosine", 0.1, 8);
    cosine.min_lr = 0.001;
    follows(&cosine,
            (double[]){0.1, 0.0962320368593087, 0.0855017856687341, 0.06944282990207196, 0.0505,
                       0.03155717009792806, 0.0154982143312659, 0.004767963140691306, 0.001, 0.001},
            10);
}

/* PolynomialLR(total_iters=5, power=0.9). */
static void poly(void **state)
{
    struct schedule poly = schedule("poly", 1, 5);
    poly.power = 0.9;
    follows(&poly, (double[]){1, 0.8180521460508584, 0.6314458674893553, 0.438383290554087,
                              0.23492378861760377, 0, 0}, 7);
}

/* ReduceLROnPlateau(factor=0.3, patience=2, cooldown=1, min_lr=0.001) of torch 2.15. */
static void plateau(void **state)
{
    static const double losses[] = {2,   1.5, 1.5, 1.49999, 1.4, 1.4, 1.41, 1.4, 1.4, 1.2, 1.3, 1.3, 1.3, 1.3,
                                    1.3, 1.3, 1.3, 1.3,     NAN, 1.3, 1.1,  1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2};
    static const double wanted[] = {0.1,   0.1,    0.1,    0.1,    0.1,    0.1,    0.1,    0.03,  0.03,  0.03,
                                    0.03,  0.03,   0.009,  0.009,  0.009,  0.009,  0.0027, 0.0027, 0.0027, 0.0027,
                                    0.0027, 0.0027, 0.0027, 0.001, 0.001,  0.001,  0.001,  0.001};
    struct schedule plateau = schedule("plateau", 0.1, 100);
    struct plateau at = {0};
    plateau.factor = 0.3, plateau.threshold = 1e-4, plateau.patience = 2, plateau.cooldown = 1;
    plateau.min_lr = 0.001;
    assert_true(schedule_at(&plateau, 0).lr == 0.1);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        double before = schedule_at(&plateau, (int64_t)i).lr;
        bool lower = schedule_plateau(&plateau, &at, losses[i]);
        plateau.reduced = at.lr;
        double lr = schedule_at(&plateau, (int64_t)i).lr;
        assert_int_equal(lower, lr < before);
        if (fabs(lr - wanted[i]) > 1e-12) fail_msg("evaluation %zu: %.17g, not %.17g", i, lr, wanted[i]);
    }
}

/* SWALR(swa_lr=0.04, anneal_epochs=4) after four steps of CosineAnnealingLR(T_max=10), of torch 2.15. */
static void swa(void **state)
{
    struct schedule swa = schedule("cosine", 0.1, 10);
    swa.swa = true, swa.swa_begin = swa.swa_anneal = 4, swa.swa_lr = 0.04;
    follows(&swa, (double[]){0.1, 0.09755282581475769, 0.09045084971874738, 0.07938926261462367,
                             0.06545084971874739, 0.061723659070916696, 0.05272542485937369,
                             0.04372719064783069, 0.04, 0.04, 0.04}, 11);
    swa.swa_linear = true;
    assert_true(fabs(schedule_at(&swa, 5).lr - 0.059088137289060545) < 1e-15);
    assert_true(fabs(schedule_at(&swa, 7).lr - 0.04636271242968684) < 1e-15);
    swa.swa_anneal = 0;
    follows(&swa, (double[]){0.1}, 1);
    assert_true(schedule_at(&swa, 4).lr == 0.04);
}

/* OneCycleLR(max_lr=0.1, total_steps=10). */
static void onecycle(void **state)
{
    static const double momentum[] = {
        0.95, 0.9, 0.85, 0.854951556604879, 0.8688255099070633, 0.8888739533021842, 0.9111260466978157,
        0.9311744900929366, 0.945048443395121, 0.95,
    };
    struct schedule onecycle = schedule("onecycle", 0.1, 10);
    follows(&onecycle, (double[]){0.004, 0.052, 0.1, 0.09504846320134738, 0.0811745653949763,
                                  0.06112620219362893, 0.03887419780637107, 0.0188258346050237,
                                  0.004951936798652629, 4e-7, 4e-7}, 11);
    for (int i = 0; i < 10; i++) assert_true(fabs(schedule_at(&onecycle, i).momentum - momentum[i]) < 1e-12);
}

static void onecycle_of_few(void **state)
{
    for (int64_t total = 1; total < 6; total++) {
        struct schedule onecycle = schedule("onecycle", 0.1, total);
        for (int64_t i = 0; i < total + 2; i++) {
            double lr = schedule_at(&onecycle, i).lr;
            assert_true(lr > 0 && lr <= 0.1);
        }
    }
}

/* A line up to the base, then the cosine over what is left. */
static void warmup(void **state)
{
    struct schedule warm = schedule("cosine", 0.8, 8);
    warm.warmup = 4;
    follows(&warm, (double[]){0.2, 0.4, 0.6, 0.8, 0.8, 0.6828427124746190, 0.4, 0.1171572875253810, 0}, 9);
    warm.warmup_start = 0.5;
    follows(&warm, (double[]){0.5, 0.6, 0.7, 0.8, 0.8, 0.6828427124746190}, 6);
}

/* Milestones count from the beginning of the run, not from the end of warm-up. */
static void warmup_and_steps(void **state)
{
    struct schedule warm = schedule("step", 1, 8);
    warm.warmup = 2;
    warm.milestones = (struct field_reals){.count = 1, .value = {4}};
    follows(&warm, (double[]){0.5, 1, 1, 1, 0.1, 0.1}, 6);
}

static void names(void **state)
{
    assert_null(schedule_find("cosinus"));
    assert_non_null(schedule_find("poly"));
}

/* Averages are warmed up, as torch-ema's; lookahead has its own decay. */
static void averages(void **state)
{
    struct hyperparameters hyper = {.schedule = schedule("constant", 1, 8), .optimizer_settings = {.ema = 0.9999}};
    for (int64_t n = 1; n < 100000; n += 7) {
        struct update_rates rates = step_rates(&hyper, n - 1);
        for (int k = 0; k < 2; k++)
            assert_true(rates.ema[k] == fmin(0.9999, (1 + (double)(n + k)) / (10 + (double)(n + k))));
    }
    hyper.lookahead = 2;
    assert_true(step_rates(&hyper, 0).ema[0] == 1);
    assert_true(step_rates(&hyper, 0).ema[1] == pow(0.9999, 2) / 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant), cmocka_unit_test(step),     cmocka_unit_test(cosine),
        cmocka_unit_test(poly),     cmocka_unit_test(onecycle), cmocka_unit_test(onecycle_of_few),
        cmocka_unit_test(warmup),   cmocka_unit_test(warmup_and_steps), cmocka_unit_test(names),
        cmocka_unit_test(averages), cmocka_unit_test(plateau),  cmocka_unit_test(swa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
