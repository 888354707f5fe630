/* partition_search.h: the fastest division of a chain of blocks into the stages of a pipeline. */
#pragma once

#include "compile/partition_times.h"

/* Stages of least modelled time, sum(fill) + max(drain) + max(exchange). Where a micro-batch takes a stage c
 * seconds and the border behind it x, fill = c + 2x, drain = (m - 1) max(c, x) for m micro-batches, and
 * exchange is what the last micro-batch's backward does not hide of it. Weight gradients (w) that are apart
 * fill gaps: fill is 2w less then, and drain 2w more. Fills stages[problem->stages] and *seconds; false when
 * nothing fits. */
bool partition_search(const struct partition_problem *problem, struct partition_stage *stages,
                      double *seconds);
