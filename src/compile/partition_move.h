/* partition_move.h: moves the boundaries between the stages of a pipeline to where a step ends soonest. */
#pragma once

#include "compile/partition_times.h"

/* Moves boundaries, one or several neighbouring ones at a time, as long as that makes partition_step shorter.
 * Stages keep their replicas, and within problem->limit if they are. For two stages, no division is more than
 * a thousandth faster. `stages`: a division, as partition_search finds. */
void partition_move(const struct partition_problem *problem, struct partition_stage *stages);
