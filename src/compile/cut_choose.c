/* cut_choose.c: chooses the stages of a pipeline, and its schedule, by simulating their programs. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/cluster.h"
#include "compile/cost.h"
#include "compile/cut.h"
#include "compile/partition.h"
#include "compile/plan.h"
#include "compile/rewrites.h"
#include "compile/simulate.h"

#define WORTH_MEMORY 0.98    /* fraction of 1f1b's time below which another schedule is worth its memory */
#define WORTH_MOVING 0.98    /* ... and below which boundaries move: the model is not more precise */

/* The programs of all stages. */
struct pipeline {
    struct cluster cluster;
    struct program *programs;
};

static double instruction_seconds(const void *context, int stage, int i)
{
    const struct pipeline *pipeline = context;
    const struct program *program = &pipeline->programs[stage];
    return cluster_seconds(&pipeline->cluster, program, &program->instructions[i]);
}

static double pipeline_seconds(const struct pipeline *pipeline)
{
    int stages = pipeline->cluster.stages;
    const struct program **programs = memory_new((size_t)stages, sizeof *programs);
    for (int s = 0; s < stages; s++) programs[s] = &pipeline->programs[s];
    double launch = pipeline->cluster.threads > 0 ? 0 : COST_LAUNCH;
    struct tasks tasks = simulate_tasks(programs, stages, launch, instruction_seconds, pipeline);
    tasks.exchange_share = cluster_exchange_share(&pipeline->cluster);
    struct simulation simulation = simulate(&tasks);
    double seconds = simulation.seconds;
    simulation_free(&simulation);
    tasks_free(&tasks);
    free(programs);
    return seconds;
}

/* The simulated time of a step with a division. */
static enum status division_seconds(const struct program *program, const struct cut_options *options,
                                    const struct partition_options *how, const int *stage, double *seconds)
{
    struct pipeline pipeline = {.cluster = partition_cluster(program, how)};
    pipeline.programs = memory_new((size_t)options->stages, sizeof *pipeline.programs);
    enum status status = OK;
    int made = 0;
    for (; status == OK && made < options->stages; made++) {
        struct cut_options own = *options;
        own.stage = made;
        pipeline.programs[made] = cut_stage(program, &own, stage);
        status = streams_assign(&pipeline.programs[made], options->on_cpu ? 1 : 2, BY_MICRO_BATCH);
    }
    if (status == OK) *seconds = pipeline_seconds(&pipeline);
    for (int s = 0; s < made; s++) program_free(&pipeline.programs[s]);
    free(pipeline.programs);
    return status;
}

/* The peak of live bytes in the program of a stage. */
static int64_t stage_bytes(const struct program *program, const struct partition_options *partitioning,
                           const int *stage, int number)
{
    const struct cut_options options = {.stages = partitioning->stages, .stage = number,
                                        .schedule = partitioning->schedule};
    struct program copy = cut_stage(program, &options, stage);
    int64_t most = plan_live_peak(&copy);
    program_free(&copy);
    return most;
}

/* The division for a schedule, and the seconds of a step unless NULL. */
static enum status divide(const struct program *program, const struct cut_options *options, int *stage,
                          double *seconds)
{
    const struct partition_options how = {options->stages, options->schedule, options->on_cpu, options->limit,
                                          stage_bytes};
    size_t bytes = (size_t)program->graph->count * sizeof *stage;
    int *moved = memory_new(1, bytes);
    double least = 0, after;
    enum status status = partition(program, &how, stage, moved, NULL);
    bool same = status == OK && memcmp(stage, moved, bytes) == 0;
    if (status == OK && (seconds || !same)) status = division_seconds(program, options, &how, stage, &least);
    if (status == OK && !same) {
        status = division_seconds(program, options, &how, moved, &after);
        if (status == OK && after < WORTH_MOVING * least) {
            least = after;
            memcpy(stage, moved, bytes);
        }
    }
    if (seconds) *seconds = least;
    free(moved);
    return status;
}

/* As `divide`, for the best schedule, which it sets. */
static enum status choose(const struct program *program, struct cut_options *options, int *stage)
{
    struct cut_options tried = *options;
    size_t bytes = (size_t)program->graph->count * sizeof *stage;
    int *other = memory_new(1, bytes);
    double least, seconds;
    options->schedule = tried.schedule = PIPELINE_1F1B;
    enum status status = divide(program, &tried, stage, &least);
    least *= WORTH_MEMORY;
    for (tried.schedule = PIPELINE_GPIPE; tried.schedule <= PIPELINE_ZERO_BUBBLE; tried.schedule++) {
        if (status != OK || tried.schedule == PIPELINE_1F1B) continue;
        status = divide(program, &tried, other, &seconds);
        if (status != OK || seconds >= least) continue;
        least = seconds;
        options->schedule = tried.schedule;
        memcpy(stage, other, bytes);
    }
    free(other);
    return status;
}

enum status cut(struct program *program, const struct cut_options *options)
{
    struct cut_options chosen = *options;
    int count = program->graph->count, *stage = memory_new((size_t)count, sizeof *stage);
    enum status status = OK;
    if (options->node_stages) memcpy(stage, options->node_stages, (size_t)count * sizeof *stage);
    else status = options->choose ? choose(program, &chosen, stage) : divide(program, options, stage, NULL);
    if (status == OK) cut_at(program, &chosen, stage);
    else free(stage);
    return status;
}

struct cut_options cut_like(const struct program *program, const struct cut_options *options)
{
    struct cut_options like = *options;
    like.schedule = program->schedule;
    like.node_stages = program->node_stages;
    return like;
}
