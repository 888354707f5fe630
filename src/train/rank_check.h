/* rank_check.h: whether all ranks hold the same parameters and optimizer state. */
#pragma once

#include "comm/comm.h"
#include "exec/exec.h"

/* Steps after which ranks compare a fingerprint of all that they hold. */
#define RANK_CHECK_STEPS 100

/* Called by all ranks, after the same step. FAILED, on all of them, where one holds other bits than most of
 * them (of two, than the first one): it names that rank and the first parameter. Of a pipeline's `stages`,
 * which are consecutive ranks, each is compared with the same one of other pipelines. */
enum status rank_check(struct comm *comm, int stages, const struct exec *exec);
