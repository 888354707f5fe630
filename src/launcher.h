/* launcher.h: starts the ranks of a run on this host, each a process of this program, monitors them, and ends
 * them together. */
#pragma once

#include "comm/comm.h"

struct launcher_options {
    int ranks;
    char *const *words;      /* the command line, which every rank gets; ended by NULL */
    double timeout;          /* seconds for which all ranks may stand still in a step; 0: as steps need */
    const char *log;         /* the first rank's file, to which the lines of others and of the launcher are
                              * added once that one has told of its progress; NULL: none */
};

/* Returns when no rank is left: OK, STOPPED, or what the first one that failed ended with (128 + N: by signal
 * N). Signals of signals_watch are handed on to the ranks by comm_asked. */
enum status launcher_run(const struct launcher_options *options);

/* In a process that a launcher started, this one, mpirun or srun, its place among the ranks; in any other,
 * NULL. `timeout`: parallel.timeout. */
enum status launcher_join(double timeout, struct comm **comm);

/* The descriptor of the launcher's terminal, for a progress line of the first rank; -1: there is none. */
int launcher_terminal(void);
