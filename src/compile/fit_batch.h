/* fit_batch.h: the largest batch whose training step fits into some memory, found by planning alone. */
#pragma once

#include "compile/passes.h"

struct fit_batch_options {
    const struct graph *graph, *val_graph;       /* of training; of evaluation */
    /* How a run with so many images a step compiles either, within `limit`. */
    struct compile_options (*of_batch)(void *context, int batch, bool training);
    void *context;
    int64_t limit;           /* bytes of device memory */
    int micro_batches;       /* micro-batches a step */
    int most;                /* images a micro-batch */
    bool exact;              /* what is found is planned as a run would plan it, which takes its time where
                                micro-batches are many; otherwise a few of them stand for all */
};

/* The most images a step, a multiple of the micro-batches, for which fit_memory stays within the limit, and
 * evaluation does; 0: not even one a micro-batch. */
enum status fit_batch(const struct fit_batch_options *options, int *batch);
