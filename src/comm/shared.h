/* shared.h: ranks on one host that exchange through shared memory: the backend for CPU ranks. */
#pragma once

#include "comm/comm.h"

/* `descriptor` is of a block that shared_block_create made; comm_close closes it. `timeout`: maximum seconds
 * of a wait for another rank; 0: until it arrives or ends. */
enum status shared_open(int descriptor, int rank, double timeout, struct comm **comm);
