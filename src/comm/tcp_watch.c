/* tcp_watch.c: threads that sleep until another rank's connection ends, or this rank makes no progress for
 * too long, for exchanges that do not notice. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/signals.h"
#include "comm/tcp_parts.h"

#define LOOK_MILLISECONDS 1000   /* at the deadline */
#define LEAVING_SECONDS 3        /* of `lost`, which may still be under way when connections are closed */

struct tcp_watch {
    struct tcp *tcp;
    void (*lost)(void *context);
    void *context;
    pthread_t thread;
    struct tcp_watch *next;
    struct pollfd polled[];      /* [ranks + 1], the last one is tcp->unwatched */
};

/* The first rank whose connection has ended, or TCP_LATE; TCP_NONE: it is not to be waited for any more. */
static int wait_for_end(struct tcp_watch *watch)
{
    int count = watch->tcp->comm.count, ready;
    while ((ready = poll(watch->polled, (nfds_t)count + 1, LOOK_MILLISECONDS)) <= 0) {
        if (ready < 0 && errno != EINTR) return TCP_NONE;
        if (clock_seconds() > atomic_load(&watch->tcp->deadline)) return TCP_LATE;
    }
    if (watch->polled[count].revents) return TCP_NONE;
    for (int rank = 0; rank < count; rank++)
        if (watch->polled[rank].revents) return rank;
    return TCP_NONE;
}

/* Whoever waits for what `lost` aborts then finds out why it ended. */
static void *watch_run(void *given)
{
    struct tcp_watch *watch = given;
    int rank = wait_for_end(watch);
    if (rank == TCP_NONE) return NULL;
    atomic_store(&watch->tcp->gone, rank);
    watch->lost(watch->context);
    return NULL;
}

enum status tcp_watch_begin(struct tcp *tcp, void (*lost)(void *context), void *context)
{
    size_t count = (size_t)tcp->comm.count;
    if (tcp->unwatched < 0) tcp->unwatched = eventfd(0, EFD_CLOEXEC);
    if (tcp->unwatched < 0) return fail(FAILED, "cannot watch other ranks: %s", strerror(errno));
    struct tcp_watch *watch = memory_new(1, sizeof *watch + (count + 1) * sizeof *watch->polled);
    *watch = (struct tcp_watch){.tcp = tcp, .lost = lost, .context = context, .next = tcp->watches};
    for (size_t rank = 0; rank < count; rank++)
        watch->polled[rank] = (struct pollfd){.fd = tcp->peers[rank].socket, .events = POLLRDHUP};
    watch->polled[count] = (struct pollfd){.fd = tcp->unwatched, .events = POLLIN};
    int error = signals_start_thread(&watch->thread, watch_run, watch);
    if (error != 0) {
        free(watch);
        return fail(FAILED, "cannot start a thread that watches other ranks: %s", strerror(error));
    }
    tcp->watches = watch;
    return OK;
}

bool tcp_watch_end(struct tcp *tcp)
{
    struct timespec until;
    if (tcp->unwatched < 0) return true;
    eventfd_write(tcp->unwatched, 1);
    /* The clock is the one that ThreadSanitizer supports for joining. */
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVING_SECONDS;
    while (tcp->watches) {
        struct tcp_watch *watch = tcp->watches;
        if (pthread_timedjoin_np(watch->thread, NULL, &until) != 0) return false;
        tcp->watches = watch->next;
        free(watch);
    }
    close(tcp->unwatched);
    return true;
}
