/* Results by class of evaluations made by hand: what confusion.csv, the accuracies and the rows for people
 * are. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include "explain/classifier.h"
#include "train/results.h"
#include "tests/support/unit.h"

static char *names[] = {"a", "the \"b\"", "c\nd", "e"};
static const struct data data = {.classes = 4, .class_names = names};

/* One image of "a" is taken for "e", two of three of "the b" for "c"; of "c" there is none; "e" is right. */
static int64_t cells[] = {0, 0, 3, 5, 6, 6, 15};
static struct answer answers[] = {{0, 0, 1}, {0, 0, 1}, {0, 3, 1}, {1, 1, 1}, {1, 2, 1}, {1, 2, 1},
                                  {3, 3, 1}};
static const struct evaluation evaluation = {.images = 7, .errors = 3, .cells = cells, .answers = answers,
                                             .seen = 7};

static void accuracies(void **state)
{
    double *accuracy = results_per_class(&evaluation, 4);
    assert_true(accuracy[0] == 2.0 / 3 && accuracy[1] == 1.0 / 3 && isnan(accuracy[2]) && accuracy[3] == 1);
    free(accuracy);
}

static void rows(void **state)
{
    struct progress_table table = {.count = 0};
    results_add(&evaluation, &data, " in epoch 3", &table);
    assert_int_equal(table.count, 7);            /* and the scores (test_scores) */
    assert_string_equal(table.rows[0].name, "balanced accuracy");
    assert_string_equal(table.rows[0].value, "66.67 % of 3 of 4 classes in epoch 3");
    assert_string_equal(table.rows[1].value, "the \"b\" (33.33 %), a (66.67 %) in epoch 3");
    assert_string_equal(table.rows[2].value, "the \"b\" as c\\x0ad (2), a as e (1) in epoch 3");
}

static void no_errors(void **state)
{
    struct progress_table table = {.count = 0};
    int64_t right[] = {0, 5, 5};
    struct answer good[] = {{0, 0, 1}, {1, 1, 1}, {1, 1, 1}};
    const struct evaluation all = {.images = 3, .cells = right, .answers = good, .seen = 3};
    results_add(&all, &data, "", &table);
    assert_string_equal(table.rows[1].name, "macro");
    assert_string_equal(table.rows[0].value, "100.00 % of 2 of 4 classes");
}

/* They are in no cell, but count in their class. */
static void lost_images(void **state)
{
    struct progress_table table = {.count = 0};
    int64_t some[] = {-4, -1, 0, 5, 15};
    struct answer found[] = {{3, -1, 1}, {0, -1, 1}, {0, 0, 1}, {1, 1, 1}, {3, 3, 1}};
    const struct evaluation part = {.images = 5, .errors = 2, .lost = 2, .cells = some, .answers = found,
                                    .seen = 5};
    double *accuracy = results_per_class(&part, 4);
    assert_true(accuracy[0] == 0.5 && accuracy[1] == 1 && isnan(accuracy[2]) && accuracy[3] == 0.5);
    free(accuracy);
    results_add(&part, &data, "", &table);
    assert_string_equal(table.rows[0].name, "not finite");
    assert_string_equal(table.rows[0].value, "2 of 5 images");
    assert_string_equal(table.rows[2].name, "worst classes");
    assert_string_equal(table.rows[3].name, "macro");
}

static void json(void **state)
{
    struct text out = {0};
    results_json(&evaluation, &data, &out);
    assert_non_null(strstr(out.data,
        "\"balanced_accuracy\":0.666666667,\"classes\":["
        "{\"class\":\"a\",\"images\":3,\"accuracy\":0.666666667,\"precision\":1,\"recall\":0.666666667,"
        "\"f1\":0.8},"
        "{\"class\":\"the \\\"b\\\"\",\"images\":3,\"accuracy\":0.333333333,\"precision\":1,"));
    assert_non_null(strstr(out.data,
        "\"confusions\":[{\"class\":\"the \\\"b\\\"\",\"predicted\":\"c\\nd\",\"images\":2},"
        "{\"class\":\"a\",\"predicted\":\"e\",\"images\":1}],\"macro\":"));
    text_free(&out);
    int64_t right[] = {0};
    struct answer answer = {0, 0, 1};
    const struct evaluation one = {.images = 1, .cells = right, .answers = &answer, .seen = 1};
    results_json(&one, &data, &out);
    assert_non_null(strstr(out.data, "\"confusions\":[]"));
    text_free(&out);
}

static size_t confusion(const struct evaluation *of, const struct data *in, char *bytes, size_t room)
{
    char path[] = "/tmp/test_results.XXXXXX";
    struct directory folder;
    struct reason reason;
    assert_non_null(mkdtemp(path));
    assert_int_equal(directory_open(path, &folder), OK);
    assert_int_equal(results_write(of, NULL, in, &folder), OK);
    FILE *file = directory_stream(&folder, "confusion.csv", "r", &reason);
    size_t count = file ? fread(bytes, 1, room - 1, file) : 0;
    bytes[count] = '\0';
    if (file) fclose(file);
    directory_remove(&folder, "confusion.csv");
    assert_true(directory_has(&folder, SCORES_FILE));
    directory_remove(&folder, SCORES_FILE);
    directory_close(&folder);
    assert_int_equal(rmdir(path), 0);            /* nothing else is left */
    return count;
}

static void matrix(void **state)
{
    char bytes[1024];
    confusion(&evaluation, &data, bytes, sizeof bytes);
    assert_string_equal(bytes, "true\\predicted,\"a\",\"the \"\"b\"\"\",\"c\\x0ad\",\"e\"\n"
                               "\"a\",2,0,0,1\n\"the \"\"b\"\"\",0,1,2,0\n"
                               "\"c\\x0ad\",0,0,0,0\n\"e\",0,0,0,1\n");
}

/* A table of a hundred million cells helps nobody. */
static void too_many(void **state)
{
    char bytes[16];
    char *many[10001];
    for (int i = 0; i < 10001; i++) many[i] = "a";
    const struct data wide = {.classes = 10001, .class_names = many};
    assert_int_equal(confusion(&evaluation, &wide, bytes, sizeof bytes), 0);
}

/* Ranks are those of kernels/loss/topk.c: NaN last, of equal ones the first. */
static void best(void **state)
{
    assert_int_equal(evaluate_best((float[]){1, 3, 2, 3}, 4), 1);
    assert_int_equal(evaluate_best((float[]){NAN, -INFINITY, 2}, 3), 2);
    assert_int_equal(evaluate_best((float[]){NAN, -INFINITY, NAN}, 3), 1);
    assert_int_equal(evaluate_best((float[]){NAN, NAN}, 2), 0);
}

/* The order is that one, and probabilities are a softmax's. */
static void most_probable(void **state)
{
    struct class_probability top[4];
    const float logits[] = {1, 3, 2, 3};
    classifier_top(logits, 4, 4, top);
    assert_true(top[0].class == 1 && top[1].class == 3 && top[2].class == 2 && top[3].class == 0);
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += top[i].probability;
    assert_float_equal(sum, 1, 1e-12);
    assert_float_equal(top[0].probability / top[2].probability, exp(1), 1e-12);
    classifier_top((float[]){1000, -1000}, 2, 1, top);
    assert_true(top[0].class == 0 && top[0].probability == 1);
}

/* All batches but the last one are full, and that one nearly. */
static void batches(void **state)
{
    assert_int_equal(classifier_batch(0, 64), 1);
    assert_int_equal(classifier_batch(1, 64), 1);
    assert_int_equal(classifier_batch(64, 64), 64);
    assert_int_equal(classifier_batch(65, 64), 33);
    assert_int_equal(classifier_batch(432, 64), 62);
    assert_int_equal(classifier_batch(INT64_C(10000000000), 64), 64);
    assert_int_equal(classifier_batch(3, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accuracies), cmocka_unit_test(rows),     cmocka_unit_test(no_errors),
        cmocka_unit_test(lost_images), cmocka_unit_test(json),
        cmocka_unit_test(matrix),     cmocka_unit_test(too_many), cmocka_unit_test(best),
        cmocka_unit_test(most_probable), cmocka_unit_test(batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
