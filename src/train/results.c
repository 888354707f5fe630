#include "train/results.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/csv.h"
#include "base/log.h"
#include "base/members.h"
#include "base/memory.h"
#include "train/results_labels.h"
#include "train/results_masks.h"
#include "train/results_scores.h"

double *results_per_class(const struct evaluation *evaluation, int classes)
{
    int64_t *images = memory_new((size_t)classes, sizeof *images);
    double *accuracy = memory_new((size_t)classes, sizeof *accuracy);
    for (int64_t i = 0; i < evaluation->images; i++) {
        int64_t cell = evaluation->cells[i], label = evaluation_label(cell, classes);
        images[label]++;
        accuracy[label] += cell == label * classes + label;
    }
    for (int i = 0; i < classes; i++) accuracy[i] = images[i] > 0 ? accuracy[i] / (double)images[i] : NAN;
    free(images);
    return accuracy;
}

static double mean_of_finite(const double *values, int count)
{
    double sum = 0;
    int finite = 0;
    for (int i = 0; i < count; i++) {
        if (isnan(values[i])) continue;
        sum += values[i];
        finite++;
    }
    return sum / finite;
}

/* Lists for people. */

#define LISTED 5
#define NAME_ROOM 32

/* A class, or a cell of the confusion matrix; those of the smallest key come first. */
struct ranked {
    double key;
    int64_t id;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Returns how many are listed, at most `most`. */
static int rank(struct ranked *ranked, int64_t count, int most)
{
    if (count > 0) qsort(ranked, (size_t)count, sizeof *ranked, compare_ranked);
    return count < most ? (int)count : most;
}

static const char *name_of(const struct data *data, int64_t class, char name[NAME_ROOM])
{
    return text_visible(data->class_names[class], name, NAME_ROOM);
}

static void list_worst(const double *accuracy, const struct data *data, struct text *out)
{
    struct ranked *worst = NULL;
    char name[NAME_ROOM];
    int64_t count = 0;
    for (int i = 0; i < data->classes; i++)
        if (accuracy[i] < 1) *array_push(worst, count) = (struct ranked){accuracy[i], i};
    int listed = rank(worst, count, LISTED);
    for (int i = 0; i < listed; i++)
        text_add(out, "%s%s (%.2f %%)", i ? ", " : "", name_of(data, worst[i].id, name), 100 * worst[i].key);
    free(worst);
}

/* Cells off the diagonal, with minus their images; images of one cell are adjacent. The caller frees them. */
static struct ranked *find_confusions(const struct evaluation *evaluation, int64_t classes, int64_t *found)
{
    const int64_t *cells = evaluation->cells;
    int64_t count = 0;
    struct ranked *confusions = NULL;
    for (int64_t i = 0; i < evaluation->images; i++) {
        if (cells[i] < 0 || cells[i] / classes == cells[i] % classes) continue;
        if (count == 0 || confusions[count - 1].id != cells[i])
            *array_push(confusions, count) = (struct ranked){0, cells[i]};
        confusions[count - 1].key--;
    }
    *found = count;
    return confusions;
}

static void list_confusions(const struct evaluation *evaluation, const struct data *data, struct text *out)
{
    int64_t classes = data->classes, count;
    char label[NAME_ROOM], predicted[NAME_ROOM];
    struct ranked *confusions = find_confusions(evaluation, classes, &count);
    int listed = rank(confusions, count, LISTED);
    for (int i = 0; i < listed; i++)
        text_add(out, "%s%s as %s (%.0f)", i ? ", " : "", name_of(data, confusions[i].id / classes, label),
                 name_of(data, confusions[i].id % classes, predicted), -confusions[i].key);
    free(confusions);
}

static void add_accuracies(const struct evaluation *evaluation, const struct data *data, const char *when,
                           struct progress_table *table)
{
    double *accuracy = results_per_class(evaluation, data->classes);
    struct text worst = {0}, confusions = {0};
    list_worst(accuracy, data, &worst);
    list_confusions(evaluation, data, &confusions);
    char of[48] = "";
    int evaluated = 0;
    for (int i = 0; i < data->classes; i++) evaluated += !isnan(accuracy[i]);
    if (evaluated < data->classes) snprintf(of, sizeof of, " of %d of %d classes", evaluated, data->classes);
    progress_table_add(table, "balanced accuracy", "%.2f %%%s%s",
                       100 * mean_of_finite(accuracy, data->classes), of, when);
    if (worst.data) progress_table_add(table, "worst classes", "%s%s", worst.data, when);
    if (confusions.data) progress_table_add(table, "most confused", "%s%s", confusions.data, when);
    text_free(&worst);
    text_free(&confusions);
    free(accuracy);
}

/* True for classes and for labels. */
static bool has_scores(const struct data *data) { return data->target <= TARGET_LABELS; }

void results_add(const struct evaluation *evaluation, const struct data *data, const char *when,
                 struct progress_table *table)
{
    if (evaluation->lost > 0)
        progress_table_add(table, "not finite", "%" PRId64 " of %" PRId64 " images%s", evaluation->lost,
                           evaluation->images, when);
    if (data->target == TARGET_MASK) results_masks_add(evaluation, data, when, table);
    if (!has_scores(data)) return;
    struct scores scores = scores_of(evaluation, data);
    if (data->target == TARGET_LABELS) results_labels_add(&scores, data, when, table);
    else add_accuracies(evaluation, data, when, table);
    results_scores_add(&scores, data, when, table);
    scores_free(&scores);
}

/* JSON. */

#define CONFUSIONS_MAX 100

static void add_classes(const struct evaluation *evaluation, const struct scores *scores,
                        const struct data *data, struct text *out)
{
    double *accuracy = results_per_class(evaluation, data->classes);
    member_number(out, "balanced_accuracy", mean_of_finite(accuracy, data->classes));
    member_key(out, "classes");
    for (int i = 0; i < data->classes; i++) {
        text_add(out, i ? ",{" : "[{");
        member_bytes(out, "class", data->class_names[i]);
        member_integer(out, "images", scores->each[i].images);
        member_number(out, "accuracy", accuracy[i]);
        results_scores_class(scores, i, out);
        text_add(out, "}");
    }
    text_add(out, "]");
    free(accuracy);
}

static void add_confusions(const struct evaluation *evaluation, const struct data *data, struct text *out)
{
    int64_t classes = data->classes, count;
    struct ranked *confusions = find_confusions(evaluation, classes, &count);
    int listed = rank(confusions, count, CONFUSIONS_MAX);
    member_key(out, "confusions");
    text_add(out, "[");
    for (int i = 0; i < listed; i++) {
        text_add(out, i ? ",{" : "{");
        member_bytes(out, "class", data->class_names[confusions[i].id / classes]);
        member_bytes(out, "predicted", data->class_names[confusions[i].id % classes]);
        member_integer(out, "images", (int64_t)-confusions[i].key);
        text_add(out, "}");
    }
    text_add(out, "]");
    free(confusions);
}

void results_json(const struct evaluation *evaluation, const struct data *data, struct text *object)
{
    if (data->target == TARGET_MASK) results_masks_json(evaluation, data, object);
    if (!has_scores(data)) return;
    struct scores scores = scores_of(evaluation, data);
    if (data->target == TARGET_LABELS) results_labels_json(&scores, data, object);
    else add_classes(evaluation, &scores, data, object);
    if (data->target <= TARGET_CLASS) add_confusions(evaluation, data, object);
    results_scores_json(&scores, data, object);
    scores_free(&scores);
}

/* The confusion matrix. */

#define CONFUSION "confusion.csv"
#define CONFUSION_CLASSES 10000   /* limit of classes: a hundred million cells are of no use */

/* The count of a cell: of pixels, or of images, whose sorted cells are read on from *at. */
static int64_t count_cell(const struct evaluation *evaluation, int64_t cell, int64_t *at)
{
    if (evaluation->pixels) return evaluation->pixels[cell];
    int64_t before = *at;
    while (*at < evaluation->images && evaluation->cells[*at] == cell) ++*at;
    return *at - before;
}

static void add_rows(const struct data *data, const struct evaluation *evaluation, struct text *out)
{
    int64_t classes = data->classes, at = 0;
    while (evaluation->cells && at < evaluation->images && evaluation->cells[at] < 0) at++;
    text_add(out, "true\\predicted");
    for (int i = 0; i < classes; i++) {
        text_add(out, ",");
        csv_text(out, data->class_names[i]);
    }
    for (int64_t cell = 0; cell < classes * classes; cell++) {
        if (cell % classes == 0) {
            text_add(out, "\n");
            csv_text(out, data->class_names[cell / classes]);
        }
        text_add(out, ",%" PRId64, count_cell(evaluation, cell, &at));
    }
    text_add(out, "\n");
}

static enum status write_confusion(const struct evaluation *evaluation, const struct data *data,
                                   const struct directory *folder)
{
    struct text text = {0};
    if (data->classes > CONFUSION_CLASSES) {
        log_detail("%s is not written for more than %d classes", CONFUSION, CONFUSION_CLASSES);
        return OK;
    }
    add_rows(data, evaluation, &text);
    enum status status = atomic_file_write(folder, CONFUSION, text.data, text.length);
    text_free(&text);
    return status;
}

static enum status write_scores(const struct evaluation *evaluation, const struct data *data,
                                const struct directory *folder)
{
    struct text object = {0};
    text_add(&object, "{");
    member_integer(&object, "scores", 1);
    results_json(evaluation, data, &object);
    text_add(&object, "}\n");
    enum status status = atomic_file_write(folder, SCORES_FILE, object.data, object.length);
    text_free(&object);
    return status;
}

enum status results_write(const struct evaluation *evaluation, const struct images *images,
                          const struct data *data, const struct directory *folder)
{
    struct scores scores = {0};
    enum status status = OK;
    if (data->target == TARGET_LABELS) scores = scores_of(evaluation, data);
    if (data->target == TARGET_LABELS || data->target == TARGET_NUMBER)
        status = results_labels_write(evaluation, &scores, images, data, folder);
    else status = write_confusion(evaluation, data, folder);
    scores_free(&scores);
    return status == OK && has_scores(data) ? write_scores(evaluation, data, folder) : status;
}
