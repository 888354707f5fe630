/* tcp_ranks.h: ranks that others started on one host or several, with the environment that torchrun, and
 * recipes for schedulers, set: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and LOCAL_RANK. They meet by TCP.
 * Those of one host exchange through shared memory from then on, others by TCP. */
#pragma once

#include "comm/comm.h"

/* True if RANK is set and WORLD_SIZE is more than 1. */
bool tcp_ranks_started(void);

/* Joins them. USAGE if a variable is missing, wrong, or not that of the others; FAILED if rank 0, or another
 * one, cannot be reached. `timeout`: maximum seconds of a wait for other ranks; 0: ten minutes. */
enum status tcp_ranks_open(double timeout, struct comm **comm);
