/* step_ranks.h: checks across the training steps of all ranks. */
#pragma once

#include "session/step.h"

/* Before any memory is taken, the first rank of several plays the programs of all stages, of two replicas if
 * there are more (compile/verify_ranks.h). FAILED, with a message, where they would wait for each other for
 * ever. */
enum status step_ranks_verify(const struct session *session);
