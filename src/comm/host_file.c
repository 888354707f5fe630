#include "comm/host_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

struct host_offer {
    char host[64];
    int32_t local_rank;
    int64_t bytes;
    struct host_file_offer file;
};

static uint64_t file_number(int descriptor)
{
    struct stat stat;
    return fstat(descriptor, &stat) == 0 ? stat.st_ino : 0;
}

struct host_file_offer host_file_offer(int descriptor)
{
    return (struct host_file_offer){getpid(), descriptor, file_number(descriptor)};
}

/* In another PID namespace, such as that of another container, the path may lead to a different file. */
int host_file_accept(const struct host_file_offer *offer)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", offer->pid, offer->descriptor);
    int descriptor = offer->descriptor < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0 || file_number(descriptor) == offer->file) return descriptor;
    close(descriptor);
    return -1;
}

static int file_new(int64_t bytes)
{
    int descriptor = memfd_create("amptrain", MFD_CLOEXEC);
    if (descriptor >= 0 && ftruncate(descriptor, bytes) == 0) return descriptor;
    if (descriptor >= 0) close(descriptor);
    return -1;
}

enum status host_file_open(struct comm *comm, int64_t *bytes, int *descriptor)
{
    struct host_offer own = {.local_rank = comm->local_rank, .bytes = *bytes};
    struct host_offer *all = memory_new((size_t)comm->count, sizeof *all);
    int file = -1;
    gethostname(own.host, sizeof own.host - 1);
    if (comm->local_rank == 0) file = file_new(*bytes);
    own.file = host_file_offer(file);
    enum status status = comm_all_gather(comm, &own, all, sizeof own);
    for (int rank = 0; status == OK && rank < comm->count; rank++) {
        bool first = all[rank].local_rank == 0 && strcmp(all[rank].host, own.host) == 0;
        if (!first || comm->local_rank == 0) continue;
        file = host_file_accept(&all[rank].file);
        *bytes = all[rank].bytes;
    }
    free(all);
    if (status == OK) status = comm_barrier(comm);
    if (status == OK) *descriptor = file;
    else if (file >= 0) close(file);
    return status;
}
