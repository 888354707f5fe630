/* run_report_scores.c: scores.json: scores by class or label, and how far probabilities can be trusted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/chart.h"
#include "report/run_report_parts.h"
#include "train/results.h"

#define LISTED 1000          /* classes */

/* NAN if it is null or missing. */
static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void add_percent(const json_t *object, const char *key, struct text *out)
{
    html_number(out, 100 * number_of(object, key), 1);
}

static void add_scores_row(const json_t *score, struct text *out)
{
    add_percent(score, "precision", out);
    add_percent(score, "recall", out);
    add_percent(score, "f1", out);
    html_number(out, number_of(score, "roc_auc"), 4);
    add_percent(score, "average_precision", out);
    text_add(out, "</tr>\n");
}

static void add_mean_row(const json_t *scores, const char *key, struct text *out)
{
    text_add(out, "<tr><td><b>%s mean</b></td><td></td>", key);
    add_scores_row(json_object_get(scores, key), out);
}

/* The lowest F1 first, and last the classes that have none. */
static int by_f1(const void *a, const void *b)
{
    const json_t *const *x = a, *const *y = b;
    double one = number_of(*x, "f1"), other = number_of(*y, "f1");
    if (isnan(one) != isnan(other)) return isnan(one) ? 1 : -1;
    return one < other ? -1 : one > other;
}

static void add_table(const json_t *scores, const json_t *each, const char *what, struct text *out)
{
    size_t count = json_array_size(each);
    const json_t **sorted = memory_new(count + 1, sizeof *sorted);
    for (size_t i = 0; i < count; i++) sorted[i] = json_array_get(each, i);
    qsort(sorted, count, sizeof *sorted, by_f1);
    text_add(out, "<div class=\"scroll\"><table><thead><tr><th>%s</th><th class=\"n\">images</th>"
             "<th class=\"n\">precision, %%</th><th class=\"n\">recall, %%</th><th class=\"n\">F1, %%</th>"
             "<th class=\"n\">ROC AUC</th><th class=\"n\">average precision, %%</th></tr></thead><tbody>\n",
             what);
    add_mean_row(scores, "macro", out);
    add_mean_row(scores, "weighted", out);
    for (size_t i = 0; i < count && i < LISTED; i++) {
        const char *name = json_string_value(json_object_get(sorted[i], what));
        text_add(out, "<tr>");
        html_cell(out, name ? name : "");
        html_number(out, number_of(sorted[i], "images"), 0);
        add_scores_row(sorted[i], out);
    }
    text_add(out, "</tbody></table></div>\n");
    free(sorted);
}

/* The numbers of a key in the objects of an array, [count], which the caller frees. */
static double *column_of(const json_t *array, const char *key, double scale)
{
    size_t count = json_array_size(array);
    double *column = memory_new(count + 1, sizeof *column);
    for (size_t i = 0; i < count; i++) column[i] = scale * number_of(json_array_get(array, i), key);
    return column;
}

static void add_reliability(const json_t *calibration, struct text *out)
{
    const json_t *bins = json_object_get(calibration, "bins");
    double *probability = column_of(bins, "probability", 100), *right = column_of(bins, "right", 100);
    const struct scatter diagram = {
        .title = "Reliability", .x_name = "mean probability, %", .y_name = "right, %", .x = probability,
        .y = right, .count = (int64_t)json_array_size(bins),
    };
    text_add(out, "<div><h3>Calibration</h3>\n<p class=\"grey\">What probabilities say, in %zu groups, and "
             "how often it is so; below the line the network is too sure of itself. Expected calibration "
             "error: %.2f %%.</p>\n", json_array_size(bins), 100 * number_of(calibration, "ece"));
    chart_add_scatter(&diagram, out);
    text_add(out, "</div>\n");
    free(probability);
    free(right);
}

static void add_thresholds(const json_t *steps, const char *positive, bool labels, struct text *out)
{
    size_t i;
    const json_t *step;
    text_add(out, "<div><h3>Thresholds</h3>\n<p class=\"grey\">If only ");
    if (positive) {
        text_add(out, "probabilities of ");
        text_html(out, positive);
    } else {
        text_add(out, labels ? "labels" : "predictions");
    }
    text_add(out, " from a threshold on were taken.</p>\n<div class=\"scroll\"><table><thead><tr>"
             "<th class=\"n\">from</th><th class=\"n\">taken, %%</th><th class=\"n\">precision, %%</th>"
             "<th class=\"n\">recall, %%</th></tr></thead><tbody>\n");
    json_array_foreach(steps, i, step) {
        text_add(out, "<tr>");
        html_number(out, number_of(step, "from"), 2);
        add_percent(step, "share", out);
        add_percent(step, "precision", out);
        add_percent(step, "recall", out);
        text_add(out, "</tr>\n");
    }
    text_add(out, "</tbody></table></div></div>\n");
}

void report_add_scores(const struct run_records *records, struct text *out)
{
    json_t *scores = records_json(records, SCORES_FILE);
    const json_t *classes = json_object_get(scores, "classes"), *labels = json_object_get(scores, "labels");
    if (classes || labels) {
        html_section(out, "scores", "Scores");
        text_add(out, "<p class=\"grey\">Validation images in the best epoch%s, the lowest F1 first. ROC AUC "
                 "and average precision do not depend on thresholds.</p>\n",
                 labels ? ", with the threshold of each label" : "");
        add_table(scores, classes ? classes : labels, classes ? "class" : "label", out);
        text_add(out, "<div class=\"pair\">\n");
        add_reliability(json_object_get(scores, "calibration"), out);
        add_thresholds(json_object_get(scores, "thresholds"),
                       json_string_value(json_object_get(scores, "positive")), labels != NULL, out);
        text_add(out, "</div>\n");
    }
    json_decref(scores);
}
