/* Targets of mixed images and weighted classes: the losses that they give are torch.nn.CrossEntropyLoss's. */
#include <math.h>

#include "data/dataset/dataset.h"
#include "data/loader/targets.h"
#include "tests/support/unit.h"

#define COUNT 4
#define CLASSES 4
#define ROW (CLASSES + 1)

static const int32_t labels[COUNT] = {2, 0, 3, 0};
static const double weights[CLASSES] = {0.5, 2, 1.5, 4};
static const double logits[COUNT][CLASSES] = {{1, 2, 3, -1}, {0.5, -0.5, 0, 4}, {2, 0, -1, 1}, {0, 1, 0, -2}};

/* The mean over images from..from + count, as the op softmax_cross_entropy and a micro-batch have it. */
static double loss_of(const float targets[COUNT][ROW], int from, int count)
{
    double loss = 0;
    for (int i = from; i < from + count; i++) {
        double sum = 0;
        for (int c = 0; c < CLASSES; c++) sum += exp(logits[i][c]);
        for (int c = 0; c < CLASSES; c++) loss += targets[i][c] * (log(sum) - logits[i][c]);
    }
    return loss / count;
}

static void expect(double got, double want)
{
    if (fabs(got - want) > 1e-6 * want) fail_msg("%.9g, not %.9g", got, want);
}

static void targets_share_the_classes(void **state)
{
    const struct target_options options = {.classes = 3, .together = COUNT};
    struct mix mix = {.together = COUNT, .share = 0.75f};
    float targets[COUNT][4];
    targets_make(&options, &mix, 1, (int32_t[]){2, 0, 0, 1}, COUNT, targets[0]);
    static const float want[COUNT][4] = {
        {0, 0.25f, 0.75f, 2}, {0.75f, 0, 0.25f, 0}, {1, 0, 0, 0}, {0.25f, 0.75f, 0, 1}};
    assert_memory_equal(targets, want, sizeof want);
    mix.share = 0.25f;
    targets_make(&options, &mix, 1, (int32_t[]){2, 0, 0, 1}, COUNT, targets[0]);
    assert_true(targets[0][2] == 0.25f && targets[0][1] == 0.75f && targets[0][3] == 1);
}

/* Targets of a batch of these classes that are not mixed, in micro-batches of so many images. */
static void make(struct target_options *options, int together, const int32_t *of, float targets[COUNT][ROW])
{
    double counts[CLASSES] = {0}, factor;
    for (int i = 0; i < COUNT; i++) counts[of[i]]++;
    factor = targets_factor(options, counts);
    options->together = together;
    for (int i = 0; i < COUNT; i += together)
        targets_make(options, NULL, factor, of + i, together, targets[i]);
}

/* CrossEntropyLoss(weight, label_smoothing)(logits, labels) of all images, which is the mean over
 * micro-batches of any size. */
static void losses_are_weighted_means(void **state)
{
    static const struct {
        double smoothing, want;
    } cases[] = {{0, 1.37833108}, {0.1, 1.52599929}};
    for (int k = 0; k < 2; k++) {
        struct target_options options = {.classes = CLASSES, .weights = weights,
                                         .label_smoothing = cases[k].smoothing};
        float whole[COUNT][ROW], targets[COUNT][ROW];
        make(&options, COUNT, labels, whole);
        expect(loss_of(whole, 0, COUNT), cases[k].want);
        for (int i = 0; i < COUNT; i++) assert_true(whole[i][CLASSES] == (float)labels[i]);
        for (int together = 1; together < COUNT; together *= 2) {
            make(&options, together, labels, targets);
            assert_memory_equal(targets, whole, sizeof whole);
        }
    }
}

/* CrossEntropyLoss(weight, label_smoothing)(logits, probabilities). */
static void weighted_losses_of_mixed_images(void **state)
{
    static const double smoothing[] = {0, 0.1}, want[] = {3.0445734, 3.20405571};
    const struct mix mix = {.together = COUNT, .share = 0.75f};
    for (int k = 0; k < 2; k++) {
        const struct target_options options = {.classes = CLASSES, .weights = weights,
                                               .label_smoothing = smoothing[k], .together = COUNT};
        float targets[COUNT][ROW];
        targets_make(&options, &mix, 1, labels, COUNT, targets[0]);
        expect(loss_of(targets, 0, COUNT), want[k]);
    }
}

/* A micro-batch without weight is without loss, and so is a batch. */
static void classes_without_weight(void **state)
{
    const double some[CLASSES] = {0, 0, 1, 1};
    struct target_options options = {.classes = CLASSES, .weights = some};
    float targets[COUNT][ROW];
    make(&options, 2, (int32_t[]){0, 1, 1, 2}, targets);
    assert_true(loss_of(targets, 0, 2) == 0);
    assert_true(targets[3][2] == 4 && targets[2][1] == 0 && targets[2][CLASSES] == 1);
    make(&options, 2, (int32_t[]){0, 1, 1, 0}, targets);
    assert_true(loss_of(targets, 0, COUNT) == 0);
}

/* Labels of each image are mixed with the one's before it; weights follow; smoothing is towards 1/2. */
static void several_labels(void **state)
{
    static const double positive[2] = {3, 0.5};
    const struct target_options options = {2, positive, 0.2, 2, TARGET_LABELS, 0, 1};
    struct mix mix = {.together = 2, .share = 0.75f};
    float targets[4][5] = {{1, 0}, {1, 1}, {0, 0}, {0, 1}};
    assert_int_equal(targets_row(&options), 5);
    targets_finish(&options, NULL, 2, targets[0]);
    targets_finish(&options, &mix, 2, targets[2]);
    static const float want[4][5] = {{0.9f, 0.1f, -1, 3, 0.5f}, {0.9f, 0.9f, -1, 3, 0.5f},
                                     {0.1f, 0.3f, -1, 3, 0.5f}, {0.1f, 0.7f, -1, 3, 0.5f}};
    for (int i = 0; i < 20; i++) assert_true(fabsf(targets[i / 5][i % 5] - want[i / 5][i % 5]) < 1e-6f);
}

static double number_of(const struct dataset *dataset, int64_t index) { return index == 0 ? 14 : 6; }

static void numbers_are_normalised(void **state)
{
    const struct target_options options = {.classes = 1, .together = 2, .kind = TARGET_NUMBER, .mean = 10,
                                           .std = 4};
    const struct mix mix = {.together = 2, .share = 0.75f};
    const struct format format = {.number = number_of};
    const struct dataset dataset = {.format = &format, .target = TARGET_NUMBER, .classes = 1};
    float targets[2][2];
    for (int i = 0; i < 2; i++) dataset_target(&dataset, i, options.mean, options.std, targets[i]);
    targets_finish(&options, &mix, 2, targets[0]);
    assert_true(targets[0][0] == 0.5f && targets[1][0] == -0.5f && targets[0][1] == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_share_the_classes),
        cmocka_unit_test(losses_are_weighted_means),
        cmocka_unit_test(weighted_losses_of_mixed_images),
        cmocka_unit_test(classes_without_weight),
        cmocka_unit_test(several_labels),
        cmocka_unit_test(numbers_are_normalised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
