/* step_ranks.h: checks across the training steps of all ranks. */
#pragma once

#include "session/step.h"

/* Before allocation, the first of several ranks simulates the programs of all stages, of at most two replicas
 * (compile/parallel/verify_ranks.h). With a message, FAILED if they would deadlock, USAGE if a stage sends
 * more at once than ranks can. */
enum status step_ranks_verify(const struct session *session);
