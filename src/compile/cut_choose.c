/* cut_choose.c: chooses the schedule of a pipeline by simulating the programs of its stages. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/cluster.h"
#include "compile/cost.h"
#include "compile/cut.h"
#include "compile/partition.h"
#include "compile/simulate.h"

#define WORTH_MEMORY 0.98    /* fraction of 1f1b's time below which another schedule is worth its memory */

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

/* The time of a step with the stages that suit a schedule best. */
static enum status schedule_seconds(const struct program *program, const struct cut_options *options,
                                    double *seconds)
{
    const struct partition_options partitioning = {.stages = options->stages, .schedule = options->schedule,
                                                   .on_cpu = options->on_cpu};
    struct pipeline pipeline = {.cluster = partition_cluster(program, &partitioning)};
    int *stage = memory_new((size_t)program->graph->count, sizeof *stage), made = 0;
    enum status status = partition(program, &partitioning, stage, NULL);
    pipeline.programs = memory_new((size_t)options->stages, sizeof *pipeline.programs);
    for (; status == OK && made < options->stages; made++) {
        struct cut_options own = *options;
        own.stage = made;
        pipeline.programs[made] = cut_stage(program, &own, stage);
        status = streams_assign(&pipeline.programs[made], options->on_cpu ? 1 : 2, BY_MICRO_BATCH);
    }
    if (status == OK) *seconds = pipeline_seconds(&pipeline);
    for (int s = 0; s < made; s++) program_free(&pipeline.programs[s]);
    free(pipeline.programs);
    free(stage);
    return status;
}

enum status cut_choose(const struct program *program, const struct cut_options *options,
                       enum pipeline_schedule *schedule)
{
    struct cut_options tried = *options;
    double least, seconds;
    *schedule = tried.schedule = PIPELINE_1F1B;
    TRY(schedule_seconds(program, &tried, &least));
    least *= WORTH_MEMORY;
    for (tried.schedule = PIPELINE_GPIPE; tried.schedule <= PIPELINE_ZERO_BUBBLE; tried.schedule++) {
        if (tried.schedule == PIPELINE_1F1B) continue;
        TRY(schedule_seconds(program, &tried, &seconds));
        if (seconds >= least) continue;
        least = seconds;
        *schedule = tried.schedule;
    }
    return OK;
}
