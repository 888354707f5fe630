/* fit_batch.h: the largest batch whose training step fits into some memory, found by planning alone. */
#pragma once

#include "compile/passes.h"

struct fit_batch_options {
    const struct graph *graph, *val_graph;       /* of training; of evaluation */
    /* The compiler options of a run with that many images per step, within `limit`. */
    struct compile_options (*of_batch)(void *context, int batch, bool training);
    void *context;
    int64_t limit;           /* bytes of device memory, that budget's total */
    int micro_batches;       /* micro-batches a step */
    int most;                /* images a micro-batch */
    bool exact;              /* the result is planned exactly as a run would, which is slow with many
                              * micro-batches; otherwise a few of them represent all */
};

/* The largest number of images per step, a multiple of the micro-batches, for which training and evaluation
 * stay within the limit; 0: not even one per micro-batch. */
enum status fit_batch(const struct fit_batch_options *options, int *batch);
