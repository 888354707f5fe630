/* Scores of classes and labels: random cases with many equal values beside plain loops over all pairs;
 * degenerate ones by hand; and (`test_scores dump`) cases for scikit-learn to check (test_tasks.sh). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "evaluate/evaluate.h"
#include "evaluate/scores.h"
#include "task/ranking.h"
#include "train/results.h"
#include "tests/support/unit.h"

#define CASES 20

static void expect(double got, double want)
{
    if (!(fabs(got - want) < 1e-9) && !(isnan(got) && isnan(want))) fail_msg("%.17g, not %.17g", got, want);
}

/* ---- Rankings ---- */

/* All pairs; and the precision at each positive's value, over all positives. */
static struct ranking ranking_slowly(const float *values, const uint8_t *sides, int64_t count)
{
    struct ranking ranking = {0};
    double won = 0, precisions = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t hits = 0, taken = 0;
        if (sides[i] == RANKING_NEGATIVE) ranking.negatives++;
        if (sides[i] != RANKING_POSITIVE) continue;
        ranking.positives++;
        for (int64_t k = 0; k < count; k++) {
            if (sides[k] == RANKING_NONE) continue;
            if (sides[k] == RANKING_NEGATIVE)
                won += values[i] > values[k] ? 1 : values[i] == values[k] ? 0.5 : 0;
            hits += sides[k] == RANKING_POSITIVE && values[k] >= values[i];
            taken += values[k] >= values[i];
        }
        if (taken > 0) precisions += (double)hits / (double)taken;
    }
    ranking.roc_auc = won / (double)(ranking.positives * ranking.negatives);
    ranking.average_precision = precisions / (double)ranking.positives;
    return ranking;
}

static void rankings_are_those_of_all_pairs(void **state)
{
    for (uint64_t number = 0; number < 60; number++) {
        struct random random = random_open(number, PURPOSE_TEST, 3, 0);
        int64_t count = random_below(&random, 300);
        uint32_t steps = 1 + random_below(&random, number % 3 ? 40 : 100000);
        double share = number % 5 ? random_uniform(&random) : (double)(number % 2);
        float values[300];
        uint8_t sides[300];
        for (int64_t i = 0; i < count; i++) {
            values[i] = (float)random_below(&random, steps) / 7 - 1;
            sides[i] = random_uniform(&random) < share;
            if (number % 4 == 3 && random_below(&random, 8) == 0) sides[i] = RANKING_NONE;
            if (number % 7 == 6 && random_below(&random, 8) == 0) values[i] = NAN;
        }
        const struct ranking got = ranking_of(values, 1, sides, count);
        const struct ranking want = ranking_slowly(values, sides, count);
        assert_true(got.positives == want.positives && got.negatives == want.negatives);
        expect(got.roc_auc, want.roc_auc);
        expect(got.average_precision, want.average_precision);
    }
}

/* ---- Classes ---- */

struct made {
    int classes;
    int64_t images;
    float *logits;
    struct evaluation evaluation;
    struct data data;
};

static char *names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

/* Makes what evaluate() keeps. The last image is unusable, some are not finite; every third case has a class
 * that is never predicted, and one without images. */
static struct made made_open(uint64_t number)
{
    struct random random = random_open(number, PURPOSE_TEST, 4, 0);
    struct made made = {.classes = number % 3 == 1 ? 2 : 1 + (int)random_below(&random, 8),
                        .images = 2 + random_below(&random, 150)};
    size_t count = (size_t)made.images * (size_t)made.classes;
    float *scores = memory_new((size_t)made.classes, sizeof *scores);
    made.logits = memory_new(count, sizeof *made.logits);
    made.data = (struct data){.target = TARGET_CLASS, .classes = made.classes, .class_names = names};
    struct evaluation *evaluation = &made.evaluation;
    evaluation->seen = made.images;
    evaluation->answers = memory_new((size_t)made.images, sizeof *evaluation->answers);
    evaluation->scores = memory_new(count, sizeof *evaluation->scores);
    for (int64_t i = 0; i < made.images; i++) {
        float *logits = made.logits + i * made.classes;
        struct answer *answer = &evaluation->answers[i];
        answer->label = i == made.images - 1 ? -1 : (int32_t)random_below(&random, (uint32_t)made.classes);
        if (number % 3 == 0 && answer->label == made.classes - 1) answer->label = 0;
        for (int k = 0; k < made.classes; k++)
            logits[k] = (float)random_below(&random, 6) / 2 + (k == answer->label) -
                        4 * (number % 3 == 0 && k == 1);
        int best = evaluate_best(logits, made.classes);
        answer->confidence = (float)evaluate_confidence(logits, made.classes, best, scores);
        answer->predicted = number % 4 == 2 && i % 9 == 4 ? -1 : best;
        for (int k = 0; k < made.classes; k++)
            evaluation->scores[k * made.images + i] =
                answer->label < 0 || answer->predicted < 0 ? (float)NAN : scores[k];
        if (answer->label < 0) continue;
        *array_push(evaluation->cells, evaluation->images) =
            answer->predicted < 0 ? -1 - answer->label : answer->label * made.classes + answer->predicted;
        evaluation->lost += answer->predicted < 0;
    }
    evaluation_sort(evaluation);
    free(scores);
    return made;
}

static void made_free(struct made *made)
{
    evaluation_free(&made->evaluation);
    free(made->logits);
}

static double ratio(double part, double of) { return of > 0 ? part / of : (double)NAN; }

/* Counts of one class by a loop of its own. */
static void check_class(const struct made *made, int class, const struct class_score *score)
{
    double images = 0, predicted = 0, hits = 0;
    float values[200];
    uint8_t sides[200];
    for (int64_t i = 0; i < made->images; i++) {
        const struct answer *answer = &made->evaluation.answers[i];
        const float *logits = made->logits + i * made->classes;
        double sum = 0;
        for (int k = 0; k < made->classes; k++) sum += exp((double)logits[k]);
        bool lost = answer->predicted < 0;
        values[i] = lost ? NAN : (float)(round(1e9 * exp((double)logits[class]) / sum) * 1e-9);
        sides[i] = answer->label < 0 ? RANKING_NONE : answer->label == class;
        if (answer->label < 0) continue;
        images += answer->label == class;
        predicted += answer->predicted == class;
        hits += answer->label == class && answer->predicted == class;
    }
    const struct ranking want = ranking_slowly(values, sides, made->images);
    expect(score->values.precision, ratio(hits, predicted));
    expect(score->values.recall, ratio(hits, images));
    expect(score->values.f1, ratio(2 * hits, images + predicted));
    expect(score->values.roc_auc, want.roc_auc);
    expect(score->values.average_precision, want.average_precision);
}

static void check_calibration(const struct made *made, const struct scores *scores)
{
    double error = 0, all = 0;
    for (int bin = 0; bin < 15; bin++) {
        double sum = 0, right = 0;
        for (int64_t i = 0; i < made->images; i++) {
            const struct answer *answer = &made->evaluation.answers[i];
            double p = (double)answer->confidence;
            if (answer->label < 0 || answer->predicted < 0) continue;
            if (!(p > bin / 15.0 && p <= (bin + 1) / 15.0)) continue;
            sum += p;
            right += answer->label == answer->predicted;
            all++;
        }
        error += fabs(sum - right);
    }
    expect(scores->ece, ratio(error, all));
}

static void check_steps(const struct made *made, const struct scores *scores)
{
    for (int s = 0; s < SCORES_STEPS; s++) {
        double taken = 0, right = 0, positives = 0, count = 0;
        for (int64_t i = 0; i < made->images; i++) {
            const struct answer *answer = &made->evaluation.answers[i];
            bool two = made->classes == 2, lost = answer->predicted < 0;
            double p = (double)answer->confidence;
            if (answer->label < 0) continue;
            if (two && answer->predicted == 0) p = 1 - p;
            bool hit = two ? answer->label == 1 : answer->label == answer->predicted;
            count++;
            positives += !two || hit;
            taken += !lost && p >= (s + 1) / 20.0;
            right += !lost && p >= (s + 1) / 20.0 && hit;
        }
        assert_true(scores->count == (int64_t)count);
        expect(score_step_precision(&scores->steps[s]), ratio(right, taken));
        expect(score_step_recall(scores, s), ratio(right, positives));
    }
}

static void scores_of_classes(void **state)
{
    for (uint64_t number = 0; number < CASES; number++) {
        struct made made = made_open(number);
        struct scores scores = scores_of(&made.evaluation, &made.data);
        double sum = 0, weighted = 0, defined = 0, images = 0;
        for (int c = 0; c < made.classes; c++) {
            const struct class_score *score = &scores.each[c];
            check_class(&made, c, score);
            if (isnan(score->values.precision)) continue;
            sum += score->values.precision;
            weighted += (double)score->images * score->values.precision;
            images += (double)score->images;
            defined++;
        }
        expect(scores.macro.precision, ratio(sum, defined));
        expect(scores.weighted.precision, ratio(weighted, images));
        check_calibration(&made, &scores);
        check_steps(&made, &scores);
        scores_free(&scores);
        made_free(&made);
    }
}

/* Probabilities next to 1 differ less than floats do, but are kept apart. */
static void certain_images_are_ranked(void **state)
{
    float one[3], other[3], even[2];
    expect(evaluate_confidence((float[]){40, 0, 1}, 3, 0, one), 1);
    expect(evaluate_confidence((float[]){41, 0, 1}, 3, 0, other), 1);
    assert_true(other[0] > one[0] && other[1] < one[1] && one[2] > one[1]);
    expect(evaluate_confidence((float[]){2, 2}, 2, 0, even), 0.5);
    expect((double)even[0], (double)(float)log(0.5));
    evaluate_confidence((float[]){0.01f, 0}, 2, 0, one);
    assert_true(one[0] > even[0] && one[1] < even[1]);
    expect(evaluate_confidence((float[]){3}, 1, 0, one), 1);
}

/* A class that no image has, and one that is never predicted, are null and named; without scores ROC AUC is
 * not mentioned. */
static void undefined_scores_are_named(void **state)
{
    struct answer answers[] = {{0, 0, 0.9f}, {1, 0, 0.6f}, {0, 0, 0.5f}};
    int64_t cells[] = {0, 0, 3};
    const struct evaluation evaluation = {.images = 3, .errors = 1, .cells = cells, .answers = answers,
                                          .seen = 3};
    const struct data data = {.target = TARGET_CLASS, .classes = 3, .class_names = names};
    struct text out = {0};
    struct progress_table table = {.count = 0};
    results_json(&evaluation, &data, &out);
    assert_non_null(strstr(out.data, "{\"class\":\"b\",\"images\":1,\"accuracy\":0,\"precision\":null,"
                                     "\"recall\":0,\"f1\":0}"));
    assert_non_null(strstr(out.data, "{\"class\":\"c\",\"images\":0,\"accuracy\":null,\"precision\":null,"
                                     "\"recall\":null,\"f1\":null}"));
    assert_non_null(strstr(out.data, "\"macro\":{\"precision\":0.666666667,\"recall\":0.5,\"f1\":0.4}"));
    assert_null(strstr(out.data, "roc_auc"));
    text_free(&out);
    results_add(&evaluation, &data, "", &table);
    assert_string_equal(table.rows[table.count - 2].name, "classes without an image");
    assert_string_equal(table.rows[table.count - 2].value, "c");
    assert_string_equal(table.rows[table.count - 1].name, "never predicted");
    assert_string_equal(table.rows[table.count - 1].value, "b, c");
}

/* ---- Cases for scikit-learn ---- */

static void dump_floats(const char *key, const float *values, int64_t count)
{
    printf(",\"%s\":[", key);
    for (int64_t i = 0; i < count; i++) printf("%s%.9g", i ? "," : "", (double)values[i]);
    printf("]");
}

static void dump_results(const struct evaluation *evaluation, const struct data *data)
{
    struct text out = {0};
    results_json(evaluation, data, &out);
    printf(",%s}\n", out.data);
    text_free(&out);
}

static void dump_classes(uint64_t number)
{
    struct made made = made_open(number);
    printf("{\"of\":%d", made.classes);
    dump_floats("logits", made.logits, made.images * made.classes);
    printf(",\"truth\":[");
    for (int64_t i = 0; i < made.images; i++) {
        const struct answer *answer = &made.evaluation.answers[i];
        printf("%s%d", i ? "," : "", answer->predicted < 0 ? -1 : answer->label);
        if (answer->predicted < 0) made.evaluation.answers[i].label = -1;
    }
    printf("]");
    dump_results(&made.evaluation, &made.data);
    made_free(&made);
}

static void dump_labels(uint64_t number)
{
    struct random random = random_open(number, PURPOSE_TEST, 5, 0);
    int labels = 1 + (int)random_below(&random, 8);
    int64_t images = 2 + random_below(&random, 200), count = images * labels;
    float *values = memory_new((size_t)count, sizeof *values);
    float *targets = memory_new((size_t)count, sizeof *targets);
    double thresholds[8];
    for (int64_t i = 0; i < count; i++) {
        targets[i] = random_uniform(&random) < 0.3 && !(number % 3 == 0 && i % labels == 0);
        values[i] = (float)(random_below(&random, 21) + 5 * (uint32_t)targets[i]) / 25;
    }
    for (int i = 0; i < labels; i++) thresholds[i] = random_uniform(&random);
    const struct evaluation evaluation = {.images = images, .outputs = {images, labels, values, targets}};
    const struct data data = {.target = TARGET_LABELS, .classes = labels, .class_names = names,
                              .thresholds = thresholds};
    printf("{\"of\":%d", labels);
    dump_floats("values", values, count);
    dump_floats("targets", targets, count);
    dump_results(&evaluation, &data);
    free(values);
    free(targets);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rankings_are_those_of_all_pairs),
        cmocka_unit_test(scores_of_classes),
        cmocka_unit_test(certain_images_are_ranked),
        cmocka_unit_test(undefined_scores_are_named),
    };
    if (count == 2 && strcmp(words[1], "dump") == 0) {
        for (uint64_t i = 0; i < CASES; i++) dump_classes(i);
        for (uint64_t i = 0; i < CASES; i++) dump_labels(i);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
