/* partition_search.h: the fastest division of a chain of blocks into the stages of a pipeline. */
#pragma once

#include "compile/parallel/partition_times.h"

/* The division of least modelled time, sum(fill) + max(drain) + max(exchange). If a micro-batch takes c
 * seconds in a stage and x over the boundary after it, fill = c + 2x and drain = (m - 1) max(c, x) for m
 * micro-batches; exchange is the part that backward of the last micro-batch does not hide. Separate weight
 * gradients (w) fill gaps: fill is then 2w less, and drain 2w more. Sets stages[problem->stages] and
 * *seconds; false if there is none that fits. */
bool partition_search(const struct partition_problem *problem, struct partition_stage *stages,
                      double *seconds);
