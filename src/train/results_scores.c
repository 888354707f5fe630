#include "train/results_scores.h"

#include <math.h>

#include "base/members.h"

#define LISTED 8
#define NAME_ROOM 32

/* For people. */

static const char *number_text(double value, bool percent, char text[TEXT_NUMBER])
{
    if (isnan(value)) return "undefined";
    return percent ? text_number(100 * value, 2, "%", text) : text_number(value, 4, NULL, text);
}

static void add_means(const char *name, const struct scores *scores, const struct score_values *means,
                      const char *when, struct progress_table *table)
{
    char number[5][TEXT_NUMBER];
    const char *precision = number_text(means->precision, true, number[0]);
    const char *recall = number_text(means->recall, true, number[1]);
    const char *f1 = number_text(means->f1, true, number[2]);
    if (scores->ranked)
        progress_table_add(table, name, "precision %s, recall %s, F1 %s, ROC AUC %s, average precision %s%s",
                           precision, recall, f1, number_text(means->roc_auc, false, number[3]),
                           number_text(means->average_precision, true, number[4]), when);
    else
        progress_table_add(table, name, "precision %s, recall %s, F1 %s%s", precision, recall, f1, when);
}

/* Classes that a score is not defined for. */
static void add_undefined(const char *name, const struct scores *scores, const struct data *data, bool images,
                          const char *when, struct progress_table *table)
{
    struct text out = {0};
    char shown[NAME_ROOM];
    int count = 0;
    for (int i = 0; i < scores->classes; i++) {
        const struct class_score *score = &scores->each[i];
        if ((images ? score->images : score->predicted) > 0 || count++ >= LISTED) continue;
        text_add(&out, "%s%s", count > 1 ? ", " : "", text_visible(data->class_names[i], shown, NAME_ROOM));
    }
    if (count > LISTED) text_add(&out, " and %d more", count - LISTED);
    if (count > 0) progress_table_add(table, name, "%s%s", out.data, when);
    text_free(&out);
}

void results_scores_add(const struct scores *scores, const struct data *data, const char *when,
                        struct progress_table *table)
{
    char number[TEXT_NUMBER];
    bool labels = data->target == TARGET_LABELS;
    add_means("macro", scores, &scores->macro, when, table);
    add_means("weighted", scores, &scores->weighted, when, table);
    if (!isnan(scores->ece))
        progress_table_add(table, "calibration error", "%s (ECE, %d bins)%s",
                           number_text(scores->ece, true, number), SCORES_BINS, when);
    add_undefined(labels ? "labels without an image" : "classes without an image", scores, data, true, when,
                  table);
    add_undefined("never predicted", scores, data, false, when, table);
}

/* JSON. */

static void add_values(const struct scores *scores, const struct score_values *values, struct text *object)
{
    member_number(object, "precision", values->precision);
    member_number(object, "recall", values->recall);
    member_number(object, "f1", values->f1);
    if (!scores->ranked) return;
    member_number(object, "roc_auc", values->roc_auc);
    member_number(object, "average_precision", values->average_precision);
}

void results_scores_class(const struct scores *scores, int class, struct text *object)
{
    add_values(scores, &scores->each[class].values, object);
}

static void add_mean(const char *key, const struct scores *scores, const struct score_values *means,
                     struct text *object)
{
    member_key(object, key);
    text_add(object, "{");
    add_values(scores, means, object);
    text_add(object, "}");
}

static void add_calibration(const struct scores *scores, struct text *object)
{
    member_key(object, "calibration");
    text_add(object, "{");
    member_number(object, "ece", scores->ece);
    member_key(object, "bins");
    for (int i = 0; i < SCORES_BINS; i++) {
        const struct score_bin *bin = &scores->bins[i];
        double count = bin->count > 0 ? (double)bin->count : (double)NAN;
        text_add(object, i ? ",{" : "[{");
        member_number(object, "to", (i + 1) / (double)SCORES_BINS);
        member_integer(object, "count", bin->count);
        member_number(object, "probability", bin->probability / count);
        member_number(object, "right", (double)bin->right / count);
        text_add(object, "}");
    }
    text_add(object, "]}");
}

static void add_steps(const struct scores *scores, struct text *object)
{
    member_key(object, "thresholds");
    for (int i = 0; i < SCORES_STEPS; i++) {
        const struct score_step *step = &scores->steps[i];
        double precision = score_step_precision(step), recall = score_step_recall(scores, i);
        text_add(object, i ? ",{" : "[{");
        member_number(object, "from", step->threshold);
        member_number(object, "share", (double)step->taken / (double)scores->count);
        member_number(object, "precision", precision);
        member_number(object, "recall", recall);
        text_add(object, "}");
    }
    text_add(object, "]");
}

void results_scores_json(const struct scores *scores, const struct data *data, struct text *object)
{
    add_mean("macro", scores, &scores->macro, object);
    add_mean("weighted", scores, &scores->weighted, object);
    add_calibration(scores, object);
    if (scores->positive >= 0) member_bytes(object, "positive", data->class_names[scores->positive]);
    add_steps(scores, object);
}
