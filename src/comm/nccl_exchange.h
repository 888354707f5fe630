/* nccl_exchange.h: exchanges among ranks with a GPU each, by NVIDIA's NCCL. */
#pragma once

#include "comm/comm.h"

/* Makes NCCL the exchange backend of `comm`, for the calling thread's CUDA device; all ranks call it
 * together. USAGE in a build without NCCL, NO_DEVICE where the library is not found or does not open. What it
 * sets up stays until the process ends: to take it down is to wait for ranks that may be gone. `both_ways`:
 * messages to higher ranks and to lower ones are under way at the same time, and neither waits for the other. */
enum status nccl_exchange_open(struct comm *comm, bool both_ways);

/* Device memory that NCCL takes for itself among so many ranks of a host, as measured; `parts`: ranks send
 * each other parts of their own, too. */
int64_t nccl_exchange_bytes(int ranks, bool parts);
/* Likewise, for the messages of a pipeline's stages. */
int64_t nccl_stages_bytes(void);
