/* rank_check.h: whether all ranks hold the same parameters and optimizer state. */
#pragma once

#include "comm/comm.h"
#include "exec/exec.h"

/* The number of steps after which ranks compare fingerprints of their stores. */
#define RANK_CHECK_STEPS 100

/* Called by all ranks, after the same step. FAILED, on all of them, if one differs from the majority (of two,
 * from the first): names that rank and the first parameter. Of a pipeline's `stages`, which are consecutive
 * ranks, each is compared with the same one of other pipelines. */
enum status rank_check(struct comm *comm, int stages, const struct exec *exec);
