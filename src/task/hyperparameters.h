/* hyperparameters.h: the hyperparameters of a run, none of which depends on a device. */
#pragma once

#include "amp/precision.h"
#include "amp/scaler.h"
#include "input/data.h"
#include "kernels/loss/losses.h"
#include "kernels/optimizer/optimizer.h"
#include "task/schedule.h"
#include "task/task.h"

struct hyperparameters {
    const struct precision_row *precision;
    struct scaler_settings scaling;
    const struct data_task *task;
    enum loss loss;
    char pixel_loss[128];             /* settings of the op pixel_loss, with a class for every pixel */
    int best;                         /* of the task's metrics, that of checkpoint.best; -1: the loss */
    const struct optimizer *optimizer;
    struct optimizer_settings optimizer_settings;
    struct schedule schedule;
    int64_t lookahead;                /* updates between moves of the average; 0: every update moves it */
    int batch;                        /* images a step, of all ranks */
    int stages;                       /* of the pipeline; 1: no pipeline */
    int replicas;                     /* ranks, or pipelines of ranks, that share a step's images */
    int micro_batches;                /* micro-batches of each one's share */
    int64_t steps_per_epoch;
};

/* Checks that the names of optimizer, schedule and precision are known; reports all that are not. */
enum status hyperparameters_check(const struct settings *settings);

/* Everything except the batch and what is counted in steps. Defaults that follow from other keys are noted in
 * `settings` (settings_derive). Refused with key and place, USAGE. */
enum status hyperparameters_open(struct settings *settings, const struct data *data,
                                 struct hyperparameters *hyper);

/* The rest, once train.batch is a number. `train`: the training images; NULL: no training. */
enum status hyperparameters_set_batch(const struct settings *settings, const struct images *train,
                                      struct hyperparameters *hyper);

/* Numbers of all ranks. */
static inline int hyperparameters_micro_batches(const struct hyperparameters *hyper)
{
    return hyper->replicas * hyper->micro_batches;
}

/* Images a step of one rank, or pipeline. */
static inline int hyperparameters_share(const struct hyperparameters *hyper)
{
    return hyper->batch / hyper->replicas;
}
