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

/* A mailbox whose `data` has `capacity` bytes, a power of two, so that positions may wrap around; one thread
 * puts messages of at most that many, one takes. `put` copies one in, false: there
 * is no room for it yet. `oldest` is the one to be taken next, NULL: there is none; `take` copies it out and
 * frees its room. */
bool shared_mail_put(struct shared_mailbox *box, size_t capacity, const void *from, size_t bytes);
const struct shared_message *shared_mail_oldest(const struct shared_mailbox *box);
void shared_mail_take(struct shared_mailbox *box, size_t capacity, void *to);

enum status shared_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream);
enum status shared_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream);
