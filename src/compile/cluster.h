/* cluster.h: the devices of a run and their links, for the cost model. */
#pragma once

#include "compile/program.h"

/* Ranks lie on hosts in their order, as many on each. The stages of a replica have consecutive ranks. */
struct cluster {
    int replicas, stages;            /* ranks are as many as their product */
    int hosts;                       /* divides the ranks */
    double link_bytes_per_second;    /* between a host and all others, each way */
    int threads;                     /* of a rank on a processor; 0: it has a GPU */
};

static inline int cluster_ranks(const struct cluster *cluster)
{
    return cluster->replicas * cluster->stages;
}

/* Seconds of an instruction alone on its device, of whatever kind. `program`: of a stage's rank in the first
 * replica. A message takes its time at the sender. */
double cluster_seconds(const struct cluster *cluster, const struct program *program,
                       const struct instruction *at);

/* Seconds for so many bytes from a rank to another one of its host. */
double cluster_message(const struct cluster *cluster, double bytes);

/* The part of a device's speed that an exchange takes away while it goes on. */
double cluster_exchange_share(const struct cluster *cluster);

/* By how much longer the slowest of all ranks takes for so many seconds of work. */
double cluster_jitter(const struct cluster *cluster, double seconds);
