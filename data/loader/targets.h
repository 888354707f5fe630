/* targets.h: targets other than class numbers: of mixed images or with class weights, of several labels, of
 * numbers. */
#pragma once

#include "data/augment/mix.h"
#include "data/dataset/target.h"

struct target_options {
    int classes;
    const double *weights;     /* [classes], of torch.nn.CrossEntropyLoss; NULL: all 1 */
    double label_smoothing;    /* the fraction of an image's label that is spread over all classes */
    int together;              /* images of a micro-batch, as in struct mix */
    enum target_kind kind;
    double mean, std;          /* of numbers, which are normalised by them before all else */
};

/* Numbers of an image: the target of every class, then the number of its true class, of the greater part. */
static inline size_t target_numbers(int classes) { return (size_t)classes + 1; }

/* The factor of the weighted targets of a batch with counts[c] images of class c that are not mixed: the mean
 * over its images, however it is divided, is then the sum divided by the sum of their classes' weights, as in
 * PyTorch. 0 where that is 0; 1 without weights. */
double targets_factor(const struct target_options *options, const double *counts);

/* Targets of `count` images, whole micro-batches of labels in 0..classes. `mix`: how they are mixed, with a
 * factor of 1, because PyTorch divides by their number; NULL: they are not. */
void targets_make(const struct target_options *options, const struct mix *mix, double factor,
                  const int32_t *labels, int count, float *targets);

/* Numbers of an image of any kind: of labels with weights, these follow: of each label's images that have
 * it. */
static inline size_t targets_row(const struct target_options *options)
{
    bool weighted = options->kind == TARGET_LABELS && options->weights;
    return target_numbers(options->classes) + (weighted ? (size_t)options->classes : 0);
}

/* Finishes labels and numbers, in place: each row begins with what dataset_target gives.
 * Labels are smoothed towards 1/2. */
void targets_finish(const struct target_options *options, const struct mix *mix, int count, float *targets);

