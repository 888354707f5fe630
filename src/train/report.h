/* report.h: the output of a run: metrics, TensorBoard events, the live line, the closing table. */
#pragma once

#include "train/run.h"

/* The results of one step. */
struct report_step {
    double loss;             /* mean over the batch, unscaled */
    double lr, loss_scale;   /* used in the step */
};

/* The lines of metrics.jsonl of the same names, with all that goes with them. FAILED if too many lines could
 * not be written. */
enum status report_start(struct run *run);
enum status report_step(struct run *run, const struct report_step *step);
/* `evaluation` NULL: there was none. To be called before the position advances to the next epoch. */
enum status report_epoch(struct run *run, const struct evaluation *evaluation);
enum status report_end(struct run *run, const char *reason);

/* A line about the state, on request. */
void report_status(const struct run *run);
