/* update.h: the update of a training step: counts the step, updates the parameters and the averages of
 * statistics. Each device has one update_code, which is queued on stream 0. */
#pragma once

#include "base/anywhere.h"
#include "kernels/op.h"
#include "kernels/optimizer/matrix_sharing.h"

/* Rates of the update after `updates` applied ones, and of the next one: when a step is queued while the
 * preceding one runs, it is not known yet whether that one will be applied. The index is state->updates -
 * updates, clamped to 0..1. */
struct update_rates {
    int64_t updates;
    double lr[2], momentum[2];
    double ema[2];             /* decay of averages; only with settings.ema */
};

/* Index of the rates that the next update takes. */
ANYWHERE int update_rate(const struct update_rates *rates, const struct optimizer_state *state)
{
    return state->updates > rates->updates;
}

/* A statistic (running mean, counter) and its average. */
struct update_average {
    enum dtype dtype;          /* F32: averaged as weights are; I64: copied */
    void *now;
    void *average;
    int64_t count;
};

/* The maximum number of elements of a parameter whose squared gradients form one partial sum. */
#define UPDATE_CHUNK 2048

/* The squared gradients of a network that is divided into stages: for each chunk of each parameter in order,
 * zero for those of other stages. So they are added in the same order as without stages. */
struct update_squares {
    int stages;                /* 0: all gradients are here, and apply computes their squares */
    int64_t count;             /* number of stages' squares */
    const double *all;         /* device: [stages][count] */
    const int64_t *first;      /* by parameter of the update: its first chunk */
};

/* One step's update. Pointers named `device` memory are what kernels can read: on CUDA rates is pinned host
 * memory, the rest lies on the device. The arrays params and averages are host memory, there until close. */
struct update {
    const struct optimizer *optimizer;
    struct optimizer_settings settings;
    struct scaler_settings scaling;
    const struct optimizer_param *params;     /* trained parameters; pointers in it: device */
    int param_count;
    const struct update_average *averages;
    int average_count;
    struct update_squares squares;            /* `first`: host memory, as the arrays */
    const struct matrix_sharing *sharing;     /* of an optimizer that has matrices, otherwise NULL */
    int stop_at;                              /* value of floor_overflows at which changes end; 0: never */
    struct optimizer_state *state;            /* device */
    float *scale;                             /* device: the loss scale of this step, set by count */
    const struct update_rates *rates;         /* device; may differ for each apply */
    struct device *device;
    void *stream;
    void *tables;                             /* what open made */
};

struct update_code {
    enum status (*open)(struct update *update);
    void (*close)(struct update *update);     /* accepts an update that was never opened */
    /* Before the first op: state->step grows by one, *scale is set. */
    enum status (*count)(const struct update *update);
    /* optimizer.h's sequence. Once state->scaler.floor_overflows has reached stop_at, count and apply change
     * only state->skipped, which is then 1. */
    enum status (*apply)(const struct update *update);
    /* After the statistics' own updates: averages follow, unless the step was skipped. */
    enum status (*average)(const struct update *update);
    /* Before apply, with several stages: the squares of this one, [squares.count] in device memory. */
    enum status (*measure)(const struct update *update, double *squares);
};

/* True if changes have ended. */
ANYWHERE bool update_stopped(int stop_at, const struct optimizer_state *state)
{
    return stop_at > 0 && state->scaler.floor_overflows >= stop_at;
}

extern const struct update_code update_cpu, update_cuda;
