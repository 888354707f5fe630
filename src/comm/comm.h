/* comm.h: the ranks of a run, which are processes, and the exchanges among them.
 *
 * Exchanges move bytes; sums are ops of the program, with their own order. Every rank makes the same calls in
 * the same order with the same sizes; a backend that notices a mismatch reports it. A call fails, with a
 * message, if a rank that it waits for has ended, or after the backend's timeout; the ranks cannot continue
 * then. Only one thread of a rank may call at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

struct comm;

/* The progress of a rank, for messages about one that died or hangs. */
enum comm_phase { COMM_START, COMM_STEP, COMM_EVALUATION, COMM_CHECKPOINT, COMM_END };
struct comm_progress {
    enum comm_phase phase;
    int64_t step;                         /* steps made */
    int64_t saved;                        /* of those, in the last checkpoint; -1: there is none */
};

/* Requests of the launcher to the ranks. */
struct comm_request {
    int stop;                             /* by this signal; 0: no request */
    uint32_t checkpoints, statuses;       /* how often so far */
};

/* Host memory, outside the training step. */
struct comm_backend {
    const char *name;                     /* "shared memory" */
    enum status (*barrier)(struct comm *comm);
    /* `root`'s bytes to all. */
    enum status (*broadcast)(struct comm *comm, int root, void *data, size_t bytes);
    /* to: [count][bytes], `from` of each rank in their order. */
    enum status (*all_gather)(struct comm *comm, const void *from, void *to, size_t bytes);
    /* comm_report and comm_requested call these; NULL where nobody is told, or asks. */
    void (*report)(struct comm *comm, const struct comm_progress *progress);
    void (*requested)(const struct comm *comm, struct comm_request *request);
    /* comm_watch and comm_alive call these; NULL: whoever started the ranks ends all of them together. */
    enum status (*watch)(struct comm *comm, void (*lost)(void *context), void *context);
    enum status (*alive)(struct comm *comm);
    void (*close)(struct comm *comm);
};

#define EXCHANGE_BESIDE_BYTES (1 << 20)

/* The messages that a rank receives from another one in a step. */
struct comm_mail {
    int messages;
    size_t bytes;                         /* comm_mail_room of each */
};

/* `count` numbers in device memory. */
struct comm_numbers {
    const void *data;
    size_t count;
    enum dtype dtype;
};

static inline size_t comm_mail_room(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Exchanges of the training step: device memory, queued on `stream`, the device's native handle (NULL on the
 * CPU, where they are done on return). `bytes` is what goes from one rank to one other. `from` and `to` do
 * not overlap, but `from` of an all_gather may be this rank's place in `to`. On the CPU a send returns before
 * the bytes are received; messages from one rank to another arrive in order. */
struct exchange_backend {
    const char *name;                     /* "shared memory", "NCCL" */
    size_t message_bytes;                 /* the most that one send may have; 0: there is no limit */
    /* from: [count][bytes], one part for each rank; to: [count][bytes], one part of each. This rank's own
     * part of `to` need not be written. */
    enum status (*all_to_all)(struct comm *comm, const void *from, void *to, size_t bytes, void *stream);
    /* to: [count][bytes]. */
    enum status (*all_gather)(struct comm *comm, const void *from, void *to, size_t bytes, void *stream);
    /* to[i] is the sum of all ranks' from[i], of type F32, F16 or BF16, in the backend's order of addition.
     * NULL if the backend has none: it is then composed of all_to_all, a sum in the program, and
     * all_gather. */
    enum status (*all_reduce)(struct comm *comm, const struct comm_numbers *from, void *to, void *stream);
    enum status (*send)(struct comm *comm, int peer, const void *from, size_t bytes, void *stream);
    enum status (*receive)(struct comm *comm, int peer, void *to, size_t bytes, void *stream);
    /* Announces what this rank receives from each rank, by rank, in every step from now on; all ranks call
     * together, and each calls begin before every step. NULL if nothing needs preparation. */
    enum status (*expect)(struct comm *comm, const struct comm_mail *from);
    void (*begin)(struct comm *comm);
    /* Where the bytes that `peer` sends in a step lie, one message behind another in comm_mail_room; they
     * stay until it sends those of the next step, and a receive into their place copies nothing. NULL:
     * receives always copy. */
    void *(*place)(struct comm *comm, int peer);
    /* Lets other ranks write to the memory that contains everything that all_to_all and all_gather write, at
     * the same offsets on all ranks; `exchanges` of these are the most of a step. It is of
     * device_allocate_shared. All call together; `memory` NULL: none from now on, and each may call alone.
     * NULL if exchanges need none. */
    enum status (*share)(struct comm *comm, void *memory, int exchanges);
    /* all_to_all and all_gather of at least that many bytes do not occupy multiprocessors; 0: they always
     * do. */
    int64_t beside_bytes;                 /* EXCHANGE_BESIDE_BYTES */
    /* Called around sends and receives that must be concurrent; NULL if not needed. */
    enum status (*group_begin)(struct comm *comm);
    enum status (*group_end)(struct comm *comm);
};

struct comm {
    const struct comm_backend *backend;
    const struct exchange_backend *exchange;
    void *exchange_state;                 /* of an exchange backend that is not the host's own */
    int rank, count;                      /* of the run */
    int local_rank, local_count;          /* of those, on this host */
    int hosts;                            /* which exchange by TCP; 0: they do not */
    double bytes_per_second;              /* as measured then, from each rank to the others together */
    double message_seconds;               /* ... of an empty message */
    bool failed;                          /* set before comm_close: other ranks may have ended, so it does not
                                           * wait for them */
};

/* All accept NULL, which stands for a single rank. */
int comm_rank(const struct comm *comm);
int comm_count(const struct comm *comm);
enum status comm_barrier(struct comm *comm);
enum status comm_broadcast(struct comm *comm, int root, void *data, size_t bytes);
enum status comm_all_gather(struct comm *comm, const void *from, void *to, size_t bytes);
/* *number becomes the least of all ranks'. */
enum status comm_minimum(struct comm *comm, int64_t *number);
/* The numbers become the sums of all ranks', in their order. */
enum status comm_sum(struct comm *comm, double *numbers, int count);
void comm_close(struct comm *comm);

/* Calls `lost` as soon as another rank has ended, or this one has reported no progress for longer than the
 * backend's timeout, from a thread of its own, until comm_close: exchanges of a step that would wait for ever
 * can be aborted. */
enum status comm_watch(struct comm *comm, void (*lost)(void *context), void *context);
/* Fails, with a message, if it has been called: what was exchanged since is not to be used. */
enum status comm_alive(struct comm *comm);

/* Tells the launcher, or the watch, that this rank makes progress. */
void comm_report(struct comm *comm, const struct comm_progress *progress);
/* The launcher's request; without a launcher: none. */
struct comm_request comm_requested(const struct comm *comm);
