/* folded_store.h: the parameters of an evaluation whose batch norms are part of convolutions
 * (graph/batchnorm_fold.h). */
#pragma once

#include "exec/store.h"

/* Sets norms[graph->count] to the batch norms that are worth folding; false: there are none. */
bool folded_store_find(const struct graph *graph, int *norms);

/* Makes a store of the whole graph's parameters, in fp32 and in the host's memory, one of the folded graph's,
 * in place. */
void folded_store_fold(struct store *store, const struct graph *whole, const int *norms,
                       const struct graph *folded);
