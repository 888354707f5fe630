/* nccl_exchange.h: exchanges among ranks with one GPU each, through NVIDIA's NCCL. */
#pragma once

#include "comm/comm.h"

/* What ranks exchange. */
struct nccl_use {
    bool both_ways;          /* messages to higher ranks and to lower ones at the same time, and neither waits
                                for the other */
    bool often;              /* all-gathers of few bytes, which do not wait for other exchanges */
    bool parts;              /* each sends each other rank a part of its own */
};

/* Makes NCCL the exchange backend of `comm`, for the calling thread's CUDA device; all ranks call it
 * together. USAGE in a build without NCCL, NO_DEVICE where the library is not found or does not open. What it
 * sets up stays until the process ends: to take it down is to wait for ranks that may be gone. */
enum status nccl_exchange_open(struct comm *comm, struct nccl_use use);

/* Device memory that NCCL takes for itself among so many ranks of a host, as measured. */
int64_t nccl_exchange_bytes(int ranks, struct nccl_use use);
/* Likewise, for the messages of a pipeline's stages. */
int64_t nccl_stages_bytes(void);
