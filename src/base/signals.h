/* signals.h: requests by signals; handlers only set flags, and the training loop acts between steps.
 *
 * A signal handler can only access static memory, which is why this file has mutable globals. */
#pragma once

#include <signal.h>
#include <stdbool.h>

/* SIGINT, SIGTERM, SIGUSR1: stop after the step with a checkpoint; a second one ends the program at once.
 * SIGHUP: checkpoint, heed a new memory.limit, and go on. SIGUSR2: a status line. SIGPIPE is ignored: a run
 * outlives whoever reads its words; and SIGXFSZ: a file that may not grow is like a full disk. */
void signals_watch(void);

/* Until signals_watch, or signals_release, which lets them do what they do to any program, those that
 * are watched wait (not SIGPIPE and SIGXFSZ). */
void signals_hold(void);
void signals_release(void);

void signals_set(sigset_t *set);   /* those that are watched */

int signals_stop(void);            /* the signal that asks for the end; 0: none */
bool signals_checkpoint(void);     /* asked since the last call */
bool signals_status(void);         /* asked since the last call */
