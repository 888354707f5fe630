/* Metrics of labels and of numbers: by hand, and (`test_task dump`) of random cases with many equal values,
 * for scikit-learn to check (test_tasks.sh). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "task/task.h"
#include "tests/support/unit.h"

static void expect(double got, double want)
{
    if (!(fabs(got - want) < 1e-12) && !(isnan(got) && isnan(want))) fail_msg("%.17g, not %.17g", got, want);
}

static float scores[] = {
    0.9f, 0.2f, 0.5f, 0.8f, 0.2f, 0.5f, 0.8f, 0.7f, 0.4f, 0.3f, 0.1f, 0.3f, 0.1f, 0.6f, 0.5f,
};
static float labels[] = {1, 0, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0};
static const struct task_outputs some = {5, 3, scores, labels};

static const struct data_task *task_for(enum target_kind kind)
{
    return task_of(&(struct data){.target = kind});
}

/* Without images of the third label, its average precision does not count, but its F1, 0, does. */
static void labels_by_hand(void **state)
{
    const struct data data = {.target = TARGET_LABELS, .classes = 3};
    double metrics[TASK_METRICS_MAX], thresholds[3];
    task_for(TARGET_LABELS)->measure(&some, &data, metrics);
    expect(metrics[0], ((1 / 3.0 + 2 / 9.0 + 1 / 4.0) + (1 / 2.0 + 1 / 4.0)) / 2);
    expect(metrics[1], 6 / 13.0);
    expect(metrics[2], (2 / 3.0 + 1 / 2.0) / 3);
    task_for(TARGET_LABELS)->choose(&some, thresholds);
    expect(thresholds[0], (0.3f + (double)0.1f) / 2);
    expect(thresholds[1], (0.7f + (double)0.6f) / 2);
    expect(thresholds[2], 0.5);
}

static void values_that_are_no_numbers_are_not_found(void **state)
{
    float values[] = {NAN, 0.2f, 0.9f}, targets[] = {1, 1, 0};
    const struct task_column column = {values, targets, 3, 1};
    expect(task_average_precision(&column), 1 / 2.0 / 2);
    expect(task_f1(&column, 0.5), 0);
    expect(task_best_threshold(&column), 0.1f);
}

static void numbers_by_hand(void **state)
{
    float predicted[] = {1.5f, 2, 3, 0}, values[] = {1, 2, 3.5f, -1};
    const struct task_outputs outputs = {4, 1, predicted, values};
    double metrics[TASK_METRICS_MAX];
    task_for(TARGET_NUMBER)->measure(&outputs, &(struct data){.value_std = 1}, metrics);
    expect(metrics[0], 0.5);
    expect(metrics[1], sqrt(0.375));
    expect(metrics[2], 0.375);
    expect(metrics[3], 1 - 1.5 / 10.6875);
    float same[] = {2, 2}, other[] = {2, 3};
    task_for(TARGET_NUMBER)->measure(&(struct task_outputs){2, 1, same, same}, &(struct data){.value_std = 1}, metrics);
    expect(metrics[3], 1);
    task_for(TARGET_NUMBER)->measure(&(struct task_outputs){2, 1, other, same}, &(struct data){.value_std = 1}, metrics);
    expect(metrics[3], 0);
}

static void outputs_are_scaled_back(void **state)
{
    const struct data data = {.target = TARGET_NUMBER, .classes = 1, .value_mean = 10, .value_std = 4};
    float value = -0.5f, logits[] = {0, 2, -100};
    struct text said = {0};
    task_of(&data)->activate(&data, &value);
    assert_true(task_value(&data, value) == 8);
    task_of(&data)->say(&data, &value, &said);
    assert_string_equal(said.data, "8");
    text_free(&said);
    const struct data far = {.target = TARGET_NUMBER, .classes = 1, .value_mean = 1700000000.5, .value_std = 1};
    task_value_print(&far, value, &said);
    assert_string_equal(said.data, "1700000000");
    text_free(&said);
    task_of(&far)->say(&far, &(float){0.25f}, &said);
    assert_string_equal(said.data, "1700000000.75");
    text_free(&said);
    task_value_print(&far, NAN, &said);
    assert_string_equal(said.data, "null");
    text_free(&said);
    double thresholds[] = {0.6, 0.7, 0};
    const struct data named = {.target = TARGET_LABELS, .classes = 3, .thresholds = thresholds,
                               .class_names = (char *[]){"a", "b", "c"}};
    task_of(&named)->activate(&named, logits);
    assert_true(logits[0] == 0.5f && fabsf(logits[1] - 0.880797f) < 1e-6f && logits[2] < 1e-30f);
    task_of(&named)->say(&named, logits, &said);
    assert_string_equal(said.data, "b, c");
    text_free(&said);
}

/* Random cases. */

#define CASES 20

static void dump_numbers(const char *key, const float *values, int64_t count)
{
    printf(",\"%s\":[", key);
    for (int64_t i = 0; i < count; i++) printf("%s%.9g", i ? "," : "", (double)values[i]);
    printf("]");
}

static void dump_case(uint64_t number)
{
    struct random random = random_open(number, PURPOSE_TEST, 2, 0);
    int outputs = number % 2 ? 1 : 2 + (int)random_below(&random, 7);
    int64_t images = 5 + random_below(&random, 200), count = images * outputs;
    uint32_t steps = 3 + random_below(&random, 40);
    float *values = memory_new((size_t)count, sizeof *values);
    float *targets = memory_new((size_t)count, sizeof *targets);
    bool labels = number % 2 == 0;
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)random_below(&random, steps + 1) / (float)steps;
        targets[i] = labels ? random_uniform(&random) < 0.3 : (float)random_normal(&random);
    }
    const struct task_outputs all = {images, outputs, values, targets};
    const struct data data = {.target = labels ? TARGET_LABELS : TARGET_NUMBER, .classes = outputs,
                              .value_std = 1};
    double metrics[TASK_METRICS_MAX], *thresholds = memory_new((size_t)outputs, sizeof *thresholds);
    const struct data_task *task = task_of(&data);
    task->measure(&all, &data, metrics);
    printf("{\"outputs\":%d", outputs);
    dump_numbers("values", values, count);
    dump_numbers("targets", targets, count);
    for (int i = 0; task->metrics[i].key; i++) printf(",\"%s\":%.17g", task->metrics[i].key, metrics[i]);
    if (task->choose) task->choose(&all, thresholds);
    for (int i = 0; labels && i < outputs; i++) {
        const struct task_column column = {values + i, targets + i, images, outputs};
        printf("%s%.17g", i ? "," : ",\"f1\":[", task_f1(&column, thresholds[i]));
    }
    printf(labels ? "]}\n" : "}\n");
    free(values);
    free(targets);
    free(thresholds);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_by_hand),
        cmocka_unit_test(values_that_are_no_numbers_are_not_found),
        cmocka_unit_test(numbers_by_hand),
        cmocka_unit_test(outputs_are_scaled_back),
    };
    if (count == 2 && strcmp(words[1], "dump") == 0) {
        for (uint64_t i = 0; i < 2 * CASES; i++) dump_case(i);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
