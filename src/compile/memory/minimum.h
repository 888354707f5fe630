/* minimum.h: the minimum-memory choice of what to recompute: the smallest step that is known. It depends on
 * the batch's octave alone, so that the largest batch that fits can be searched for with one choice. */
#pragma once

#include "compile/passes.h"

/* The minimum-memory choice: one for all batches of an octave, and for any number of micro-batches. */
struct minimum {
    enum recompute_mode *modes;         /* as recompute_fold has it */
    int count;                          /* 0: everything is kept */
};
enum status minimum_find(const struct graph *graph, const struct compile_options *options,
                         struct minimum *minimum);
void minimum_free(struct minimum *minimum);        /* accepts a zeroed struct */

/* An octave's smallest number of images per micro-batch, a power of two. */
int minimum_octave(const struct lower_options *options);

/* Options for a step with at most that many micro-batches of the same size. */
struct compile_options minimum_few(const struct compile_options *options, int most);
