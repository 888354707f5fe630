/* programs.h: a run's two programs, replanned if the available memory changes. */
#pragma once

#include "session/step.h"

struct programs {
    struct session *session;
    struct store *store;
    struct step training;
    struct step evaluation;      /* exec NULL: no evaluation */
    struct budget bytes;         /* of device memory, for both */
    int64_t most_bytes;          /* the total of the rank that takes most */
};

/* Plans training and, if there are images for it, evaluation, which shares its memory, and allocates it. Both
 * are planned before allocation; if the device then has not enough, both are replanned for what it has left,
 * with a message: what is recomputed changes, but no bit of the results. NO_DEVICE, with a table, if nothing
 * fits. */
enum status programs_open(struct session *session, struct store *store, struct programs *programs);

/* Sets most_bytes; called by all ranks once all have opened their programs. */
enum status programs_share_total(struct programs *programs);
void programs_close(struct programs *programs);     /* accepts a zeroed or half-built struct */

/* Closes them before the graph changes, while no step is in progress. Called by all ranks. */
enum status programs_end(struct programs *programs);

/* Plans and allocates again after programs_end; the total is to be shared again, too. */
enum status programs_reopen(struct programs *programs);

/* Replans and reallocates for another memory.limit, from `where` (settings_where), while no step is in
 * progress. If that fails on any rank, all keep their previous plan; if that does not fit any more either, it
 * is an error. Called by all ranks. */
enum status programs_set_limit(struct programs *programs, int64_t limit, const char *where);
