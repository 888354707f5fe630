/* partition_search.h: the best division of a chain of blocks into the chunks of a pipeline, by a formula. */
#pragma once

#include "compile/parallel/partition_times.h"

/* The division of least modelled time, sum(fill) + max(drain) + max(exchange). If a micro-batch takes c
 * seconds in a chunk and x over the boundary after it, fill = c + 2x and drain = (m - 1) max(n c, x) for m
 * micro-batches and a stage of n chunks; exchange is the part that backward of the last micro-batch does not
 * hide. Separate weight gradients (w) fill gaps: fill is then 2w less, and drain 2w more. Sets
 * chunks[pipeline_chunks()] and *seconds; false if there is none that fits. */
bool partition_search(const struct partition_problem *problem, struct partition_chunk *chunks,
                      double *seconds);
