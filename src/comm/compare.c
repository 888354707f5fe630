#include "comm/compare.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* The first line in which they differ, as "rank 2 has 'LINE' where rank 0 has 'LINE'". */
static void tell_difference(int rank, const char *own, const char *first)
{
    size_t line = 0, same = 0;
    for (; own[same] == first[same]; same++)
        if (own[same] == '\n') line = same + 1;
    fail(USAGE, "the ranks of a run must agree: rank %d has '%.*s' where rank 0 has '%.*s'", rank,
         (int)strcspn(own + line, "\n"), own + line, (int)strcspn(first + line, "\n"), first + line);
}

static enum status compare_with(struct comm *comm, const char *own, const char *first)
{
    unsigned char differs = strcmp(own, first) != 0, *all = memory_new((size_t)comm->count, 1);
    enum status status = comm_all_gather(comm, &differs, all, 1);
    for (int rank = 0; status == OK && rank < comm->count; rank++) {
        if (!all[rank]) continue;
        if (rank == comm->rank) tell_difference(rank, own, first);
        status = USAGE;
    }
    free(all);
    return status;
}

enum status compare_texts(struct comm *comm, const char *text)
{
    size_t length = strlen(text);
    if (!comm) return OK;
    TRY(comm_broadcast(comm, 0, &length, sizeof length));
    char *first = memory_new(length + 1, 1);
    if (comm->rank == 0) memcpy(first, text, length);
    enum status status = comm_broadcast(comm, 0, first, length);
    if (status == OK) status = compare_with(comm, text, first);
    free(first);
    return status;
}
