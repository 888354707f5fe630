/* fit_memory.h: decides what a training step keeps, recomputes and offloads to stay within a memory limit. */
#pragma once

#include "compile/passes.h"

/* Takes a program that passes_lower made through the passes after it: with the choice that makes it fit into
 * options->budget, on fewer streams than the device has where that is what fits. If nothing fits, the program
 * is the smallest that was found. `kernel_plans` becomes those of the program if fitting needed them, for the
 * caller to release; otherwise it is unchanged. */
enum status fit_memory(const struct compile_options *options, struct program *program,
                       struct kernel_plans *kernel_plans);

/* Options for a step with at most that many micro-batches of the same size. */
struct compile_options fit_memory_few(const struct compile_options *options, int most);

/* The minimum-memory choice: the smallest of those that are known: the same for all batches of one octave and
 * any number of micro-batches, so that the largest that fits can be searched for. An octave is identified by
 * its smallest number of images per micro-batch. */
struct minimum {
    enum recompute_mode *modes;         /* as recompute_fold has it */
    int count;                          /* 0: everything is kept */
};
enum status fit_memory_minimum(const struct graph *graph, const struct compile_options *options,
                               struct minimum *minimum);
int fit_memory_octave(const struct lower_options *options);
void minimum_free(struct minimum *minimum);        /* accepts a zeroed struct */

/* What a run takes with it: `packed`, as fit_memory would have it within options->budget, or counting on
 * perfect packing. */
enum status fit_memory_minimum_taken(const struct graph *graph, const struct compile_options *options,
                                     const struct minimum *minimum, bool packed, struct budget *taken);

/* A lower bound of the bytes of a step, whatever is recomputed or offloaded, from one of its micro-batches; 0
 * for the stages of a pipeline. No kernel is prepared and nothing is placed for it. */
enum status fit_memory_bound(const struct graph *graph, const struct compile_options *options,
                             int64_t *bytes);
