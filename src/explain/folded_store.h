/* folded_store.h: the parameters of an evaluation whose batch norms are part of convolutions
 * (graph/batchnorm_fold.h). */
#pragma once

#include "exec/store.h"

/* Sets norms[graph->count] to the batch norms that are worth folding; false: there are none. */
bool folded_store_find(const struct graph *graph, int *norms);

/* Fills the store of the folded graph from a store of the whole one. */
enum status folded_store_fill(struct store *store, const struct graph *whole, const int *norms,
                              const struct store *from);
