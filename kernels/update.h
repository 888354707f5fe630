/* update.h: the update of a training step: counts the step, updates the parameters and the averages of
 * statistics. Each device has one update_code, which is queued on stream 0. */
#pragma once

#include "base/anywhere.h"
#include "kernels/op.h"
#include "kernels/optimizer.h"

/* Rates of the update that comes after `updates` applied ones, and of the one after that: whoever
 * queues a step while the one before it runs does not know yet whether that one will be applied.
 * Which holds: state->updates - updates, but 0 at least and 1 at most. */
struct update_rates {
    int64_t updates;
    double lr[2], momentum[2];
};

/* Which of them the next update takes. */
ANYWHERE int update_rate(const struct update_rates *rates, const struct optimizer_state *state)
{
    return state->updates > rates->updates;
}

/* A statistic (running mean, counter) and its average. */
struct update_average {
    enum dtype dtype;          /* F32 follows by settings.ema; I64 is copied */
    const void *now;
    void *average;
    int64_t count;
};

/* Elements of a parameter whose gradient's squares are added up by themselves, at most. */
#define UPDATE_CHUNK 2048

/* The squares of the gradients of a network of which each of some stages has a part: of each chunk of each
 * parameter in order, those of other stages zero. So they add up in the order of a network that is whole. */
struct update_squares {
    int stages;                /* 0: the gradients are all there, and are measured by apply */
    int64_t count;             /* of a stage's squares */
    const double *all;         /* device: [stages][count] */
    const int64_t *first;      /* by parameter of the update: its first chunk */
};

/* One step's update. Pointers named `device` memory are what kernels can read: on CUDA rates is pinned host
 * memory, the rest lies on the device. The arrays params and averages are host memory, there until close. */
struct update {
    const struct optimizer *optimizer;
    struct optimizer_settings settings;
    struct scaler_settings scaling;
    const struct optimizer_param *params;     /* those that training changes; pointers in it: device */
    int param_count;
    const struct update_average *averages;
    int average_count;
    struct update_squares squares;            /* `first`: host memory, as the arrays */
    int stop_at;                              /* floor_overflows from which on nothing changes any more;
                                               * 0: never */
    struct optimizer_state *state;            /* device */
    float *scale;                             /* device: the loss scale of this step, set by count */
    const struct update_rates *rates;         /* device; may be another one at each apply */
    struct device *device;
    void *stream;
    void *tables;                             /* what open made */
};

struct update_code {
    enum status (*open)(struct update *update);
    void (*close)(struct update *update);     /* accepts one that was never opened */
    /* Before the first op: state->step grows by one, *scale is set. */
    enum status (*count)(const struct update *update);
    /* optimizer.h's sequence. Once state->scaler.floor_overflows has reached stop_at, neither count nor
     * this changes anything but state->skipped, which is then 1. */
    enum status (*apply)(const struct update *update);
    /* After the statistics' own updates: averages follow, unless the step was skipped. */
    enum status (*average)(const struct update *update);
    /* Before apply, of one stage of several: its squares, [squares.count] in device memory. */
    enum status (*measure)(const struct update *update, double *squares);
};

/* Whether nothing changes any more. */
ANYWHERE bool update_stopped(int stop_at, const struct optimizer_state *state)
{
    return stop_at > 0 && state->scaler.floor_overflows >= stop_at;
}

extern const struct update_code update_cpu, update_cuda;
