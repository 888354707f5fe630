/* host_file.h: memory that the ranks of each host share, as a file without a name. */
#pragma once

#include "comm/comm.h"

/* All ranks call it together. *bytes becomes what the first rank of the host asks for: the size of the file,
 * which is all zero. The caller closes it; -1: this rank cannot have it. */
enum status host_file_open(struct comm *comm, int64_t *bytes, int *descriptor);
