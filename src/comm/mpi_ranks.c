#include "comm/mpi_ranks.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

/* Not SLURM_NTASKS, which is also set in batch scripts, and those run once. */
int mpi_ranks_count(const char **by)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        int count = value ? atoi(value) : 1;
        if (count <= 1) continue;
        if (by) *by = names[i];
        return count;
    }
    return 1;
}

#ifdef HAVE_MPI
#include <mpi.h>

#define TIMEOUT_SECONDS 600
/* How often a wait yields the processor before it sleeps. */
#define YIELDS 2000
#define SLEEP_NANOSECONDS 50000

/* A message in transit. */
struct pending_send {
    MPI_Request request;
    void *data;
};

struct mpi {
    struct comm comm;
    double timeout;
    struct pending_send *sends;
    int send_count;
};

/* Waits for a nonblocking call, and fills `result` unless it is MPI_STATUS_IGNORE. If the call fails, MPI
 * ends the processes; MPI's own wait has no timeout. */
static enum status mpi_wait(const struct comm *comm, MPI_Request *request, MPI_Status *result,
                            const char *what)
{
    const struct mpi *mpi = (const struct mpi *)comm;
    double began = clock_seconds();
    int done = 0;
    for (int tries = 0; !done; tries++) {
        MPI_Test(request, &done, result);
        if (done) break;
        if (tries < YIELDS) {
            sched_yield();
            continue;
        }
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NANOSECONDS}, NULL);
        if (clock_seconds() - began < mpi->timeout) continue;
        char host[256] = "";
        gethostname(host, sizeof host - 1);
        return fail(FAILED, "rank %d on %s has waited for %.0f s for the others in %s", comm->rank, host,
                    mpi->timeout, what);
    }
    return OK;
}

/* MPI counts in ints. */
static enum status mpi_check_size(size_t bytes, const char *what)
{
    if (bytes <= INT_MAX) return OK;
    return fail(FAILED, "%s of %zu bytes: MPI moves at most %d at a time", what, bytes, INT_MAX);
}

static enum status mpi_barrier(struct comm *comm)
{
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    return mpi_wait(comm, &request, MPI_STATUS_IGNORE, "barrier");
}

static enum status mpi_broadcast(struct comm *comm, int root, void *data, size_t bytes)
{
    MPI_Request request;
    TRY(mpi_check_size(bytes, "broadcast"));
    MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD, &request);
    return mpi_wait(comm, &request, MPI_STATUS_IGNORE, "broadcast");
}

static enum status mpi_all_gather(struct comm *comm, const void *from, void *to, size_t bytes)
{
    MPI_Request request;
    TRY(mpi_check_size(bytes, "all_gather"));
    MPI_Iallgather(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request);
    return mpi_wait(comm, &request, MPI_STATUS_IGNORE, "all_gather");
}

static enum status mpi_exchange_gather(struct comm *comm, const void *from, void *to, size_t bytes,
                                       void *stream)
{
    return mpi_all_gather(comm, from, to, bytes);
}

static enum status mpi_all_to_all(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    MPI_Request request;
    TRY(mpi_check_size(bytes, "all_to_all"));
    MPI_Ialltoall(from, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request);
    return mpi_wait(comm, &request, MPI_STATUS_IGNORE, "all_to_all");
}

static void mpi_sends_free(struct mpi *mpi)
{
    for (int i = 0; i < mpi->send_count;) {
        struct pending_send *pending = &mpi->sends[i];
        int done = 0;
        MPI_Test(&pending->request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            i++;
            continue;
        }
        free(pending->data);
        *pending = mpi->sends[--mpi->send_count];
    }
}

static enum status mpi_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream)
{
    struct mpi *mpi = (struct mpi *)comm;
    TRY(mpi_check_size(bytes, "send"));
    mpi_sends_free(mpi);
    void *data = memory_try(bytes ? bytes : 1, 1);
    if (!data) return fail(FAILED, "no memory for a message of %zu bytes", bytes);
    if (bytes > 0) memcpy(data, from, bytes);
    struct pending_send *pending = array_push(mpi->sends, mpi->send_count);
    pending->data = data;
    MPI_Isend(data, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &pending->request);
    return OK;
}

/* A message of more bytes is an error of MPI's. */
static enum status mpi_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream)
{
    MPI_Request request;
    MPI_Status result;
    int count;
    TRY(mpi_check_size(bytes, "receive"));
    MPI_Irecv(to, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &request);
    TRY(mpi_wait(comm, &request, &result, "receive"));
    MPI_Get_count(&result, MPI_BYTE, &count);
    if ((size_t)count == bytes) return OK;
    return fail(FAILED, "rank %d sends %d bytes where rank %d is to receive %zu", peer, count, comm->rank,
                bytes);
}

/* If a process ends with an error and without MPI_Finalize, mpirun ends the others. */
static void mpi_close(struct comm *comm)
{
    struct mpi *mpi = (struct mpi *)comm;
    while (!comm->failed && mpi->send_count > 0) mpi_sends_free(mpi);
    if (!comm->failed) MPI_Finalize();
    for (int i = 0; i < mpi->send_count; i++) free(mpi->sends[i].data);
    free(mpi->sends);
    free(mpi);
}

static const struct comm_backend backend = {
    .name = "MPI", .barrier = mpi_barrier, .broadcast = mpi_broadcast, .all_gather = mpi_all_gather,
    .close = mpi_close,
};

static const struct exchange_backend exchange = {
    .name = "MPI", .message_bytes = INT_MAX, .all_to_all = mpi_all_to_all,
    .all_gather = mpi_exchange_gather, .send = mpi_send, .receive = mpi_receive,
};

static void mpi_find_place(struct comm *comm)
{
    MPI_Comm host;
    MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &comm->count);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &comm->local_rank);
    MPI_Comm_size(host, &comm->local_count);
    MPI_Comm_free(&host);
}

enum status mpi_ranks_open(double timeout, struct comm **comm)
{
    const char *by = "";
    int level, expected = mpi_ranks_count(&by);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return fail(FAILED, "MPI cannot be initialised");
    if (level < MPI_THREAD_FUNNELED) {
        MPI_Finalize();
        return fail(USAGE, "this MPI is for processes of a single thread (it provides MPI_THREAD_SINGLE), "
                    "but images are loaded by others: use one with MPI_THREAD_FUNNELED");
    }
    struct mpi *mpi = memory_new(1, sizeof *mpi);
    *mpi = (struct mpi){.comm = {.backend = &backend, .exchange = &exchange},
                        .timeout = timeout > 0 ? timeout : TIMEOUT_SECONDS};
    mpi_find_place(&mpi->comm);
    *comm = &mpi->comm;
    if (mpi->comm.count == expected) return OK;
    enum status status = fail(USAGE, "%s is %d, but MPI knows of %d: was it started by another MPI, or by "
                              "srun without --mpi=pmix?", by, expected, mpi->comm.count);
    mpi_close(&mpi->comm);
    *comm = NULL;
    return status;
}

#else

enum status mpi_ranks_open(double timeout, struct comm **comm)
{
    const char *by = "";
    int count = mpi_ranks_count(&by);
    return fail(USAGE, "%s is %d: mpirun or srun started that many processes, but this build has no MPI "
                "(configure --with-mpi); start a single process, which starts its ranks with parallel.gpus=N",
                by, count);
}

#endif
