/* task_multilabel.c: any number of labels an image. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "task/ranking.h"
#include "task/task.h"

#define THRESHOLD 0.5            /* of metrics; labels of predictions have their own */

static void multilabel_activate(const struct data *data, float *outputs)
{
    for (int i = 0; i < data->classes; i++) outputs[i] = (float)(1 / (1 + exp(-(double)outputs[i])));
}

static struct task_column column_of(const struct task_outputs *outputs, int label)
{
    return (struct task_column){outputs->values + label, outputs->targets + label, outputs->images,
                                outputs->outputs};
}

/* A value, and whether the image has the label. */
struct scored {
    float value;
    bool positive;
};

/* NaN last. */
static int by_value(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (isnan(x->value) || isnan(y->value)) return isnan(x->value) - isnan(y->value);
    return x->value < y->value ? 1 : x->value > y->value ? -1 : 0;
}

static struct scored *sort_column(const struct task_column *column, int64_t *positives)
{
    struct scored *sorted = memory_new((size_t)column->count + 1, sizeof *sorted);
    *positives = 0;
    for (int64_t i = 0; i < column->count; i++) {
        sorted[i] = (struct scored){column->values[i * column->stride],
                                    column->targets[i * column->stride] > 0.5f};
        *positives += sorted[i].positive;
    }
    qsort(sorted, (size_t)column->count, sizeof *sorted, by_value);
    return sorted;
}

/* The end of the values equal to that at `begin`, which are all taken at once. */
static int64_t end_of_step(const struct scored *sorted, int64_t count, int64_t begin)
{
    int64_t end = begin + 1;
    while (end < count && by_value(&sorted[begin], &sorted[end]) == 0) end++;
    return end;
}

double task_average_precision(const struct task_column *column)
{
    uint8_t *sides = memory_new((size_t)column->count + 1, sizeof *sides);
    for (int64_t i = 0; i < column->count; i++) sides[i] = column->targets[i * column->stride] > 0.5f;
    double precision = ranking_of(column->values, column->stride, sides, column->count).average_precision;
    free(sides);
    return precision;
}

static double f1_of(int64_t hits, int64_t predicted, int64_t positives)
{
    return predicted + positives > 0 ? 2 * (double)hits / (double)(predicted + positives) : 0;
}

/* Adds to the counts of a threshold. */
struct counts {
    int64_t hits, predicted, positives;
};

static void count_column(const struct task_column *column, double threshold, struct counts *counts)
{
    for (int64_t i = 0; i < column->count; i++) {
        bool predicted = (double)column->values[i * column->stride] >= threshold;
        bool positive = column->targets[i * column->stride] > 0.5f;
        counts->hits += predicted && positive;
        counts->predicted += predicted;
        counts->positives += positive;
    }
}

double task_f1(const struct task_column *column, double threshold)
{
    struct counts counts = {0};
    count_column(column, threshold, &counts);
    return f1_of(counts.hits, counts.predicted, counts.positives);
}

double task_best_threshold(const struct task_column *column)
{
    int64_t positives, hits = 0;
    double best = 0, threshold = THRESHOLD;
    struct scored *sorted = sort_column(column, &positives);
    for (int64_t begin = 0, end; begin < column->count && !isnan(sorted[begin].value); begin = end) {
        end = end_of_step(sorted, column->count, begin);
        for (int64_t i = begin; i < end; i++) hits += sorted[i].positive;
        double f1 = f1_of(hits, end, positives);
        double next = end < column->count && !isnan(sorted[end].value) ? (double)sorted[end].value : 0;
        if (f1 > best) best = f1, threshold = ((double)sorted[begin].value + next) / 2;
    }
    free(sorted);
    return threshold;
}

static void multilabel_measure(const struct task_outputs *outputs, const struct data *data, double *metrics)
{
    struct counts all = {0};
    double precision = 0, macro = 0;
    int counted = 0;
    for (int i = 0; i < outputs->outputs; i++) {
        const struct task_column column = column_of(outputs, i);
        double own = task_average_precision(&column);
        macro += task_f1(&column, THRESHOLD) / outputs->outputs;
        count_column(&column, THRESHOLD, &all);
        if (isnan(own)) continue;
        precision += own;
        counted++;
    }
    metrics[0] = precision / counted;
    metrics[1] = f1_of(all.hits, all.predicted, all.positives);
    metrics[2] = macro;
}

static void multilabel_choose(const struct task_outputs *outputs, double *thresholds)
{
    for (int i = 0; i < outputs->outputs; i++) {
        const struct task_column column = column_of(outputs, i);
        thresholds[i] = task_best_threshold(&column);
    }
}

static void multilabel_say(const struct data *data, const float *values, struct text *out)
{
    bool any = false;
    for (int i = 0; i < data->classes; i++) {
        double threshold = data->thresholds ? data->thresholds[i] : THRESHOLD;
        if (!(values[i] > 0 && (double)values[i] >= threshold)) continue;
        text_add(out, "%s%s", any ? ", " : "", data->class_names[i]);
        any = true;
    }
    if (!any) text_add(out, "none");
}

static const struct task_metric metrics[] = {
    {"map", "mAP", true, false}, {"f1_micro", "F1 (micro)", true, false},
    {"f1_macro", "F1 (macro)", true, false}, {0},
};
static const enum loss losses[] = {LOSS_BCE, LOSSES};

const struct data_task task_multilabel = {
    .name = "multilabel",
    .losses = losses,
    .metrics = metrics,
    .activate = multilabel_activate,
    .measure = multilabel_measure,
    .choose = multilabel_choose,
    .say = multilabel_say,
    .onnx = "Sigmoid",
};
