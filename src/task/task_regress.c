/* task_regress.c: a number for each image. */
#include <math.h>

#include "task/task.h"

/* Outputs and targets stay normalised: in their own unit floats may not tell them apart. */
static void regress_activate(const struct data *data, float *outputs) {}

double task_value(const struct data *data, float output)
{
    return (double)output * data->value_std + data->value_mean;
}

/* Digits by which the mean exceeds the deviation. */
static int more_digits(const struct data *data)
{
    return (int)fmin(ceil(log10(fmax(fabs(data->value_mean) / data->value_std, 1))), 8);
}

void task_value_print(const struct data *data, float output, struct text *out)
{
    double value = task_value(data, output);
    text_add(out, isfinite(value) ? "%.*g" : "null", 9 + more_digits(data), value);
}

/* r2 is 0 where all targets are the same and not all are met, as in scikit-learn. */
static void regress_measure(const struct task_outputs *outputs, const struct data *data, double *metrics)
{
    double absolute = 0, squares = 0, mean = 0, deviation = 0, count = (double)outputs->images;
    double unit = data->value_std;
    for (int64_t i = 0; i < outputs->images; i++) {
        double error = (double)outputs->values[i] - (double)outputs->targets[i];
        absolute += fabs(error);
        squares += error * error;
        mean += (double)outputs->targets[i] / count;
    }
    for (int64_t i = 0; i < outputs->images; i++)
        deviation += ((double)outputs->targets[i] - mean) * ((double)outputs->targets[i] - mean);
    metrics[0] = unit * (absolute / count);
    metrics[1] = unit * sqrt(squares / count);
    metrics[2] = unit * unit * (squares / count);
    metrics[3] = deviation > 0 ? 1 - squares / deviation : isnan(squares) ? (double)NAN : squares > 0 ? 0 : 1;
}

static void regress_say(const struct data *data, const float *values, struct text *out)
{
    text_add(out, "%.*g", 6 + more_digits(data), task_value(data, values[0]));
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
