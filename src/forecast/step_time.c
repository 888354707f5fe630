#include "forecast/step_time.h"

#include <math.h>
#include <stdlib.h>

#include "compile/time/cost.h"
#include "compile/time/simulate.h"

/* Seconds of instructions, measured ones if available. */
struct timing {
    const struct program *const *programs;
    const struct cluster *cluster;
    const struct measured_times *times;
    bool no_exchange;              /* collectives take no time */
};

static double instruction_seconds(const void *context, int rank, int i)
{
    const struct timing *timing = context;
    const struct program *program = timing->programs[rank];
    const struct instruction *at = &program->instructions[i];
    if (instruction_is_collective(at) && timing->no_exchange) return 0;
    double seconds = NAN;
    if (timing->times && !instruction_is_collective(at))
        seconds = measured_times_find(timing->times, at->name, cost_bytes(program, at),
                                      program->machine.launch);
    return isnan(seconds) ? cluster_seconds(timing->cluster, program, at) : seconds;
}

static struct simulation timing_run(const struct timing *timing)
{
    const struct cluster *cluster = timing->cluster;
    double launch = cluster->machine.launch;
    struct tasks tasks =
        simulate_tasks(timing->programs, cluster->stages, launch, instruction_seconds, timing);
    tasks.exchange_share = timing->no_exchange ? 0 : cluster_exchange_share(cluster);
    struct simulation simulation = simulate(&tasks);
    tasks_free(&tasks);
    return simulation;
}

struct compile_options step_time_options(const struct session *session, const struct cluster *cluster)
{
    struct compile_options options = step_options(session, STEP_TRAINING);
    int64_t *reduced = &options.buckets.all_reduce_bytes;
    if (cluster->hosts > 1 && *reduced > 0) *reduced = INT64_MAX;
    return options;
}

struct step_time step_time_simulate(const struct program *const *programs, const struct cluster *cluster,
                                    const struct measured_times *times)
{
    struct timing timing = {programs, cluster, times, false};
    struct simulation with = timing_run(&timing);
    timing.no_exchange = true;
    struct simulation without = timing_run(&timing);
    double waiting = cluster_jitter(cluster, with.seconds);
    struct step_time time = {
        .ms = 1e3 * (with.seconds + waiting), .exposed_ms = 1e3 * (with.seconds - without.seconds),
        .waiting_ms = 1e3 * waiting, .busy_ms = with.busy,
    };
    with.busy = NULL;
    for (int s = 0; s < cluster->stages; s++) time.busy_ms[s] *= 1e3;
    simulation_free(&with);
    simulation_free(&without);
    return time;
}

void step_time_free(struct step_time *time)
{
    free(time->busy_ms);
    *time = (struct step_time){0};
}
