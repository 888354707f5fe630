/* task_regress.c: a number for each image. */
#include <math.h>

#include "session/task.h"

static void regress_activate(const struct data *data, float *outputs)
{
    outputs[0] = (float)((double)outputs[0] * data->value_std + data->value_mean);
}

/* r2 is 0 where all targets are the same and not all are met, as in scikit-learn. */
static void regress_measure(const struct task_outputs *outputs, const struct data *data, double *metrics)
{
    double absolute = 0, squares = 0, mean = 0, deviation = 0, count = (double)outputs->images;
    for (int64_t i = 0; i < outputs->images; i++) {
        double error = (double)outputs->values[i] - (double)outputs->targets[i];
        absolute += fabs(error);
        squares += error * error;
        mean += (double)outputs->targets[i] / count;
    }
    for (int64_t i = 0; i < outputs->images; i++)
        deviation += ((double)outputs->targets[i] - mean) * ((double)outputs->targets[i] - mean);
    metrics[0] = absolute / count;
    metrics[1] = sqrt(squares / count);
    metrics[2] = squares / count;
    metrics[3] = deviation > 0 ? 1 - squares / deviation : squares > 0 ? 0 : 1;
}

static void regress_say(const struct data *data, const float *values, struct text *out)
{
    text_add(out, "%.6g", (double)values[0]);
}

static const struct task_metric metrics[] = {
    {"mae", "mean absolute error", false, true}, {"rmse", "root mean square error", false, true},
    {"mse", "mean square error", false, true}, {"r2", "R2", false, false}, {0},
};
static const enum loss losses[] = {LOSS_MSE, LOSS_L1, LOSS_HUBER, LOSSES};

const struct data_task task_regress = {
    .name = "regress",
    .losses = losses,
    .metrics = metrics,
    .activate = regress_activate,
    .measure = regress_measure,
    .say = regress_say,
};
