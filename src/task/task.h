/* task.h: what becomes of a network's outputs, by what is learned: the losses that it can be trained with,
 * what people get to see, and the metrics of an evaluation. */
#pragma once

#include "base/text.h"
#include "input/data.h"
#include "kernels/loss/losses.h"

struct task_metric {
    const char *key;             /* "map": in JSON; after val_ in metrics.jsonl and checkpoint.best */
    const char *title;           /* "mAP", for people */
    bool percent;                /* a fraction */
    bool lower;                  /* is better */
};
#define TASK_METRICS_MAX 8

/* All images of an evaluation, as task.activate leaves outputs. */
struct task_outputs {
    int64_t images;
    int outputs;
    float *values, *targets;     /* [images][outputs] */
};

struct data_task {
    const char *name;            /* as in data.task */
    bool ranked;                 /* one class an image: steps and evaluations count ranks of true classes */
    const enum loss *losses;     /* ended by LOSSES; the first is that of train.loss = auto */
    const struct task_metric *metrics;   /* ended by a row without key; the first is that of checkpoint.best =
                                          * auto */
    /* The network's outputs for an image become probabilities, or stay a normalised number. NULL: they are
     * logits of classes, for which evaluations count the ranks of true classes. */
    void (*activate)(const struct data *data, float *outputs);
    /* The metrics, in the order of the rows; NAN where there is none. */
    void (*measure)(const struct task_outputs *outputs, const struct data *data, double *metrics);
    /* For labels: the thresholds that give the highest F1, [outputs]. NULL: there are none. */
    void (*choose)(const struct task_outputs *outputs, double *thresholds);
    /* Appends an image's outputs, or targets, in words: "cat, dog", "1.53". */
    void (*say)(const struct data *data, const float *values, struct text *out);
    /* The last layer of an ONNX file: "Sigmoid". NULL: none */
    const char *onnx;
};

const struct data_task *task_of(const struct data *data);
const struct data_task *task_named(const char *name);     /* classify if there is none */

/* A normalised number in its own unit (data.value_scale); and printed with as many digits as it has then,
 * null if it is not finite. */
double task_value(const struct data *data, float output);
void task_value_print(const struct data *data, float output, struct text *out);

/* "98.20 %", "0.3107", for people; and its title. NULL: the loss. */
const char *task_metric_title(const struct task_metric *metric);
const char *task_metric_text(const struct task_metric *metric, double value, char text[TEXT_NUMBER]);

/* True if a value of the metric, or of the loss (NULL), is better than another (base/better.h). */
bool task_better(const struct task_metric *metric, double value, double than);

/* The metric with this key; -1: there is none. */
int task_metric_find(const struct data_task *task, const char *key);

/* Reads train.loss and checkpoint.best, and notes in `settings` what auto stands for. *best: the number of
 * the metric, -1: the loss. Refused with key and place, USAGE. */
enum status task_choose(const struct data_task *task, struct settings *settings, enum loss *loss, int *best);

/* Metrics of one label: of `count` images, whose values are `stride` apart. */
struct task_column {
    const float *values, *targets;
    int64_t count, stride;
};
/* The area below the steps of precision over recall, where equal values are one step; NAN without
 * positives. What is NaN is not found. */
double task_average_precision(const struct task_column *column);
/* 2 TP / (2 TP + FP + FN) of values from `threshold` on; 0 if there are none of these. */
double task_f1(const struct task_column *column, double threshold);
/* The threshold that gives the highest F1, halfway between two values; 0.5 without positives. */
double task_best_threshold(const struct task_column *column);
