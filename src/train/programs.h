/* programs.h: a run's two programs, replanned if the available memory changes. */
#pragma once

#include "session/step.h"

struct programs {
    struct session *session;
    struct store *store;
    struct step training;
    struct step evaluation;      /* exec NULL: there is nothing to evaluate on */
    struct step_bytes bytes;     /* of device memory, for both */
};

/* Plans training and, where there is something to evaluate on, evaluation, which shares its memory, and takes
 * that. Both are planned before any memory is taken; where the device then has not enough, both are planned
 * anew for what it has left, and a line says so: what is kept and what is recomputed changes, and no bit of
 * the results. NO_DEVICE, with a table, when nothing fits. */
enum status programs_open(struct session *session, struct store *store, struct programs *programs);
void programs_close(struct programs *programs);     /* accepts a zeroed or half-built struct */

/* Plans and takes memory anew after the graph has changed, while no step is under way. */
enum status programs_reopen(struct programs *programs);

/* Plans and takes memory anew for another memory.limit, while no step is under way. When that fails, the
 * programs keep to what they had; only if that is gone meanwhile, it is an error. */
enum status programs_set_limit(struct programs *programs, int64_t limit);
