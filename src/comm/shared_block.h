/* shared_block.h: the memory that the ranks of a host share with each other and with their launcher. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A slot contains what a rank currently offers to the others. Each rank has two, used alternately. */
#define SHARED_SLOT_BYTES ((size_t)1 << 20)
/* The capacity for messages in transit between two ranks. The file is sparse: only written pages take
 * memory. */
#define SHARED_MAIL_BYTES ((size_t)1 << 30)
#define SHARED_MAIL_MESSAGES 1024

enum shared_call { CALL_NONE, CALL_BARRIER, CALL_BROADCAST, CALL_ALL_GATHER, CALL_ALL_TO_ALL };

/* A rank's request, so that others can check that they make the same one. */
struct shared_request {
    uint32_t call, root;
    uint64_t bytes;
};

/* The state of a rank, which only it writes. */
struct shared_rank {
    _Alignas(64) _Atomic int32_t pid;        /* 0: it has not joined yet */
    _Atomic uint32_t phase;                  /* enum comm_phase */
    _Atomic int64_t step, saved;             /* as in struct comm_progress */
    _Atomic uint64_t reports;                /* how often it has reported progress */
    _Atomic uint64_t exchanges;              /* those that it has reached; a rank that hangs has reached
                                              * fewer than the others */
    struct shared_request requests[2];
};

struct shared_block {
    uint32_t magic, count;
    _Alignas(64) _Atomic uint32_t arrived;   /* at the barrier */
    _Atomic uint32_t generation;             /* of barriers passed: a futex */
    _Atomic uint32_t lost;                   /* 1 + the rank that was first found to have ended; 0: none */
    _Atomic int32_t stop;                    /* from here on written by the launcher: struct comm_request */
    _Atomic uint32_t checkpoints, statuses;
    struct shared_rank ranks[];
};

/* Messages from one rank to one other: a ring of whole messages in a ring of bytes. The sender moves `sent`,
 * the receiver `received`; both are futexes. Positions of bytes only grow: a byte lies at its position modulo
 * the capacity. */
struct shared_mailbox {
    _Alignas(64) _Atomic uint32_t sent;
    _Alignas(64) _Atomic uint32_t received;
    struct shared_message { uint64_t position, bytes; } messages[SHARED_MAIL_MESSAGES];
    _Alignas(4096) char data[];
};

/* Creates an unnamed file, which exists as long as its descriptor; close-on-exec. */
enum status shared_block_create(int count, int *descriptor);
/* Maps the block of a file that shared_block_create made. */
enum status shared_block_map(int descriptor, struct shared_block **block);
void shared_block_unmap(struct shared_block *block);

/* One of a rank's two slots, by turn: 0 or 1. */
char *shared_block_slot(struct shared_block *block, int rank, int turn);

/* Maps the mailbox from one rank to another. */
enum status shared_mailbox_map(int descriptor, int count, int from, int to, struct shared_mailbox **box);
void shared_mailbox_unmap(struct shared_mailbox *box);

/* Sleeps while *word is `value`, for at most `seconds`; may return early. shared_wake ends such sleep. */
void shared_sleep(_Atomic uint32_t *word, uint32_t value, double seconds);
void shared_wake(_Atomic uint32_t *word);
