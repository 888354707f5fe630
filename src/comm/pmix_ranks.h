/* pmix_ranks.h: ranks started by mpirun or srun on one host, which find each other through PMIx and exchange
 * through shared memory. */
#pragma once

#include "comm/comm.h"

/* Joins them. *comm is NULL if that is not possible: there is no PMIx, there are several hosts, or MPI is
 * used instead. `timeout` as in mpi_ranks.h. */
enum status pmix_ranks_open(double timeout, struct comm **comm);
