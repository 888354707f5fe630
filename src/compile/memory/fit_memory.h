/* fit_memory.h: decides what a training step keeps, recomputes and offloads to stay within a memory limit. */
#pragma once

#include "compile/memory/minimum.h"

/* Takes a program that passes_lower made through the passes after it: with the choice that makes it fit into
 * options->budget, on fewer streams than the device has where that is what fits. If nothing fits, the program
 * is the smallest that was found. `kernel_plans` becomes those of the program if fitting needed them, for the
 * caller to release; otherwise it is unchanged. */
enum status fit_memory(const struct compile_options *options, struct program *program,
                       struct kernel_plans *kernel_plans);

/* The bytes of a run with the minimum-memory choice: `packed`, as fit_memory plans it within options->budget,
 * or assuming perfect packing. */
enum status fit_memory_minimum_taken(const struct graph *graph, const struct compile_options *options,
                                     const struct minimum *minimum, bool packed, struct budget *taken);

/* A lower bound of the bytes of a step, whatever is recomputed or offloaded, from one of its micro-batches; 0
 * for the stages of a pipeline. No kernel is prepared and nothing is placed for it. */
enum status fit_memory_bound(const struct graph *graph, const struct compile_options *options,
                             int64_t *bytes);
