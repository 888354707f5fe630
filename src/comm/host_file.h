/* host_file.h: memory shared by the ranks of a host, as an unnamed file. */
#pragma once

#include "comm/comm.h"

/* A file that another process of the host may open as well, as long as this one has it open. Taking it gives
 * a descriptor for the caller to close; -1: it cannot be had. */
struct host_file_offer {
    int32_t pid, descriptor;
    uint64_t file;
};
struct host_file_offer host_file_offer(int descriptor);
int host_file_take(const struct host_file_offer *offer);

/* All ranks call it together. *bytes becomes what the first rank of the host asks for: the size of the file,
 * which is all zero. The caller closes it; -1: this rank cannot have it. */
enum status host_file_open(struct comm *comm, int64_t *bytes, int *descriptor);
