/* health.h: detects numerical problems of a run. Each problem is reported once, when it begins. */
#pragma once

#include "checkpoint/position.h"
#include "session/step.h"

struct health_options {
    const struct hyperparameters *hyper;
    const struct graph *graph;
    const struct dataset *dataset;         /* training data */
    const struct loader *loader;
    const struct step *training;
    bool stop;                   /* a step that is not finite ends the run: train.on_nan=stop */
};

struct health {
    struct health_options options;
    bool lost;                   /* the last step's loss was not finite ... */
    bool evaluation_lost;        /* ... nor that of the last evaluation */
    int diagnoses;               /* made so far */
    double norm;                 /* running mean of the logarithms (base 2) of gradient norms ... */
    int norms;                   /* ... of so many steps */
    bool exploding;
    bool broken;                 /* a parameter that is not finite has been named */
    bool ended;                  /* the run was ended, since more steps would not help */
    struct still *still;         /* by parameter; NULL: not checked yet */
    bool doubt;                  /* the last check found gradients that may be zero */
};

/* Whatever the options point to must outlive it. */
void health_open(const struct health_options *options, struct health *health);
void health_close(struct health *health);     /* accepts a zeroed struct */

/* True if gradients and parameters are checked after this step of the process (from 1), besides the last of
 * an epoch; and whether no step may be in progress then. */
bool health_check_due(int64_t step);
bool health_check_needs_idle(const struct health *health, int64_t step);

/* A step that was collected. */
struct health_step {
    const struct optimizer_state *state;   /* after it */
    const struct position *position;       /* after it, too */
    const struct batch *batch;             /* which is still in use */
    double loss;                           /* the batch's mean, of all ranks */
    double lr;                             /* of this step, by the schedule */
    bool elsewhere;                        /* it is not finite because of other ranks' images */
    int64_t steps;                         /* that this process has made */
    int queued;                            /* steps in progress */
};

/* To be called after each step. The step's results are checked every time, gradients and parameters
 * occasionally: through a glimpse (exec_checks.h), and completely if that leaves doubts or there is none, as
 * soon as the device is idle. FAILED if that
 * ends the run: train.on_nan=stop, or an epoch without any update, which the loss scale does not explain. */
enum status health_step(struct health *health, const struct health_step *step);
