/* cluster.h: the devices of a run and their links, for the cost model. */
#pragma once

#include "compile/ir/program.h"

/* Ranks are assigned to hosts in order, the same number to each. The stages of a replica have consecutive
 * ranks. */
struct cluster {
    int replicas, stages;            /* ranks are as many as their product */
    int hosts;                       /* divides the ranks */
    double link_bytes_per_second;    /* between a host and all others, each way */
    struct machine machine;          /* of each rank */
};

static inline int cluster_ranks(const struct cluster *cluster)
{
    return cluster->replicas * cluster->stages;
}

/* Seconds of an instruction alone on its device, of whatever kind. `program`: of a stage's rank in the first
 * replica. The time of a message is counted at the sender. */
double cluster_seconds(const struct cluster *cluster, const struct program *program,
                       const struct instruction *at);

/* Seconds to send that many bytes to another rank of the same host. */
double cluster_message(const struct cluster *cluster, double bytes);

/* The fraction of a device's speed that an exchange occupies. */
double cluster_exchange_share(const struct cluster *cluster);

/* The additional time of the slowest rank for that many seconds of work. */
double cluster_jitter(const struct cluster *cluster, double seconds);
