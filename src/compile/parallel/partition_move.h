/* partition_move.h: moves the boundaries between the chunks of a pipeline so that a step ends sooner. */
#pragma once

#include "compile/parallel/partition_times.h"

/* Moves boundaries, one or several neighbouring ones at a time, as long as partition_step decreases. Stages
 * stay within problem->limit if they are so before. For two stages, no division is faster by more than a
 * thousandth. `chunks`: a division as from partition_search. */
void partition_move(const struct partition_problem *problem, struct partition_chunk *chunks);
