/* tcp_ranks.h: ranks that others started on one host or several, with the environment that torchrun, and
 * recipes for schedulers, set: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and LOCAL_RANK. They meet by TCP.
 * Those of one host exchange through shared memory from then on, others by TCP. */
#pragma once

#include "comm/comm.h"

/* True if RANK is set and WORLD_SIZE is more than 1. */
bool tcp_ranks_started(void);

struct tcp_ranks_options {
    double timeout;              /* maximum seconds of a wait for other ranks; 0: ten minutes */
    bool fewer;                  /* after a restart: ranks that do not come soon are left out, and so many
                                  * others that those left divide the micro-batches of all ... */
    int parts, stages;           /* ... of which each pipeline of `stages` had `parts` */
};

/* Joins them. USAGE if a variable is missing, wrong, or not that of the others; FAILED if rank 0, or another
 * one, cannot be reached; STOPPED if this one is left out while others go on. *absent: how many were left
 * out. *comm is NULL if this one is alone then. */
enum status tcp_ranks_open(const struct tcp_ranks_options *options, struct comm **comm, int *absent);
