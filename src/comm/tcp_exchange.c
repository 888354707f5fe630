/* tcp_exchange.c: exchanges over one connection for each pair of ranks. Sends are queued and never wait;
 * receives wait, and meanwhile send what is queued. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/tcp_parts.h"

static const char *const call_names[] = {
    [TCP_BARRIER] = "barrier", [TCP_BROADCAST] = "broadcast", [TCP_ALL_GATHER] = "all_gather",
    [TCP_ALL_TO_ALL] = "all_to_all", [TCP_MESSAGE] = "receive",
    [TCP_END] = "the end of the run", [TCP_STEP] = "a step",
};

/* Something that a rank sends us. */
struct incoming {
    void *to;                    /* [bytes]; NULL, with wanted: no bytes */
    size_t bytes, got;           /* of frame and bytes together */
    struct tcp_frame frame;
    bool wanted, done;
};

/* ---- Failures ---- */

/* The rank that a peer whose connection has ended names in its last frame, as the first that failed; itself,
 * if it could not say so. */
static int last_words(const struct tcp_peer *peer, int rank)
{
    char bytes[4096];
    struct tcp_frame frame = {0};
    ssize_t got;
    while ((got = recv(peer->socket, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        size_t count = (size_t)got, keep = count < sizeof frame ? sizeof frame - count : 0;
        memmove(&frame, (char *)&frame + sizeof frame - keep, keep);
        size_t taken = sizeof frame - keep;
        memcpy((char *)&frame + keep, bytes + count - taken, taken);
    }
    return frame.magic == TCP_MAGIC && frame.lost >= 0 ? frame.lost : rank;
}

static enum status fail_lost(struct tcp *tcp, int rank, enum tcp_call call)
{
    if (tcp->lost < 0) tcp->lost = last_words(&tcp->peers[rank], rank);
    if (tcp->lost >= tcp->comm.count || tcp->lost == tcp->comm.rank) tcp->lost = rank;
    return fail(FAILED, "rank %d waits in %s, but rank %d on %s has ended, or cannot be reached any more",
                tcp->comm.rank, call_names[call], tcp->lost, tcp->peers[tcp->lost].host);
}

/* ---- Sending ---- */

static bool is_gone(int error)
{
    return error != EAGAIN && error != EWOULDBLOCK && error != EINTR;
}

/* Sends as much as the connection takes; false: it has ended. */
static bool flush(struct tcp_peer *peer)
{
    while (peer->sent < peer->out_count) {
        ssize_t wrote = send(peer->socket, peer->out + peer->sent, peer->out_count - peer->sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
        if (wrote < 0) return !is_gone(errno);
        peer->sent += (size_t)wrote;
    }
    peer->sent = peer->out_count = 0;
    return true;
}

static void queue(struct tcp_peer *peer, const void *bytes, size_t count)
{
    if (count == 0) return;
    if (peer->out_count + count > peer->out_room) {
        peer->out_room = 2 * (peer->out_count + count);
        peer->out = memory_resize(peer->out, peer->out_room, 1);
    }
    memcpy(peer->out + peer->out_count, bytes, count);
    peer->out_count += count;
}

static enum status give(struct tcp *tcp, int rank, enum tcp_call call, const void *bytes, size_t count)
{
    const struct tcp_frame frame = {TCP_MAGIC, count, -1, call};
    struct tcp_peer *peer = &tcp->peers[rank];
    queue(peer, &frame, sizeof frame);
    queue(peer, bytes, count);
    return flush(peer) ? OK : fail_lost(tcp, rank, call);
}

/* ---- Receiving ---- */

static enum status check_frame(const struct tcp *tcp, int rank, const struct incoming *in, enum tcp_call call)
{
    const struct tcp_frame *frame = &in->frame;
    if (frame->magic == TCP_MAGIC && frame->call == call && frame->bytes == in->bytes) return OK;
    bool known = frame->magic == TCP_MAGIC && frame->call <= TCP_STEP;
    return fail(FAILED, "rank %d is in %s of %llu bytes while rank %d is in %s of %zu bytes", rank,
                known ? call_names[frame->call] : "nothing known", (unsigned long long)frame->bytes,
                tcp->comm.rank, call_names[call], in->bytes);
}

/* Reads as much as has arrived. */
static enum status take(struct tcp *tcp, int rank, struct incoming *in, enum tcp_call call)
{
    while (!in->done) {
        size_t head = sizeof in->frame;
        bool in_head = in->got < head;
        char *to = in_head ? (char *)&in->frame + in->got : (char *)in->to + (in->got - head);
        size_t left = in_head ? head - in->got : head + in->bytes - in->got;
        ssize_t got = recv(tcp->peers[rank].socket, to, left, MSG_DONTWAIT);
        if (got < 0 && !is_gone(errno)) return OK;
        if (got <= 0) return fail_lost(tcp, rank, call);
        in->got += (size_t)got;
        if (in_head && in->got == head && in->frame.lost >= 0) {
            tcp->lost = in->frame.lost;
            return fail_lost(tcp, rank, call);
        }
        if (in_head && in->got == head) TRY(check_frame(tcp, rank, in, call));
        in->done = in->got == head + in->bytes;
    }
    return OK;
}

/* Ranks that have met all others for the last time close their connections. */
static bool may_end(const struct incoming *in, enum tcp_call call)
{
    return call == TCP_END && in->done;
}

static int polled_of(const struct tcp *tcp, const struct incoming *in, struct pollfd *polled,
                     enum tcp_call call)
{
    int wanted = 0;
    for (int rank = 0; rank < tcp->comm.count; rank++) {
        const struct tcp_peer *peer = &tcp->peers[rank];
        bool waits = in[rank].wanted && !in[rank].done, sends = peer->out_count > 0;
        short events = (short)(POLLRDHUP | (waits ? POLLIN : 0) | (sends ? POLLOUT : 0));
        int socket = may_end(&in[rank], call) && !sends ? -1 : peer->socket;
        polled[rank] = (struct pollfd){.fd = socket, .events = events};
        wanted += waits;
    }
    return wanted;
}

static enum status handle(struct tcp *tcp, const struct pollfd *polled, struct incoming *in,
                          enum tcp_call call)
{
    for (int rank = 0; rank < tcp->comm.count; rank++) {
        short found = polled[rank].revents;
        if (found & POLLOUT && !flush(&tcp->peers[rank])) return fail_lost(tcp, rank, call);
        if (in[rank].wanted && !in[rank].done && found) TRY(take(tcp, rank, &in[rank], call));
        else if (found & (POLLRDHUP | POLLHUP | POLLERR) && !may_end(&in[rank], call))
            return fail_lost(tcp, rank, call);
    }
    return OK;
}

static enum status fail_late(struct tcp *tcp, const struct incoming *in, double seconds,
                             enum tcp_call call)
{
    int rank = 0;
    while (!in[rank].wanted || in[rank].done) rank++;
    if (tcp->lost < 0) tcp->lost = rank;
    return fail(FAILED, "rank %d has waited for %.3g s for rank %d on %s in %s", tcp->comm.rank,
                tcp->waited + seconds, rank, tcp->peers[rank].host, call_names[call]);
}

static enum status receive_all(struct tcp *tcp, struct incoming *in, struct pollfd *polled,
                               enum tcp_call call)
{
    double began = clock_seconds();
    while (polled_of(tcp, in, polled, call) > 0) {
        double seconds = clock_seconds() - began;
        if (seconds > tcp->timeout) return fail_late(tcp, in, seconds, call);
        poll(polled, (nfds_t)tcp->comm.count, 200);
        TRY(handle(tcp, polled, in, call));
    }
    return OK;
}

/* Receives `bytes` from each rank (`only` -1), or from one, to its place in `to`, these `stride` apart. */
static enum status receive(struct tcp *tcp, int only, void *to, size_t stride, size_t bytes,
                           enum tcp_call call)
{
    size_t count = (size_t)tcp->comm.count;
    struct incoming *in = memory_new(count, sizeof *in);
    struct pollfd *polled = memory_new(count, sizeof *polled);
    for (int rank = 0; rank < tcp->comm.count; rank++)
        in[rank] = (struct incoming){.to = (char *)to + (size_t)rank * stride, .bytes = bytes,
                                     .wanted = rank != tcp->comm.rank && (only < 0 || rank == only)};
    enum status status = receive_all(tcp, in, polled, call);
    free(polled);
    free(in);
    return status;
}

/* ---- Calls ---- */

static struct tcp *tcp_of(struct comm *comm) { return (struct tcp *)comm; }

/* `from` has a part for each rank, these `step` apart, or 0: the same for all. */
static enum status tcp_all(struct comm *comm, const void *from, size_t step, void *to, size_t bytes,
                           enum tcp_call call)
{
    size_t own = (size_t)comm->rank;
    for (int rank = 0; rank < comm->count; rank++)
        if (rank != comm->rank)
            TRY(give(tcp_of(comm), rank, call, (const char *)from + (size_t)rank * step, bytes));
    if (bytes > 0) memmove((char *)to + own * bytes, (const char *)from + own * step, bytes);
    return receive(tcp_of(comm), -1, to, bytes, bytes, call);
}

static enum status tcp_barrier(struct comm *comm) { return tcp_all(comm, NULL, 0, NULL, 0, TCP_BARRIER); }

static enum status tcp_broadcast(struct comm *comm, int root, void *data, size_t bytes)
{
    if (comm->rank != root) return receive(tcp_of(comm), root, data, 0, bytes, TCP_BROADCAST);
    for (int rank = 0; rank < comm->count; rank++)
        if (rank != root) TRY(give(tcp_of(comm), rank, TCP_BROADCAST, data, bytes));
    return OK;
}

static enum status tcp_all_gather(struct comm *comm, const void *from, void *to, size_t bytes)
{
    return tcp_all(comm, from, 0, to, bytes, TCP_ALL_GATHER);
}

static enum status exchange_gather(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    return tcp_all_gather(comm, from, to, bytes);
}

static enum status exchange_all_to_all(struct comm *comm, const void *from, void *to, size_t bytes,
                                       void *stream)
{
    return tcp_all(comm, from, bytes, to, bytes, TCP_ALL_TO_ALL);
}

static enum status exchange_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream)
{
    return give(tcp_of(comm), peer, TCP_MESSAGE, from, bytes);
}

static enum status exchange_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream)
{
    return receive(tcp_of(comm), peer, to, 0, bytes, TCP_MESSAGE);
}

static enum status tcp_watch(struct comm *comm, void (*lost)(void *context), void *context)
{
    return tcp_watch_begin(tcp_of(comm), lost, context);
}

/* Without progress: factors of the timeout. At the start there is none to be told. */
static void tcp_report(struct comm *comm, const struct comm_progress *progress)
{
    static const double factors[] = {
        [COMM_START] = INFINITY, [COMM_STEP] = 1, [COMM_EVALUATION] = 10, [COMM_CHECKPOINT] = 10,
        [COMM_END] = 10,
    };
    struct tcp *tcp = tcp_of(comm);
    atomic_store(&tcp->deadline, clock_seconds() + factors[progress->phase] * tcp->timeout);
}

#define ROLL_CALL_SECONDS 5      /* of ranks that have waited as long as this one */

/* All who wait for others answer. */
static enum status fail_without_progress(struct tcp *tcp)
{
    tcp->waited = tcp->timeout;
    tcp->timeout = ROLL_CALL_SECONDS;
    TRY(tcp_all(&tcp->comm, NULL, 0, NULL, 0, TCP_STEP));
    return fail(FAILED, "no rank has made progress for %.3g s: all wait in a step", tcp->waited);
}

/* A failure that others were told of has been said. */
static enum status tcp_alive(struct comm *comm)
{
    struct tcp *tcp = tcp_of(comm);
    int gone = atomic_load(&tcp->gone);
    if (gone == TCP_NONE) return OK;
    if (tcp->lost >= 0 || tcp->waited > 0) return FAILED;
    return gone == TCP_LATE ? fail_without_progress(tcp) : fail_lost(tcp, gone, TCP_STEP);
}

#define LAST_SECONDS 1

/* Sends the rest of the queue. */
static void finish(struct tcp_peer *peer, double deadline)
{
    tcp_write(peer->socket, peer->out + peer->sent, peer->out_count - peer->sent, deadline);
    shutdown(peer->socket, SHUT_WR);
}

/* Reads until the other end is closed: closing before that would discard what was sent. */
static void drain(const struct tcp_peer *peer, double deadline)
{
    char bytes[4096];
    while (tcp_read(peer->socket, bytes, sizeof bytes, deadline)) {}
}

/* A rank that fails tells the others whose failure it was, with what is sent to them last. */
static void tcp_close(struct comm *comm)
{
    struct tcp *tcp = tcp_of(comm);
    bool unwatched = tcp_watch_end(tcp);
    const struct tcp_frame last = {TCP_MAGIC, 0, tcp->lost < 0 ? comm->rank : tcp->lost, TCP_BARRIER};
    bool failed = comm->failed || tcp_all(comm, NULL, 0, NULL, 0, TCP_END) != OK;
    double deadline = clock_seconds() + LAST_SECONDS;
    for (int rank = 0; rank < comm->count; rank++) {
        struct tcp_peer *peer = &tcp->peers[rank];
        if (peer->socket < 0) continue;
        if (failed) queue(peer, &last, sizeof last);
        finish(peer, deadline);
    }
    for (int rank = 0; rank < comm->count; rank++) {
        struct tcp_peer *peer = &tcp->peers[rank];
        if (peer->socket < 0) continue;
        drain(peer, deadline);
        close(peer->socket);
        free(peer->out);
    }
    if (!unwatched) return;
    free(tcp->peers);
    free(tcp);
}

static const struct comm_backend backend = {
    .name = "TCP", .barrier = tcp_barrier, .broadcast = tcp_broadcast, .all_gather = tcp_all_gather,
    .report = tcp_report, .watch = tcp_watch, .alive = tcp_alive, .close = tcp_close,
};

static const struct exchange_backend exchange = {
    .name = "TCP", .all_to_all = exchange_all_to_all, .all_gather = exchange_gather, .send = exchange_send,
    .receive = exchange_receive,
};

struct tcp *tcp_exchange_make(int rank, int count, double timeout)
{
    struct tcp *tcp = memory_new(1, sizeof *tcp);
    *tcp = (struct tcp){
        .comm = {.backend = &backend, .exchange = &exchange, .rank = rank, .count = count},
        .timeout = timeout, .lost = -1, .unwatched = -1, .deadline = INFINITY, .gone = TCP_NONE,
        .peers = memory_new((size_t)count, sizeof *tcp->peers),
    };
    for (int i = 0; i < count; i++) tcp->peers[i].socket = -1;
    return tcp;
}
