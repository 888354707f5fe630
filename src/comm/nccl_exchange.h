/* nccl_exchange.h: exchanges among ranks with one GPU each, through NVIDIA's NCCL. */
#pragma once

#include "comm/comm.h"

/* The kinds of exchanges that ranks make. */
struct nccl_use {
    bool both_ways;          /* messages to higher ranks and to lower ones at the same time, and neither waits
                                for the other */
    bool parts;              /* each rank sends a different part to each other rank */
};

/* Makes NCCL the exchange backend of `comm`, for the calling thread's CUDA device; all ranks call it
 * together. USAGE in a build without NCCL, NO_DEVICE if the library is not found or cannot be initialised. It
 * is never shut down, because that would wait for ranks that may have ended. */
enum status nccl_exchange_open(struct comm *comm, struct nccl_use use);

/* Device memory that NCCL allocates with that many ranks on a host, as measured. */
int64_t nccl_exchange_bytes(int ranks, struct nccl_use use);
/* Device memory that NCCL allocates for the messages of a pipeline's stages. */
int64_t nccl_stages_bytes(void);
