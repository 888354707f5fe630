/* data_class_weights.c: the weights of data.class_weights. */
#include "input/data_parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/watch.h"
#include "data/dataset/masks.h"
#include "input/data_summary.h"

bool data_weighs_classes(const struct settings *settings)
{
    const char *text = settings->data.class_weights;
    return text && strcmp(text, "none") != 0;
}

/* For labels: how many images lack one for each that has it, as PyTorch's pos_weight is used. */
static enum status balance_labels(const struct data_opening *o, double *weights)
{
    const struct images *train = &o->data->train;
    int64_t *counts = data_summary_counts(train);
    for (int i = 0; i < train->dataset->classes; i++)
        weights[i] = counts[i] > 0 ? (double)(train->count - counts[i]) / (double)counts[i] : 1;
    free(counts);
    return OK;
}

/* Inversely proportional to the numbers of images or pixels, so that the mean over all of them is 1. A class
 * without any has weight 0. */
static void balance_counts(const int64_t *counts, int classes, double *weights)
{
    int64_t all = 0;
    int present = 0;
    for (int i = 0; i < classes; i++) present += counts[i] > 0, all += counts[i];
    for (int i = 0; i < classes; i++)
        if (counts[i] > 0) weights[i] = (double)all / ((double)present * (double)counts[i]);
}

static enum status balance_masks(const struct images *train, double *weights)
{
    struct mask_counts counts;
    struct watch *watch = watch_begin(WATCH_SECONDS, "data.class_weights: counting pixels of classes");
    enum status status = masks_count(train->dataset, train->subset, train->count, &counts);
    watch_end(watch);
    TRY(status);
    balance_counts(counts.pixels, train->dataset->classes, weights);
    return OK;
}

static enum status balance(const struct data_opening *o, double *weights)
{
    const struct images *train = &o->data->train;
    if (o->data->target == TARGET_MASK) return balance_masks(train, weights);
    int64_t *counts = data_summary_counts(train);
    if (!counts)
        return settings_refuse(o->settings, "data", "class_weights", "'balanced' needs labels before images "
                               "are read, which data.format = %s does not provide", o->format->name);
    balance_counts(counts, train->dataset->classes, weights);
    free(counts);
    return OK;
}

static enum status list(const struct data_opening *o, double *weights)
{
    static const struct field numbers = {.name = "class_weights", .type = FIELD_REALS, .max = 1e6};
    const char *text = o->settings->data.class_weights;
    struct field_reals given = {0};
    struct reason reason;
    if (!field_parse(&numbers, &given, text, &reason))
        return settings_refuse(o->settings, "data", "class_weights", "must be none, balanced, or a number "
                               "for each class: %s", reason.text);
    if (given.count != o->data->classes)
        return settings_refuse(o->settings, "data", "class_weights", "%d numbers for %d classes", given.count,
                               o->data->classes);
    memcpy(weights, given.value, (size_t)given.count * sizeof *weights);
    for (int i = 0; i < given.count; i++)
        if (weights[i] > 0) return OK;
    return settings_refuse(o->settings, "data", "class_weights", "at least one must be above 0");
}

enum status data_weigh_classes(const struct data_opening *o)
{
    if (!data_weighs_classes(o->settings) || !o->data->train.dataset) return OK;
    o->data->class_weights = memory_new((size_t)o->data->classes, sizeof *o->data->class_weights);
    double *weights = o->data->class_weights;
    bool balanced = strcmp(o->settings->data.class_weights, "balanced") == 0;
    if (balanced && o->data->target == TARGET_LABELS) return balance_labels(o, weights);
    return balanced ? balance(o, weights) : list(o, weights);
}
