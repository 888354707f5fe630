/* mpi_messages.c: what the program does with ranks of MPI, for test_ranks_mpi.sh: a rank of two that receives
 * a message of as many bytes as are sent, and then one of fewer; MPI's level of threads, as the environment
 * has it: AMPTRAIN_MPI_LEVEL=single. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/mpi_ranks.h"

#ifdef HAVE_MPI
#include <mpi.h>

/* In place of MPI's own. */
int MPI_Init_thread(int *count, char ***arguments, int wanted, int *provided)
{
    int result = PMPI_Init_thread(count, arguments, wanted, provided);
    if (getenv("AMPTRAIN_MPI_LEVEL")) *provided = MPI_THREAD_SINGLE;
    return result;
}
#endif

static enum status exchange_messages(struct comm *comm)
{
    char message[] = "ten bytes", got[32];
    const struct exchange_backend *exchange = comm->exchange;
    if (comm->rank == 0) {
        TRY(exchange->send(comm, 1, message, sizeof message, NULL));
        return exchange->send(comm, 1, message, sizeof message, NULL);
    }
    TRY(exchange->receive(comm, 0, got, sizeof message, NULL));
    if (memcmp(got, message, sizeof message) != 0) return BAD_DATA;
    return exchange->receive(comm, 0, got, sizeof got, NULL);
}

int main(void)
{
    struct comm *comm;
    TRY(mpi_ranks_open(30, &comm));
    enum status status = exchange_messages(comm);
    comm_close(comm);
    return status;
}
