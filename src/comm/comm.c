#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int comm_rank(const struct comm *comm)
{
    return comm ? comm->rank : 0;
}

int comm_count(const struct comm *comm)
{
    return comm ? comm->count : 1;
}

enum status comm_barrier(struct comm *comm)
{
    return comm ? comm->backend->barrier(comm) : OK;
}

enum status comm_broadcast(struct comm *comm, int root, void *data, size_t bytes)
{
    return comm ? comm->backend->broadcast(comm, root, data, bytes) : OK;
}

enum status comm_all_gather(struct comm *comm, const void *from, void *to, size_t bytes)
{
    if (comm) return comm->backend->all_gather(comm, from, to, bytes);
    if (bytes > 0) memmove(to, from, bytes);
    return OK;
}

enum status comm_minimum(struct comm *comm, int64_t *number)
{
    size_t count = (size_t)comm_count(comm);
    int64_t *all = memory_new(count, sizeof *all);
    enum status status = comm_all_gather(comm, number, all, sizeof *number);
    for (size_t rank = 0; status == OK && rank < count; rank++)
        if (all[rank] < *number) *number = all[rank];
    free(all);
    return status;
}

enum status comm_sum(struct comm *comm, double *numbers, int count)
{
    size_t each = (size_t)count, total = (size_t)comm_count(comm) * each;
    double *all = memory_new(total, sizeof *all);
    enum status status = comm_all_gather(comm, numbers, all, each * sizeof *numbers);
    if (status == OK) memset(numbers, 0, each * sizeof *numbers);
    for (size_t i = 0; status == OK && i < total; i++) numbers[i % each] += all[i];
    free(all);
    return status;
}

enum status comm_watch(struct comm *comm, void (*lost)(void *context), void *context)
{
    return comm && comm->backend->watch ? comm->backend->watch(comm, lost, context) : OK;
}

enum status comm_alive(struct comm *comm)
{
    return comm && comm->backend->alive ? comm->backend->alive(comm) : OK;
}

void comm_report(struct comm *comm, const struct comm_progress *progress)
{
    if (comm && comm->backend->report) comm->backend->report(comm, progress);
}

struct comm_request comm_requested(const struct comm *comm)
{
    struct comm_request request = {0};
    if (comm && comm->backend->requested) comm->backend->requested(comm, &request);
    return request;
}

void comm_close(struct comm *comm)
{
    if (comm) comm->backend->close(comm);
}
