#include "comm/host_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

/* A rank's offer. Processes that know each other by other numbers have other files in their place. */
struct offer {
    char host[64];
    int32_t pid, local_rank, descriptor;      /* -1: it has none */
    uint64_t file;
    int64_t bytes;
};

static uint64_t file_number(int descriptor)
{
    struct stat stat;
    return fstat(descriptor, &stat) == 0 ? stat.st_ino : 0;
}

static int file_new(int64_t bytes)
{
    int descriptor = memfd_create("amptrain", MFD_CLOEXEC);
    if (descriptor >= 0 && ftruncate(descriptor, bytes) == 0) return descriptor;
    if (descriptor >= 0) close(descriptor);
    return -1;
}

static int file_of(const struct offer *offer)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", offer->pid, offer->descriptor);
    int descriptor = offer->descriptor < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0 || file_number(descriptor) == offer->file) return descriptor;
    close(descriptor);
    return -1;
}

enum status host_file_open(struct comm *comm, int64_t *bytes, int *descriptor)
{
    struct offer own = {.pid = getpid(), .local_rank = comm->local_rank, .descriptor = -1, .bytes = *bytes};
    struct offer *all = memory_new((size_t)comm->count, sizeof *all);
    int file = -1;
    gethostname(own.host, sizeof own.host - 1);
    if (comm->local_rank == 0) file = own.descriptor = file_new(*bytes);
    own.file = file_number(file);
    enum status status = comm_all_gather(comm, &own, all, sizeof own);
    for (int rank = 0; status == OK && rank < comm->count; rank++) {
        bool first = all[rank].local_rank == 0 && strcmp(all[rank].host, own.host) == 0;
        if (!first || comm->local_rank == 0) continue;
        file = file_of(&all[rank]);
        *bytes = all[rank].bytes;
    }
    free(all);
    if (status == OK) status = comm_barrier(comm);
    if (status == OK) *descriptor = file;
    else if (file >= 0) close(file);
    return status;
}
