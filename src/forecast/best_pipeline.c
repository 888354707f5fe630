#include "forecast/best_pipeline.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/parallel/partition.h"

#define STAGES_MAX 8
#define DEEPEST 8            /* micro-batches for each stage ... */
#define MICRO_BATCHES_MAX 32 /* ... and in all */
#define WIDEST_V 2           /* ... with two chunks a stage, which wait little with few */

static struct compile_options options_of(const struct session *session, const struct best_pipeline *pipeline,
                                         const struct cluster *cluster)
{
    struct compile_options options = step_time_options(session, cluster);
    int replicas = cluster_ranks(cluster) / pipeline->stages;
    options.lower.batch = session->hyper.batch / replicas;
    options.lower.micro_batches = pipeline->micro_batches;
    options.lower.all_micro_batches = replicas * pipeline->micro_batches;
    options.cut = (struct cut_options){0};
    return options;
}

/* The best by the rough model of the search, which are then simulated. Sorted; ms infinite: none. */
#define SIMULATED 3
struct shortlist {
    struct best_pipeline best[SIMULATED];
};

static void shortlist_add(struct shortlist *list, struct best_pipeline pipeline)
{
    for (int i = 0; i < SIMULATED; i++) {
        struct best_pipeline other = list->best[i];
        if (pipeline.ms >= other.ms) continue;
        list->best[i] = pipeline;
        pipeline = other;
    }
}

static enum status try_schedules(const struct session *session, struct best_pipeline pipeline,
                                 const struct cluster *cluster, struct shortlist *list)
{
    struct compile_options options = options_of(session, &pipeline, cluster);
    const struct graph *graph = step_graph(session, STEP_TRAINING);
    struct program program;
    TRY(passes_lower(graph, &options, &program));
    int *stage = memory_new((size_t)graph->count, sizeof *stage);
    enum status status = OK;
    int parts = partition_parts(&program);
    for (enum pipeline_schedule s = 0; status == OK && s < PIPELINE_SCHEDULES; s++) {
        bool several = pipeline_interleaves(s) && pipeline.micro_batches > WIDEST_V * pipeline.stages;
        if (several || pipeline_chunks(s, pipeline.stages) > parts) continue;
        const struct partition_options how = {.stages = pipeline.stages, .schedule = s,
                                              .on_cpu = session_device_kind(session) == DEVICE_CPU};
        double seconds;
        status = partition(&program, &how, stage, NULL, &seconds);
        if (status != OK) continue;
        pipeline.schedule = s;
        pipeline.ms = 1e3 * seconds;
        shortlist_add(list, pipeline);
    }
    free(stage);
    program_free(&program);
    return status;
}

static enum status best_simulate(const struct session *session, const struct cluster *cluster,
                                 const struct measured_times *times, struct best_pipeline *best)
{
    struct cluster pipelines = *cluster;
    int ranks = cluster_ranks(cluster);
    struct compile_options options = options_of(session, best, cluster);
    struct program *programs = memory_new((size_t)best->stages, sizeof *programs);
    const struct program **all = memory_new((size_t)best->stages, sizeof *all);
    pipelines.stages = best->stages;
    pipelines.replicas = ranks / best->stages;
    options.cut = (struct cut_options){.stages = best->stages, .schedule = best->schedule,
                                       .on_cpu = session_device_kind(session) == DEVICE_CPU};
    enum status status = compile_ranks(step_graph(session, STEP_TRAINING), &options, best->stages, programs);
    if (status == OK) {
        for (int s = 0; s < best->stages; s++) all[s] = &programs[s];
        struct step_time time = step_time_simulate(all, &pipelines, times);
        best->ms = time.ms;
        step_time_free(&time);
        for (int s = 0; s < best->stages; s++) program_free(&programs[s]);
    }
    free(programs);
    free(all);
    return status;
}

/* Finds the best pipelines with that many stages. */
static enum status find_of(const struct session *session, const struct cluster *cluster, int stages,
                           struct shortlist *list)
{
    int ranks = cluster_ranks(cluster), replicas = ranks / stages, share = session->hyper.batch / replicas;
    if (ranks % stages != 0 || session->hyper.batch % replicas != 0) return OK;
    for (int m = stages; m <= DEEPEST * stages && m <= MICRO_BATCHES_MAX; m *= 2) {
        const struct best_pipeline pipeline = {.stages = stages, .micro_batches = m};
        if (share % m == 0) TRY(try_schedules(session, pipeline, cluster, list));
    }
    return OK;
}

enum status best_pipeline_find(const struct session *session, const struct cluster *cluster,
                               const struct measured_times *times, struct best_pipeline *best)
{
    int ranks = cluster_ranks(cluster), nodes = step_graph(session, STEP_TRAINING)->count;
    *best = (struct best_pipeline){.ms = INFINITY};
    for (int stages = 2; stages <= STAGES_MAX && stages <= ranks && stages < nodes; stages++) {
        struct shortlist list = {{{.ms = INFINITY}, {.ms = INFINITY}, {.ms = INFINITY}}};
        TRY(find_of(session, cluster, stages, &list));
        for (int i = 0; i < SIMULATED && list.best[i].stages > 0; i++) {
            TRY(best_simulate(session, cluster, times, &list.best[i]));
            if (list.best[i].ms < best->ms) *best = list.best[i];
        }
    }
    return OK;
}
