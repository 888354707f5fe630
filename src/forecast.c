#include "forecast.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/cost.h"
#include "compile/simulate.h"

double forecast_layer_flops(const struct graph *graph, int node, int batch)
{
    double weights = 0;
    for (int i = 0; i < graph->nodes[node].param_count; i++) {
        const struct op_param *spec = &graph->params[graph->nodes[node].param_first + i].spec;
        if (spec->role == ROLE_WEIGHT) weights += (double)shape_count(spec->shape);
    }
    return 2 * weights * batch * (double)(graph->nodes[node].shape.h * graph->nodes[node].shape.w);
}

/* Seconds of instructions, measured where that is known. */
struct timing {
    const struct cluster *cluster;
    const struct program *const *programs;
    const struct measured_times *times;
    bool no_exchange;              /* exchanges take no time */
};

static double instruction_seconds(const void *context, int rank, int i)
{
    const struct timing *timing = context;
    const struct program *program = timing->programs[rank];
    const struct instruction *at = &program->instructions[i];
    if (instruction_is_collective(at) && timing->no_exchange) return 0;
    double seconds = NAN;
    if (timing->times && !instruction_is_collective(at))
        seconds = measured_times_find(timing->times, at->name, cost_bytes(program, at), COST_CALL);
    return isnan(seconds) ? cluster_seconds(timing->cluster, program, at) : seconds;
}

static double simulated_ms(const struct timing *timing)
{
    const struct cluster *cluster = timing->cluster;
    struct tasks tasks = simulate_tasks(timing->programs, cluster->stages, instruction_seconds, timing);
    tasks.exchange_share = timing->no_exchange ? 0 : cluster_exchange_share(cluster);
    struct simulation simulation = simulate(&tasks);
    double ms = 1e3 * simulation.seconds;
    simulation_free(&simulation);
    tasks_free(&tasks);
    return ms;
}

/* A step of as many images on one device by itself. */
static enum status forecast_alone(const struct session *session, const struct timing *with, double *ms)
{
    const struct cluster one = {.replicas = 1, .stages = 1, .hosts = 1, .threads = with->cluster->threads};
    struct compile_options options = step_options(session, STEP_TRAINING);
    struct program program;
    options.lower.all_micro_batches = options.lower.micro_batches;
    options.cut.stages = 1;
    TRY(compile(step_graph(session, STEP_TRAINING), &options, &program));
    const struct program *const programs[] = {&program};
    const struct timing timing = {.cluster = &one, .programs = programs, .times = with->times};
    *ms = simulated_ms(&timing);
    program_free(&program);
    return OK;
}

static enum status forecast_time(const struct session *session, struct timing timing,
                                 struct forecast *forecast)
{
    double ms = simulated_ms(&timing);
    timing.no_exchange = true;
    forecast->exposed_ms = ms - simulated_ms(&timing);
    forecast->jitter_ms = cluster_jitter(&forecast->cluster, ms);
    forecast->step_ms = ms + forecast->jitter_ms;
    return forecast_alone(session, &timing, &forecast->alone_ms);
}

/* With the programs of all stages. */
static enum status forecast_stages(const struct session *session, const struct measured_times *times,
                                   struct forecast *forecast)
{
    int stages = session->hyper.stages;
    struct program *all = memory_new((size_t)stages, sizeof *all);
    const struct program **programs = memory_new((size_t)stages, sizeof *programs);
    enum status status = OK;
    for (int stage = 0; status == OK && stage < stages; stage++) {
        struct compile_options options = step_options(session, STEP_TRAINING);
        options.cut.stage = stage;
        bool own = stage == session->stage;
        if (!own) status = compile(step_graph(session, STEP_TRAINING), &options, &all[stage]);
        programs[stage] = own ? &forecast->compiled.program : &all[stage];
    }
    const struct timing timing = {.cluster = &forecast->cluster, .programs = programs, .times = times};
    if (status == OK) status = forecast_time(session, timing, forecast);
    for (int stage = 0; stage < stages; stage++)
        if (all[stage].graph) program_free(&all[stage]);
    free(all);
    free(programs);
    return status;
}

static struct cluster cluster_of(const struct session *session, const struct forecast_options *options)
{
    int threads = session->settings->run.threads ? (int)session->settings->run.threads : 2;
    return (struct cluster){
        .replicas = session->hyper.replicas, .stages = session->hyper.stages, .hosts = options->hosts,
        .link_bytes_per_second = options->link_bytes_per_second,
        .threads = session_device_kind(session) == DEVICE_CPU ? threads : 0,
    };
}

enum status forecast_make(const struct session *session, const struct forecast_options *options,
                          struct forecast *forecast)
{
    struct forecast made = {.cluster = cluster_of(session, options)};
    struct compile_options compiling = step_options(session, STEP_TRAINING);
    TRY(compile_plan(step_graph(session, STEP_TRAINING), &compiling, &made.compiled));
    made.bytes = step_bytes(session, &made.compiled.program, &made.compiled.plan, step_store_bytes(session));
    enum status status = forecast_stages(session, options->times, &made);
    if (status == OK) *forecast = made;
    else forecast_free(&made);
    return status;
}

void forecast_free(struct forecast *forecast)
{
    compiled_free(&forecast->compiled);
    *forecast = (struct forecast){0};
}
