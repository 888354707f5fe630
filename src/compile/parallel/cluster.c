#include "compile/parallel/cluster.h"

#include <math.h>

#include "compile/time/cost.h"

#define DEVIATION 0.004              /* standard deviation of a rank's step time, as a fraction */

static int on_a_host(const struct cluster *cluster)
{
    return cluster_ranks(cluster) / cluster->hosts;
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

/* Seconds of an exchange in which each of n ranks sends 1/n of `bytes` to all others, and each of n hosts 1/n
 * of `between`. All stages exchange at the same time. */
static double exchange(const struct cluster *cluster, const struct link *by, double bytes,
                       double between)
{
    int here = on_a_host(cluster) / cluster->stages;      /* of a stage's replicas */
    int at_once = at_most(cluster->stages, on_a_host(cluster));
    double seconds = 0;
    if (here < 1) here = 1;
    int hosts = (cluster->replicas + here - 1) / here;
    if (here > 1) seconds += link_seconds(by, bytes * (here - 1) / here);
    if (hosts > 1)
        seconds += cluster->machine.network_seconds * ceil(log2(hosts)) +
                   between * (hosts - 1) / hosts * at_once / cluster->link_bytes_per_second;
    return seconds;
}

static double all_reduce(const struct cluster *cluster, double bytes)
{
    if (cluster->replicas == 1) return 0;
    return exchange(cluster, &cluster->machine.sum, 2 * bytes, 2 * bytes);
}

/* Every rank sends to every other one; nothing is added up before it is sent to another host. */
static double all_to_all(const struct cluster *cluster, double bytes)
{
    int here = on_a_host(cluster) / cluster->stages;
    return exchange(cluster, &cluster->machine.copy, bytes, bytes * (here > 1 ? here : 1));
}

double cluster_message(const struct cluster *cluster, double bytes)
{
    return link_seconds(&cluster->machine.message, bytes);
}

/* From one stage to another; between hosts over the link of one GPU. */
static double message(const struct cluster *cluster, const struct program *program,
                      const struct instruction *at)
{
    double bytes = (double)program->values[operand_x(at, 0)].bytes;
    int here = on_a_host(cluster);
    if (program->stage / here == at->peer / here) return cluster_message(cluster, bytes);
    return cluster->machine.network_seconds + bytes * here / cluster->link_bytes_per_second;
}

/* Stages gather a few numbers per step. */
static double all_gather(const struct cluster *cluster, bool among_stages, double bytes)
{
    const struct cluster stages = {.replicas = cluster->stages, .stages = 1, .hosts = 1,
                                   .machine = cluster->machine};
    return exchange(among_stages ? &stages : cluster, &cluster->machine.copy, bytes, bytes);
}

double cluster_seconds(const struct cluster *cluster, const struct program *program,
                       const struct instruction *at)
{
    int y = operand_y(at);
    double bytes = y >= 0 ? (double)program->values[y].bytes : 0;
    switch (at->kind) {
    case INSTRUCTION_OP:
    case INSTRUCTION_UPDATE:
    case INSTRUCTION_MEASURE: return cost_seconds(program, at);
    case INSTRUCTION_COPY_TO_HOST:
    case INSTRUCTION_COPY_FROM_HOST: return cost_transfer(program, bytes);
    case INSTRUCTION_SEND: return message(cluster, program, at);
    case INSTRUCTION_RECEIVE: return 0;
    case INSTRUCTION_ALL_TO_ALL: return all_to_all(cluster, bytes);
    case INSTRUCTION_ALL_GATHER: return all_gather(cluster, at->among_stages, bytes);
    case INSTRUCTION_ALL_REDUCE: return all_reduce(cluster, bytes);
    }
    return 0;
}

double cluster_exchange_share(const struct cluster *cluster)
{
    return cluster->machine.exchange_share;
}

double cluster_jitter(const struct cluster *cluster, double seconds)
{
    return seconds * DEVIATION * sqrt(2 * log(cluster_ranks(cluster)));
}
