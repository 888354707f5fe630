/* schedule.h: the learning rate (and momentum) of an update, as a pure function of its number. */
#pragma once

#include <stdint.h>

#include "base/field.h"
#include "checkpoint/position.h"

/* The coefficients of a schedule. Counts are updates; settings in epochs were multiplied by the updates of an
 * epoch. */
struct schedule {
    const struct schedule_row *row;
    double lr;                     /* the base, and onecycle's maximum */
    double momentum;               /* the optimizer's, or its beta1; onecycle varies it */
    int64_t total;                 /* updates of the whole run */
    double warmup;                 /* updates: linear up to lr, the first a step above lr * warmup_start */
    double warmup_start;
    struct field_reals milestones; /* updates */
    double gamma, min_lr, power;
    double pct_start, div, final_div;
    double factor, threshold;      /* plateau */
    int64_t patience, cooldown;    /* ... evaluations */
    double reduced;                /* plateau's current rate; 0: lr */
    bool swa;                      /* train.swa */
    double swa_begin, swa_anneal;  /* updates before weights are averaged, and until swa_lr */
    double swa_lr;
    bool swa_linear;
};

struct schedule_rate {
    double lr, momentum;
};

/* One schedule: the rate of update `t` of `total`, counted from 0 after warm-up. */
struct schedule_row {
    const char *name;
    const char *help;
    bool own_warmup;
    struct schedule_rate (*rate)(const struct schedule *schedule, double t, double total);
};
extern const struct schedule_row schedule_table[];   /* ended by a row whose name is NULL */
const struct schedule_row *schedule_find(const char *name);

/* The rate for update `update`, counted from 0. Beyond the end it is that of the last one. */
struct schedule_rate schedule_at(const struct schedule *schedule, int64_t update);

/* Notes a validation loss, as torch's ReduceLROnPlateau.step does (mode min, threshold_mode rel, eps 1e-8).
 * True if the rate is reduced; the caller sets schedule->reduced. */
bool schedule_plateau(const struct schedule *schedule, struct plateau *plateau, double loss);
