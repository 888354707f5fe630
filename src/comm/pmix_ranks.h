/* pmix_ranks.h: ranks that mpirun or srun started on one host, which know each other by PMIx and exchange
 * bytes through shared memory. */
#pragma once

#include "comm/comm.h"

/* Joins them. *comm is NULL where that cannot be: there is no PMIx, there are several hosts, or MPI is to do
 * it. `timeout` as in mpi_ranks.h. */
enum status pmix_ranks_open(double timeout, struct comm **comm);
