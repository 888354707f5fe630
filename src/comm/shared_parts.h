/* shared_parts.h: a rank's view of the shared memory; for shared.c and shared_mail.c. */
#pragma once

#include "comm/comm.h"
#include "comm/shared_block.h"

struct shared {
    struct comm comm;
    int descriptor;
    double timeout;
    struct shared_block *block;
    int turn;                             /* which of the two slots comes next */
    int *pidfds;                          /* [count]; -1: not open */
    struct shared_mailbox **out, **in;    /* [count]; NULL: not mapped */
};

/* A wait for `peer` (-1: any of the others), described by `what`. */
struct shared_wait {
    struct shared *shared;
    const char *what;
    int peer;
    double began;
};

/* Sleeps while *word is `value`, for a short time at most. Fails if the wait cannot succeed any more. */
enum status shared_wait(struct shared_wait *wait, _Atomic uint32_t *word, uint32_t value);

enum status shared_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream);
enum status shared_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream);
