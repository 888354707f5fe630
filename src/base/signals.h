/* signals.h: requests by signals; handlers only set flags, and the training loop acts between steps.
 *
 * A signal handler can only access static memory, which is why this file has mutable globals. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* SIGINT, SIGTERM, SIGUSR1: stop after the step with a checkpoint; a second one ends the program at once.
 * SIGHUP: checkpoint, apply a new memory.limit, and continue. SIGUSR2: a status line. SIGPIPE is ignored,
 * because a run outlives the reader of its output; and SIGXFSZ, because a file size limit is handled like a
 * full disk. */
void signals_watch(void);

/* Tells that from now on requests are seen soon. Before, while data are opened, a request to stop that is not
 * seen within SIGNALS_GRACE seconds ends the program by that signal. */
void signals_ready(void);
#define SIGNALS_GRACE 10

/* Blocks the watched signals (not SIGPIPE and SIGXFSZ) until signals_watch, or until signals_release, which
 * restores their default actions. */
void signals_hold(void);
void signals_release(void);

void signals_set(sigset_t *set);   /* those that are watched */

/* pthread_create for a thread that never handles them. */
int signals_start_thread(pthread_t *thread, void *(*run)(void *context), void *context);

int signals_stop(void);            /* the signal that requested the end; 0: none */
bool signals_checkpoint(void);     /* asked since the last call */
bool signals_status(void);         /* asked since the last call */
