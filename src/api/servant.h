/* servant.h: a thread that does jobs for others, one after another. Devices, OpenMP and locales belong to
 * threads, and so a network's work is done on one that it has for itself. */
#pragma once

#include <stdbool.h>

#include "base/guest.h"
#include "base/log.h"
#include "base/status.h"

#define SERVANT_TEXT 508

/* The end of a job: its status, and the errors it reported, a line each. */
struct servant_answer {
    enum status status;
    char text[SERVANT_TEXT];
};

/* Starts a thread that is a guest with these folders; its warnings and notices go to `log`, whose write may
 * be NULL. NULL: there is no thread, or no memory. */
struct servant;
struct servant *servant_start(const struct log_sink *log, const char *data, const char *cache);

/* Has `work` done, and waits for it, and before that for the jobs of others. If there is no memory for its
 * small allocations it ends with FAILED, and so do all that follow. */
void servant_do(struct servant *servant, enum status (*work)(void *context), void *context,
                struct servant_answer *answer);

/* False: a job ran out of memory, so what it worked on may be in any state. */
bool servant_is_sound(const struct servant *servant);

/* Ends the thread. NULL is ignored. */
void servant_end(struct servant *servant);
