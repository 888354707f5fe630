#include "comm/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct group {
    struct comm comm;
    struct comm *of;
    struct group_ranks ranks;
};

static int rank_of(const struct group *group, int peer)
{
    return group->ranks.first + peer * group->ranks.step;
}

static enum status group_send(struct comm *comm, int peer, const void *from, size_t bytes, void *stream)
{
    struct group *group = (struct group *)comm;
    return group->of->exchange->send(group->of, rank_of(group, peer), from, bytes, stream);
}

static enum status group_receive(struct comm *comm, int peer, void *to, size_t bytes, void *stream)
{
    struct group *group = (struct group *)comm;
    return group->of->exchange->receive(group->of, rank_of(group, peer), to, bytes, stream);
}

/* `from` is one part for each rank, or the same `bytes` for all. */
static enum status exchange(struct comm *comm, const char *from, size_t step, char *to, size_t bytes,
                            void *stream)
{
    for (int peer = 0; peer < comm->count; peer++)
        if (peer != comm->rank) TRY(group_send(comm, peer, from + (size_t)peer * step, bytes, stream));
    for (int peer = 0; peer < comm->count; peer++)
        if (peer != comm->rank) TRY(group_receive(comm, peer, to + (size_t)peer * bytes, bytes, stream));
    size_t own = (size_t)comm->rank;
    if (bytes > 0) memcpy(to + own * bytes, from + own * step, bytes);
    return OK;
}

static enum status group_all_to_all(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    return exchange(comm, from, bytes, to, bytes, stream);
}

static enum status group_all_gather(struct comm *comm, const void *from, void *to, size_t bytes, void *stream)
{
    return exchange(comm, from, 0, to, bytes, stream);
}

static enum status group_broadcast(struct comm *comm, int root, void *data, size_t bytes)
{
    struct group *group = (struct group *)comm;
    char *all = memory_new((size_t)group->of->count, bytes);
    enum status status = comm_all_gather(group->of, data, all, bytes);
    if (status == OK) memcpy(data, all + (size_t)rank_of(group, root) * bytes, bytes);
    free(all);
    return status;
}

static enum status group_watch(struct comm *comm, void (*lost)(void *context), void *context)
{
    return comm_watch(((struct group *)comm)->of, lost, context);
}

static enum status group_alive(struct comm *comm) { return comm_alive(((struct group *)comm)->of); }

static const struct comm_backend group_backend = {
    .name = "group", .broadcast = group_broadcast, .watch = group_watch, .alive = group_alive,
};

static const struct exchange_backend group_exchange = {
    .name = "messages",
    .all_to_all = group_all_to_all,
    .all_gather = group_all_gather,
    .send = group_send,
    .receive = group_receive,
};

struct comm *group_open(struct comm *comm, const struct group_ranks *ranks)
{
    if (!comm) return NULL;
    struct group *group = memory_new(1, sizeof *group);
    group->comm = (struct comm){.backend = &group_backend, .exchange = &group_exchange,
                                .count = ranks->count, .rank = (comm->rank - ranks->first) / ranks->step};
    group->of = comm;
    group->ranks = *ranks;
    return &group->comm;
}

void group_close(struct comm *group)
{
    free(group);
}
