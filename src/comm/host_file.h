/* host_file.h: memory shared by the ranks of a host, as an unnamed file. */
#pragma once

#include "comm/comm.h"

/* An unnamed file that other processes of the host can open as long as this one has it open. Opening it
 * returns a descriptor, which the caller closes; -1: it cannot be opened. */
struct host_file_offer {
    int32_t pid, descriptor;
    uint64_t file;
};
struct host_file_offer host_file_offer(int descriptor);
int host_file_accept(const struct host_file_offer *offer);

/* All ranks call it together. *bytes becomes the size that the first rank of the host requests; the file is
 * all zeros. The caller closes it; -1: it cannot be opened. */
enum status host_file_open(struct comm *comm, int64_t *bytes, int *descriptor);
