/* tcp_parts.h: ranks with a connection to each other; for tcp_ranks.c, which makes the connections, and
 * tcp_exchange.c. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "comm/comm.h"
#include "comm/tcp.h"

#define TCP_HOST 64

/* Precedes the bytes of every message. */
#define TCP_MAGIC UINT64_C(0x616d707472616e31)
struct tcp_frame {
    uint64_t magic, bytes;
    int32_t lost;                /* -1; in the last frame of a rank that fails: the rank that failed first */
    uint32_t call;               /* enum tcp_call */
};

enum tcp_call { TCP_BARRIER, TCP_BROADCAST, TCP_ALL_GATHER, TCP_ALL_TO_ALL, TCP_MESSAGE, TCP_END, TCP_STEP };

/* Another rank. */
struct tcp_peer {
    int socket;                  /* -1: this rank's own, or not connected */
    char host[TCP_HOST];
    char *out;                   /* [out_count] bytes to be sent, of which `sent` were */
    size_t out_count, out_room, sent;
};

struct tcp {
    struct comm comm;
    double timeout;
    double waited;               /* seconds before this call, for messages */
    int lost;                    /* the rank that was found to have failed; -1: none */
    struct tcp_peer *peers;      /* [comm.count] */
    struct tcp_watch *watches;
    int unwatched;               /* readable when they are to end; -1: there is none */
    _Atomic double deadline;     /* of this rank's next progress, by clock_seconds */
    atomic_int gone;             /* the rank whose end they have noticed; TCP_NONE, TCP_LATE: no progress */
};
enum { TCP_NONE = -1, TCP_LATE = -2 };

/* Without connections, which the caller makes. `host` of each peer is empty. */
struct tcp *tcp_exchange_make(int rank, int count, double timeout);

/* tcp_watch.c: comm_backend.watch, and its end, before this rank or another one closes connections. False:
 * a call of `lost` does not return, and may still use *tcp. */
enum status tcp_watch_begin(struct tcp *tcp, void (*lost)(void *context), void *context);
bool tcp_watch_end(struct tcp *tcp);
