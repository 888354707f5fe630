/* launcher.h: starts the ranks of a run on this host, each a process of this program, monitors them, and ends
 * them together. */
#pragma once

#include "comm/tcp_ranks.h"

struct launcher_options {
    int ranks;
    char *const *argv;       /* the command line, which every rank gets; ended by NULL */
    double timeout;          /* seconds without progress in a step before the run is ended; 0: depends on the
                              * duration of steps */
    const char *log;         /* the first rank's log file, to which the lines of others and of the launcher
                              * are added once that rank has reported progress; NULL: none */
};

/* Returns when all ranks have ended: OK, STOPPED, or the status of the first that failed (128 + N: by signal
 * N). Signals of signals_watch are passed on to the ranks through comm_requested. */
enum status launcher_run(const struct launcher_options *options);

/* Joins the ranks, in a process started by this launcher, with torchrun's environment, by mpirun or srun;
 * otherwise NULL. options->timeout: parallel.timeout. *absent: ranks that have not come back after a
 * restart. */
enum status launcher_join(const struct tcp_ranks_options *options, struct comm **comm, int *absent);

/* The descriptor of the launcher's terminal, for a progress line of the first rank; -1: there is none. */
int launcher_terminal(void);
