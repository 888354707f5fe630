/* mpi_ranks.h: ranks started by mpirun or srun, on one host or several, which exchange through MPI. */
#pragma once

#include "comm/comm.h"

/* The number of processes that mpirun or srun started together, from the environment; 1: neither did. If `by`
 * is not NULL, it becomes the name of the variable. */
int mpi_ranks_count(const char **by);

/* Joins them. USAGE in a build without MPI, and if MPI reports a different number. `timeout`: maximum seconds
 * of a wait for other ranks; 0: ten minutes. */
enum status mpi_ranks_open(double timeout, struct comm **comm);
