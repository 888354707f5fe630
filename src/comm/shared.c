#include "comm/shared.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/shared_parts.h"

/* The interval, in seconds, at which a waiting rank checks whether the others are alive. */
#define LOOK_EVERY 0.05

static struct shared *shared_of(struct comm *comm)
{
    return (struct shared *)comm;
}

/* A rank that has not joined yet has not ended. */
static bool has_ended(struct shared *shared, int rank)
{
    int pid = atomic_load(&shared->block->ranks[rank].pid);
    if (pid == 0) return false;
    if (shared->pidfds[rank] < 0) {
        shared->pidfds[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
        if (shared->pidfds[rank] < 0) return errno == ESRCH;
    }
    struct pollfd end = {.fd = shared->pidfds[rank], .events = POLLIN};
    return poll(&end, 1, 0) == 1;
}

/* Fails if a rank has ended, and names the first one that any rank found. The peer may have ended after it
 * did what this rank waits for, which is not a failure. */
static enum status look_for_ended(const struct shared_wait *wait, _Atomic uint32_t *word, uint32_t value)
{
    struct shared *shared = wait->shared;
    for (int rank = 0; rank < shared->comm.count; rank++) {
        bool waited_for = wait->peer < 0 ? rank != shared->comm.rank : rank == wait->peer;
        uint32_t none = 0;
        if (waited_for && has_ended(shared, rank) && atomic_load(word) == value)
            atomic_compare_exchange_strong(&shared->block->lost, &none, (uint32_t)rank + 1);
    }
    uint32_t lost = atomic_load(&shared->block->lost);
    if (lost == 0) return OK;
    return fail(FAILED, "rank %d waits in %s, but rank %d has ended", shared->comm.rank, wait->what,
                (int)lost - 1);
}

enum status shared_wait(struct shared_wait *wait, _Atomic uint32_t *word, uint32_t value)
{
    const struct shared *shared = wait->shared;
    shared_sleep(word, value, LOOK_EVERY);
    if (atomic_load(word) != value) return OK;
    TRY(look_for_ended(wait, word, value));
    double seconds = clock_seconds() - wait->began;
    if (shared->timeout > 0 && seconds > shared->timeout)
        return fail(FAILED, "rank %d has waited for %.3g s in %s", shared->comm.rank, seconds, wait->what);
    return OK;
}

static enum status pass_barrier(struct shared *shared, const char *what)
{
    struct shared_block *block = shared->block;
    uint32_t generation = atomic_load(&block->generation);
    if (atomic_fetch_add(&block->arrived, 1) + 1 == block->count) {
        atomic_store(&block->arrived, 0);
        atomic_fetch_add(&block->generation, 1);
        shared_wake(&block->generation);
        return OK;
    }
    struct shared_wait wait = {shared, what, -1, clock_seconds()};
    while (atomic_load(&block->generation) == generation)
        TRY(shared_wait(&wait, &block->generation, generation));
    return OK;
}

static const char *const call_names[] = {
    [CALL_NONE] = "nothing", [CALL_BARRIER] = "barrier", [CALL_BROADCAST] = "broadcast",
    [CALL_ALL_GATHER] = "all_gather", [CALL_ALL_TO_ALL] = "all_to_all",
};

static enum status compare_requests(struct shared *shared, const struct shared_request *own, int turn)
{
    for (int rank = 0; rank < shared->comm.count; rank++) {
        const struct shared_request *other = &shared->block->ranks[rank].requests[turn];
        bool same = other->call == own->call && other->root == own->root && other->bytes == own->bytes;
        if (!same)
            return fail(FAILED, "rank %d is in %s of %llu bytes while rank %d is in %s of %llu bytes", rank,
                        call_names[other->call], (unsigned long long)other->bytes, shared->comm.rank,
                        call_names[own->call], (unsigned long long)own->bytes);
    }
    return OK;
}

/* Publishes this rank's slot of this turn. The slots of others may be read until the next call: a rank reuses
 * its slot only after that one, which all reach when they have finished reading. */
static enum status shared_meet(struct shared *shared, const struct shared_request *request)
{
    int turn = shared->turn;
    struct shared_rank *own = &shared->block->ranks[shared->comm.rank];
    own->requests[turn] = *request;
    atomic_fetch_add(&own->exchanges, 1);
    TRY(pass_barrier(shared, call_names[request->call]));
    shared->turn = !turn;
    return compare_requests(shared, request, turn);
}

static char *slot_of(struct shared *shared, int rank)
{
    return shared_block_slot(shared->block, rank, shared->turn);
}

static enum status shared_barrier(struct comm *comm)
{
    return shared_meet(shared_of(comm), &(struct shared_request){CALL_BARRIER, 0, 0});
}

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static enum status shared_broadcast(struct comm *comm, int root, void *data, size_t bytes)
{
    struct shared *shared = shared_of(comm);
    const struct shared_request request = {CALL_BROADCAST, (uint32_t)root, bytes};
    for (size_t done = 0; done < bytes; done += SHARED_SLOT_BYTES) {
        size_t piece = least_of(SHARED_SLOT_BYTES, bytes - done);
        char *from = slot_of(shared, root);
        if (comm->rank == root) memcpy(from, (char *)data + done, piece);
        TRY(shared_meet(shared, &request));
        if (comm->rank != root) memcpy((char *)data + done, from, piece);
    }
    return OK;
}

static enum status all_gather(struct comm *comm, const void *from, void *to, size_t bytes)
{
    struct shared *shared = shared_of(comm);
    const struct shared_request request = {CALL_ALL_GATHER, 0, bytes};
    for (size_t done = 0; done < bytes; done += SHARED_SLOT_BYTES) {
        size_t piece = least_of(SHARED_SLOT_BYTES, bytes - done);
        int turn = shared->turn;
        memcpy(slot_of(shared, comm->rank), (const char *)from + done, piece);
        TRY(shared_meet(shared, &request));
        for (int rank = 0; rank < comm->count; rank++)
            memcpy((char *)to + (size_t)rank * bytes + done, shared_block_slot(shared->block, rank, turn),
                   piece);
    }
    return OK;
}

static enum status exchange_gather(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    return all_gather(comm, from, to, bytes);
}

/* A slot holds one part for each rank, in rank order. */
static enum status all_to_all(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    struct shared *shared = shared_of(comm);
    const struct shared_request request = {CALL_ALL_TO_ALL, 0, bytes};
    size_t room = SHARED_SLOT_BYTES / (size_t)comm->count;
    for (size_t done = 0; done < bytes; done += room) {
        size_t piece = least_of(room, bytes - done);
        int turn = shared->turn;
        char *own = slot_of(shared, comm->rank);
        for (int rank = 0; rank < comm->count; rank++)
            memcpy(own + (size_t)rank * room, (const char *)from + (size_t)rank * bytes + done, piece);
        TRY(shared_meet(shared, &request));
        for (int rank = 0; rank < comm->count; rank++)
            memcpy((char *)to + (size_t)rank * bytes + done,
                   shared_block_slot(shared->block, rank, turn) + (size_t)comm->rank * room, piece);
    }
    return OK;
}

static void shared_report(struct comm *comm, const struct comm_progress *progress)
{
    struct shared_rank *own = &shared_of(comm)->block->ranks[comm->rank];
    atomic_store(&own->step, progress->step);
    atomic_store(&own->saved, progress->saved);
    atomic_store(&own->phase, (uint32_t)progress->phase);
    atomic_fetch_add(&own->reports, 1);
}

static void shared_requested(const struct comm *comm, struct comm_request *request)
{
    struct shared_block *block = ((const struct shared *)comm)->block;
    request->stop = atomic_load(&block->stop);
    request->checkpoints = atomic_load(&block->checkpoints);
    request->statuses = atomic_load(&block->statuses);
}

static void shared_close(struct comm *comm)
{
    struct shared *shared = shared_of(comm);
    for (int rank = 0; rank < comm->count; rank++) {
        if (shared->pidfds[rank] >= 0) close(shared->pidfds[rank]);
        shared_mailbox_unmap(shared->out[rank]);
        shared_mailbox_unmap(shared->in[rank]);
    }
    shared_block_unmap(shared->block);
    close(shared->descriptor);
    free(shared->pidfds);
    free(shared->out);
    free(shared->in);
    free(shared);
}

static const struct comm_backend backend = {
    .name = "shared memory",
    .barrier = shared_barrier,
    .broadcast = shared_broadcast,
    .all_gather = all_gather,
    .report = shared_report,
    .requested = shared_requested,
    .close = shared_close,
};

static const struct exchange_backend exchange = {
    .name = "shared memory",
    .message_bytes = SHARED_MAIL_BYTES,
    .all_to_all = all_to_all,
    .all_gather = exchange_gather,
    .send = shared_send,
    .receive = shared_receive,
};

enum status shared_open(int descriptor, int rank, double timeout, struct comm **comm)
{
    struct shared_block *block;
    TRY(shared_block_map(descriptor, &block));
    int count = (int)block->count;
    struct shared *shared = memory_new(1, sizeof *shared);
    *shared = (struct shared){
        .comm = {.backend = &backend, .exchange = &exchange, .rank = rank, .count = count,
                 .local_rank = rank, .local_count = count},
        .descriptor = descriptor, .timeout = timeout, .block = block,
        .pidfds = memory_new((size_t)count, sizeof(int)),
        .out = memory_new((size_t)count, sizeof(struct shared_mailbox *)),
        .in = memory_new((size_t)count, sizeof(struct shared_mailbox *)),
    };
    for (int other = 0; other < count; other++) shared->pidfds[other] = -1;
    atomic_store(&block->ranks[rank].saved, -1);
    atomic_store(&block->ranks[rank].pid, (int32_t)getpid());
    *comm = &shared->comm;
    return OK;
}
