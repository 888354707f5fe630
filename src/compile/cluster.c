#include "compile/cluster.h"

#include <math.h>

#include "compile/cost.h"

/* NVLink among H200s, measured: NCCL's sum with 8 thread blocks, and copy engines. Overlap gains almost
 * nothing: steps of ResNet-18 and VGG-16 become longer by about the time that their exchange takes alone. */
struct engine {
    double seconds, bytes_per_second;
};
static const struct engine nccl = {12e-6, 190e9}, copy_engines = {30e-6, 325e9};
#define EXCHANGE_SHARE 0.9

#define LINK_SECONDS 25e-6           /* latency of a message between hosts */
#define DEVIATION 0.004              /* standard deviation of a rank's step time, as a fraction */

/* Shared memory among processes of one host, with a copy in and a copy out. */
#define SHARED_BYTES_PER_SECOND 0.5e9
#define SHARED_SECONDS 0.2e-3

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
static double exchange(const struct cluster *cluster, const struct engine *by, double bytes,
                       double between)
{
    int here = on_a_host(cluster) / cluster->stages;      /* of a stage's replicas */
    int at_once = at_most(cluster->stages, on_a_host(cluster));
    double seconds = 0;
    if (here < 1) here = 1;
    int hosts = (cluster->replicas + here - 1) / here;
    if (here > 1 && cluster->threads > 0)
        seconds += SHARED_SECONDS + bytes * (here - 1) / here / SHARED_BYTES_PER_SECOND;
    if (here > 1 && cluster->threads == 0)
        seconds += by->seconds + bytes * (here - 1) / here / by->bytes_per_second;
    if (hosts > 1)
        seconds += LINK_SECONDS * ceil(log2(hosts)) +
                   between * (hosts - 1) / hosts * at_once / cluster->link_bytes_per_second;
    return seconds;
}

static double all_reduce(const struct cluster *cluster, double bytes)
{
    if (cluster->replicas == 1) return 0;
    return exchange(cluster, &nccl, 2 * bytes, 2 * bytes);
}

/* Every rank sends to every other one; nothing is added up before it is sent to another host. */
static double all_to_all(const struct cluster *cluster, double bytes)
{
    int here = on_a_host(cluster) / cluster->stages;
    return exchange(cluster, &copy_engines, bytes, bytes * (here > 1 ? here : 1));
}

double cluster_message(const struct cluster *cluster, double bytes)
{
    return cluster->threads > 0 ? SHARED_SECONDS + bytes / SHARED_BYTES_PER_SECOND
                                : cost_message((int64_t)bytes);
}

/* From one stage to another; between hosts over the link of one GPU. */
static double message(const struct cluster *cluster, const struct program *program,
                      const struct instruction *at)
{
    double bytes = (double)program->values[at->x[0]].bytes;
    int here = on_a_host(cluster);
    if (program->stage / here == at->peer / here) return cluster_message(cluster, bytes);
    return LINK_SECONDS + bytes * here / cluster->link_bytes_per_second;
}

/* Stages gather a few numbers per step. */
static double all_gather(const struct cluster *cluster, bool among_stages, double bytes)
{
    const struct cluster stages = {.replicas = cluster->stages, .stages = 1, .hosts = 1,
                                   .threads = cluster->threads};
    return exchange(among_stages ? &stages : cluster, &copy_engines, bytes, bytes);
}

double cluster_seconds(const struct cluster *cluster, const struct program *program,
                       const struct instruction *at)
{
    double bytes = at->y >= 0 ? (double)program->values[at->y].bytes : 0;
    switch (at->kind) {
    case INSTRUCTION_OP:
    case INSTRUCTION_UPDATE:
    case INSTRUCTION_MEASURE:
        if (cluster->threads > 0) return cost_call_cpu(program, at, cluster->threads);
        return cost_seconds(program, at);
    case INSTRUCTION_COPY_TO_HOST:
    case INSTRUCTION_COPY_FROM_HOST: return cost_transfer((int64_t)bytes);
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
    return cluster->threads > 0 ? 0 : EXCHANGE_SHARE;
}

double cluster_jitter(const struct cluster *cluster, double seconds)
{
    return seconds * DEVIATION * sqrt(2 * log(cluster_ranks(cluster)));
}
