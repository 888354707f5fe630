/* tcp_ranks.c: rank 0 listens at MASTER_PORT. Each other rank connects to it and says who it is and where it
 * listens itself; when all are there, rank 0 sends everyone the table of all places, and each connects to the
 * ranks below it. */
#include "comm/tcp_ranks.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/host_file.h"
#include "comm/shared.h"
#include "comm/shared_block.h"
#include "comm/tcp_parts.h"

#define TIMEOUT_SECONDS 600
#define WARN_SECONDS 5           /* of waiting, after which it is said for whom */
#define GONE_SECONDS 20          /* of waiting after a restart; others notice a failure within nine */
#define TRY_SECONDS 3            /* of one attempt to connect, or to hear who has connected */

/* The settings of the environment. */
struct started {
    int rank, count, port, local;        /* local: LOCAL_RANK; -1: not set */
    const char *address;
};

/* A rank's place, as it says when it connects (without the address), and as the table has it. */
struct place {
    uint64_t magic, host;                /* equal on one host */
    int32_t rank, count, port;
    char name[TCP_HOST], address[TCP_ADDRESS];
};

/* ---- The environment ---- */

static enum status number_of(const char *name, long least, long most, int *number)
{
    const char *value = getenv(name);
    char *end;
    long read = value ? strtol(value, &end, 10) : 0;
    if (!value) return fail(USAGE, "RANK and WORLD_SIZE are set, but %s is not", name);
    if (end == value || *end != '\0' || read < least || read > most)
        return fail(USAGE, "%s is '%s': must be a number from %ld to %ld", name, value, least, most);
    *number = (int)read;
    return OK;
}

bool tcp_ranks_started(void)
{
    const char *count = getenv("WORLD_SIZE");
    return getenv("RANK") && count && atoi(count) > 1;
}

/* torchrun's own process listens at the port, for its store: the next one is ours then. */
static enum status read_environment(struct started *started)
{
    const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    started->address = getenv("MASTER_ADDR");
    started->local = -1;
    TRY(number_of("WORLD_SIZE", 2, 65536, &started->count));
    TRY(number_of("RANK", 0, started->count - 1, &started->rank));
    TRY(number_of("MASTER_PORT", 1, 65534, &started->port));
    if (getenv("LOCAL_RANK")) TRY(number_of("LOCAL_RANK", 0, started->rank, &started->local));
    if (!started->address || !*started->address)
        return fail(USAGE, "RANK and WORLD_SIZE are set, but MASTER_ADDR is not");
    if (store && strcmp(store, "True") == 0) started->port++;
    return OK;
}

/* A host is told from others by its name, its boot, its network, and torchrun's number of it. */
static struct place own_place(const struct started *started, int port)
{
    const char *group = getenv("GROUP_RANK");
    struct place own = {.magic = TCP_MAGIC, .rank = started->rank, .count = started->count, .port = port};
    struct text all = {0};
    char network[PATH_MAX] = "", boot[64] = "";
    ssize_t length = readlink("/proc/self/ns/net", network, sizeof network - 1);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(boot, sizeof boot, file)) boot[0] = '\0';
    if (file) fclose(file);
    gethostname(own.name, sizeof own.name - 1);
    text_add(&all, "%s %s %.*s %s", own.name, boot, length > 0 ? (int)length : 0, network,
             group ? group : "");
    own.host = hash_bytes(0, all.data, all.length);
    text_free(&all);
    return own;
}

/* ---- The meeting ---- */

struct meeting {
    struct started started;
    const struct tcp_ranks_options *options;
    struct tcp *tcp;
    struct place *places;        /* [count]; magic 0: not there yet */
    int listening;
    double began, deadline;
    bool warned;
};

static bool should_warn(struct meeting *meeting)
{
    bool warns = !meeting->warned && clock_seconds() - meeting->began > WARN_SECONDS;
    meeting->warned = meeting->warned || warns;
    return warns;
}

static void add_missing(const struct meeting *meeting, struct text *out)
{
    int shown = 0, count = 0;
    for (int rank = 1; rank < meeting->started.count; rank++) {
        if (meeting->places[rank].magic) continue;
        if (shown++ < 8) text_add(out, "%s%d", shown > 1 ? ", " : "", rank);
        count++;
    }
    if (count > 8) text_add(out, ", ... (%d)", count);
}

/* Takes in who has connected to rank 0: a rank, or anyone else, who is sent away. */
static enum status admit(struct meeting *meeting, int socket)
{
    struct place place;
    struct tcp *tcp = meeting->tcp;
    bool known = tcp_read(socket, &place, sizeof place, clock_seconds() + TRY_SECONDS) &&
                 place.magic == TCP_MAGIC && memchr(place.name, 0, sizeof place.name);
    if (!known) {
        close(socket);
        return OK;
    }
    enum status status = OK;
    if (place.count != tcp->comm.count)
        status = fail(USAGE, "rank %d on %s has WORLD_SIZE=%d, rank 0 has %d", place.rank, place.name,
                      place.count, tcp->comm.count);
    else if (place.rank < 1 || place.rank >= place.count || meeting->places[place.rank].magic)
        status = fail(USAGE, "there are two processes with RANK=%d: the second one is on %s", place.rank,
                      place.name);
    if (status != OK) {
        close(socket);
        return status;
    }
    tcp_peer_address(socket, place.address);
    meeting->places[place.rank] = place;
    tcp->peers[place.rank].socket = socket;
    return OK;
}

/* Addresses of this host that only it can use become the one by which the other rank has reached it. */
static enum status send_table(const struct meeting *meeting, int rank)
{
    size_t count = (size_t)meeting->started.count;
    int socket = meeting->tcp->peers[rank].socket;
    struct place *table = memory_new(count, sizeof *table);
    memcpy(table, meeting->places, count * sizeof *table);
    for (size_t i = 1; i < count; i++)
        if (tcp_is_loopback(table[i].address)) tcp_own_address(socket, table[i].address);
    bool sent = tcp_write(socket, table, count * sizeof *table, meeting->deadline);
    free(table);
    return sent ? OK : fail(FAILED, "rank %d on %s has ended before all ranks had met", rank,
                            meeting->places[rank].name);
}

/* The largest number of ranks, of those that are there, that divides the micro-batches of all. */
static int usable_count(const struct meeting *meeting, int there)
{
    const struct tcp_ranks_options *options = meeting->options;
    int stages = options->stages, parts = meeting->started.count / stages * options->parts;
    for (int count = there / stages * stages; count > 0; count -= stages)
        if (parts % (count / stages) == 0) return count;
    return 0;
}

/* Sends the table to ranks that are left out, too: they are not in it. */
static enum status leave_out(struct meeting *meeting, int there)
{
    int count = usable_count(meeting, there), kept = 0;
    struct text missing = {0};
    add_missing(meeting, &missing);
    if (count > 0)
        log_warning("these ranks have not come back: %s; the run goes on with %d of %d", missing.data, count,
                    meeting->started.count);
    else
        fail(FAILED, "these ranks have not come back, and the others cannot go on without them: %s",
             missing.data);
    text_free(&missing);
    for (int rank = 0; rank < meeting->started.count; rank++) {
        kept += meeting->places[rank].magic != 0;
        if (kept > count) meeting->places[rank].magic = 0;
    }
    return count > 0 ? OK : FAILED;
}

/* Ranks that are there are numbered anew, in their order. */
static enum status close_ranks(struct meeting *meeting, int *absent)
{
    struct tcp *tcp = meeting->tcp;
    int count = 0, own = meeting->started.rank, now = -1;
    for (int rank = 0; rank < meeting->started.count; rank++) {
        int socket = tcp->peers[rank].socket;
        tcp->peers[rank].socket = -1;
        if (!meeting->places[rank].magic) {
            if (socket >= 0) close(socket);
            continue;
        }
        if (rank == own) now = count;
        meeting->places[count] = meeting->places[rank];
        tcp->peers[count++].socket = socket;
    }
    if (now < 0) return fail(STOPPED, "rank %d is not needed: others go on without it", own);
    *absent = meeting->started.count - count;
    meeting->started.rank = tcp->comm.rank = now;
    meeting->started.count = tcp->comm.count = count;
    return OK;
}

static enum status meet_first(struct meeting *meeting)
{
    struct reason why;
    int port = meeting->started.port, count = meeting->started.count;
    meeting->listening = tcp_listen(&port, &why);
    if (meeting->listening < 0) return fail(FAILED, "MASTER_PORT: %s", why.text);
    meeting->places[0] = own_place(&meeting->started, port);
    for (int there = 1; there < count;) {
        int socket = tcp_accept(meeting->listening, 1);
        if (socket >= 0) TRY(admit(meeting, socket));
        there = 1;
        for (int rank = 1; rank < count; rank++) there += meeting->places[rank].magic != 0;
        bool late = clock_seconds() > meeting->deadline;
        double gone = meeting->began + fmin(GONE_SECONDS, (meeting->deadline - meeting->began) / 2);
        if (meeting->options->fewer && there < count && clock_seconds() > gone) {
            TRY(leave_out(meeting, there));
            break;
        }
        if (there == count || (!late && !should_warn(meeting))) continue;
        struct text missing = {0};
        add_missing(meeting, &missing);
        if (late)
            fail(FAILED, "rank 0 has waited for %.3g s at port %d, but these ranks have not come: %s",
                 clock_seconds() - meeting->began, port, missing.data);
        else
            log_warning("rank 0 waits at port %d for these ranks: %s", port, missing.data);
        text_free(&missing);
        if (late) return FAILED;
    }
    for (int rank = 1; rank < count; rank++)
        if (meeting->tcp->peers[rank].socket >= 0) TRY(send_table(meeting, rank));
    return OK;
}

/* Tries until the other rank listens. */
static enum status reach(struct meeting *meeting, const char *address, int port, int to, int *socket)
{
    struct reason why;
    while ((*socket = tcp_connect(address, port, TRY_SECONDS, &why)) < 0) {
        bool late = clock_seconds() > meeting->deadline;
        if (late || should_warn(meeting))
            log_line(late ? LOG_ERROR : LOG_WARNING, "rank %d cannot reach rank %d at %s, port %d: %s%s",
                     meeting->started.rank, to, address, port, why.text,
                     to == 0 ? " (MASTER_ADDR, MASTER_PORT)" : "; is that the right network interface?");
        if (late) return FAILED;
        usleep(100000);
    }
    return OK;
}

static enum status meet_others(struct meeting *meeting)
{
    const struct started *started = &meeting->started;
    struct reason why;
    int port = 0, *first = &meeting->tcp->peers[0].socket;
    meeting->listening = tcp_listen(&port, &why);
    if (meeting->listening < 0) return fail(FAILED, "%s", why.text);
    const struct place own = own_place(started, port);
    TRY(reach(meeting, started->address, started->port, 0, first));
    size_t bytes = (size_t)started->count * sizeof *meeting->places;
    bool met = tcp_write(*first, &own, sizeof own, meeting->deadline) &&
               tcp_read(*first, meeting->places, bytes, meeting->deadline);
    if (met && meeting->places[0].magic == TCP_MAGIC) return OK;
    return fail(FAILED, "rank %d has reached %s, port %d, but rank 0 has ended there, or waits for others "
                "than this one", started->rank, started->address, started->port);
}

/* Connects to the ranks below this one, and hears from those above it. */
static enum status connect_all(struct meeting *meeting)
{
    struct tcp *tcp = meeting->tcp;
    int32_t own = meeting->started.rank;
    meeting->warned = false;
    meeting->began = clock_seconds();
    for (int rank = 1; rank < own; rank++) {
        const struct place *place = &meeting->places[rank];
        int *socket = &tcp->peers[rank].socket;
        TRY(reach(meeting, place->address, place->port, rank, socket));
        if (!tcp_write(*socket, &own, sizeof own, meeting->deadline))
            return fail(FAILED, "rank %d on %s has ended before all ranks had met", rank, place->name);
    }
    for (int left = own > 0 ? tcp->comm.count - 1 - own : 0; left > 0;) {
        int socket = tcp_accept(meeting->listening, 1);
        int32_t from = -1;
        bool known = socket >= 0 && tcp_read(socket, &from, sizeof from, clock_seconds() + TRY_SECONDS) &&
                     from > own && from < tcp->comm.count && tcp->peers[from].socket < 0;
        if (known) tcp->peers[from].socket = socket;
        else if (socket >= 0) close(socket);
        left -= known;
        if (clock_seconds() > meeting->deadline)
            return fail(FAILED, "rank %d has waited for %d other ranks to reach it", own, left);
    }
    return OK;
}

/* Ranks of one host are numbered in their order, unless LOCAL_RANK says otherwise. */
static int find_hosts(const struct meeting *meeting)
{
    struct comm *comm = &meeting->tcp->comm;
    const struct place *places = meeting->places;
    int hosts = 0;
    for (int rank = 0; rank < comm->count; rank++) {
        bool here = places[rank].host == places[comm->rank].host, first = true;
        for (int before = 0; before < rank; before++)
            first = first && places[before].host != places[rank].host;
        hosts += first;
        comm->local_count += here;
        comm->local_rank += here && rank < comm->rank;
        snprintf(meeting->tcp->peers[rank].host, TCP_HOST, "%s", places[rank].name);
    }
    if (meeting->started.local >= 0) comm->local_rank = meeting->started.local;
    return hosts;
}

/* ---- One host ---- */

/* Opens the first rank's memory for all ranks, or for none: those of separate containers cannot open it. */
static enum status share_memory(struct comm *tcp, double timeout, struct comm **shared)
{
    struct host_file_offer offer = {.descriptor = -1};
    int block = -1;
    if (tcp->rank == 0) {
        TRY(shared_block_create(tcp->count, &block));
        offer = host_file_offer(block);
    }
    TRY(comm_broadcast(tcp, 0, &offer, sizeof offer));
    if (tcp->rank > 0) block = host_file_accept(&offer);
    int64_t good = block >= 0;
    enum status status = comm_minimum(tcp, &good);
    if (status == OK && good) return shared_open(block, tcp->rank, timeout, shared);
    if (block >= 0) close(block);
    return status;
}

/* ---- Several hosts ---- */

#define PROBE_BYTES ((size_t)4 << 20)

/* Says how ranks are connected, and how fast that is: a message from every rank to every other one. */
static enum status say_network(const struct meeting *meeting, int hosts)
{
    struct comm *comm = &meeting->tcp->comm;
    char *from = memory_try(PROBE_BYTES, 1), *to = memory_try((size_t)comm->count, PROBE_BYTES);
    char address[TCP_ADDRESS], interface[TCP_ADDRESS];
    int other = comm->rank == 0 ? 1 : 0;
    tcp_own_address(meeting->tcp->peers[other].socket, address);
    tcp_interface(address, interface);
    enum status status = OK;
    if (!from || !to) status = fail(FAILED, "not enough host memory to meet %d ranks", comm->count);
    if (status == OK) status = comm_barrier(comm);
    double began = clock_seconds();
    for (int i = 0; status == OK && i < 10; i++) status = comm_barrier(comm);
    double barrier = (clock_seconds() - began) / 10;
    /* The first one opens the connections' windows. */
    if (status == OK) status = comm_all_gather(comm, from, to, PROBE_BYTES);
    began = clock_seconds();
    if (status == OK) status = comm_all_gather(comm, from, to, PROBE_BYTES);
    comm->hosts = hosts;
    comm->message_seconds = barrier;
    comm->bytes_per_second = (double)(comm->count - 1) * (double)PROBE_BYTES / (clock_seconds() - began);
    double link = tcp_interface_rate(interface);
    char of_link[48] = "";
    if (link > 0) snprintf(of_link, sizeof of_link, " (its link has %.2f)", 1e-9 * link);
    if (status == OK && comm->rank == 0)
        log_info("%d ranks on %d hosts, by TCP from %s%s%s%s: %.2f GB/s from each rank to the others%s, "
                 "%.2f ms a barrier", comm->count, hosts, address, interface[0] ? " (" : "", interface,
                 interface[0] ? ")" : "", 1e-9 * comm->bytes_per_second, of_link, 1e3 * barrier);
    free(from);
    free(to);
    return status;
}

static enum status join(struct meeting *meeting, double timeout, struct comm **comm, int *absent)
{
    struct comm *tcp = &meeting->tcp->comm;
    TRY(tcp->rank == 0 ? meet_first(meeting) : meet_others(meeting));
    TRY(close_ranks(meeting, absent));
    if (tcp->count == 1) return OK;
    TRY(connect_all(meeting));
    int hosts = find_hosts(meeting);
    if (hosts == 1) TRY(share_memory(tcp, timeout, comm));
    if (!*comm) return say_network(meeting, hosts);
    if (meeting->started.local >= 0) (*comm)->local_rank = meeting->started.local;
    return OK;
}

enum status tcp_ranks_open(const struct tcp_ranks_options *options, struct comm **comm, int *absent)
{
    struct meeting meeting = {.listening = -1, .began = clock_seconds(), .options = options};
    double timeout = options->timeout > 0 ? options->timeout : TIMEOUT_SECONDS;
    TRY(read_environment(&meeting.started));
    meeting.deadline = meeting.began + timeout;
    meeting.tcp = tcp_exchange_make(meeting.started.rank, meeting.started.count, timeout);
    meeting.places = memory_new((size_t)meeting.started.count, sizeof *meeting.places);
    *comm = NULL;
    enum status status = join(&meeting, timeout, comm, absent);
    struct comm *tcp = &meeting.tcp->comm;
    if (status == OK && !*comm && tcp->count > 1) *comm = tcp;
    tcp->failed = status != OK || tcp->count == 1;
    if (*comm != tcp) comm_close(tcp);
    if (meeting.listening >= 0) close(meeting.listening);
    free(meeting.places);
    return status;
}
