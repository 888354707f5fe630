/* mpi_ranks.h: ranks started by mpirun or srun, on one host or several, which exchange through MPI. */
#pragma once

#include "comm/comm.h"

/* How many processes mpirun or srun started together with this one, by the environment; 1: neither did. `by`
 * may get the variable that says so. */
int mpi_ranks_count(const char **by);

/* Joins them. USAGE in a build without MPI, and where MPI does not know as many. `timeout`: seconds that a
 * wait for other ranks may last; 0: ten minutes. */
enum status mpi_ranks_open(double timeout, struct comm **comm);
