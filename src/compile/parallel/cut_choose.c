/* cut_choose.c: chooses the stages of a pipeline, and its schedule, by simulating their programs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/parallel/cluster.h"
#include "compile/parallel/cut.h"
#include "compile/parallel/partition.h"
#include "compile/memory/plan.h"
#include "compile/rewrite/rewrites.h"
#include "compile/time/simulate.h"

#define WORTH_MEMORY 0.98    /* fraction of 1f1b's time below which another schedule is worth its memory */
#define LESS 0.999           /* a boundary moves if the step's time falls to less than this fraction ... */
#define FARTHEST 8           /* ... by at most so many nodes at once */
#define SIMULATED_INSTRUCTIONS 200000    /* how many that may cost */

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
    double launch = pipeline->cluster.machine.launch;
    struct tasks tasks = simulate_tasks(programs, stages, launch, instruction_seconds, pipeline);
    tasks.exchange_share = cluster_exchange_share(&pipeline->cluster);
    struct simulation simulation = simulate(&tasks);
    double seconds = simulation.seconds;
    simulation_free(&simulation);
    tasks_free(&tasks);
    free(programs);
    return seconds;
}

/* The simulated time of a step with a division; infinite if a stage exceeds the limit. */
static enum status division_seconds(const struct program *program, const struct cut_options *options,
                                    const int *stage, double *seconds)
{
    struct pipeline pipeline = {.cluster = partition_cluster(program, options->stages)};
    pipeline.programs = memory_new((size_t)options->stages, sizeof *pipeline.programs);
    enum status status = OK;
    int made = 0;
    bool fits = true;
    for (; status == OK && made < options->stages; made++) {
        struct cut_options own = *options;
        own.stage = made;
        pipeline.programs[made] = cut_stage(program, &own, stage);
        fits = fits && (options->limit == 0 || plan_live_peak(&pipeline.programs[made]) <= options->limit);
        status = streams_assign(&pipeline.programs[made], options->on_cpu ? 1 : 2, BY_MICRO_BATCH);
    }
    if (status == OK) *seconds = fits ? pipeline_seconds(&pipeline) : INFINITY;
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

/* A search for boundaries by simulation. */
struct refining {
    const struct program *program;
    const struct cut_options *options;
    int *stage, *tried;
    bool *may_end;           /* by node */
    double seconds;          /* of `stage` */
    int left;                /* simulations */
};

/* True if the boundary in front of a node can move by so many nodes, all of one chunk, which keeps some; sets
 * `tried`. */
static bool shift(const struct refining *r, int node, int by)
{
    int count = r->program->graph->count, to = node + by;
    int first = by > 0 ? node : to - 1, last = by > 0 ? to : node - 1;
    if (to < 2 || to >= count || !r->may_end[to - 1]) return false;
    for (int n = first; n < last; n++)
        if (r->stage[n] != r->stage[n + 1]) return false;
    memcpy(r->tried, r->stage, (size_t)count * sizeof *r->tried);
    for (int n = node; n < to; n++) r->tried[n] = r->stage[node - 1];
    for (int n = to; n < node; n++) r->tried[n] = r->stage[node];
    return true;
}

/* Tries places near a boundary. */
static enum status refine_at(struct refining *r, int node, bool *moved)
{
    size_t bytes = (size_t)r->program->graph->count * sizeof *r->stage;
    for (int by = FARTHEST; by >= 1; by /= 2)
        for (int sign = 1; sign >= -1 && r->left > 0; sign -= 2) {
            double seconds;
            if (!shift(r, node, sign * by)) continue;
            r->left--;
            TRY(division_seconds(r->program, r->options, r->tried, &seconds));
            if (seconds >= LESS * r->seconds) continue;
            r->seconds = seconds;
            memcpy(r->stage, r->tried, bytes);
            *moved = true;
            return OK;
        }
    return OK;
}

/* The formula of partition_search.h is rough: messages arrive while blocks go on, weight gradients run beside
 * them, and stages wait for each other in the order of the schedule's blocks. */
static enum status refine(const struct program *program, const struct cut_options *options, int *stage,
                          double seconds)
{
    int count = program->graph->count;
    struct refining r = {.program = program, .options = options, .stage = stage, .seconds = seconds,
                         .tried = memory_new((size_t)count, sizeof *stage),
                         .may_end = memory_new((size_t)count, sizeof(bool)),
                         .left = SIMULATED_INSTRUCTIONS / (program->count * options->stages)};
    enum status status = OK;
    partition_ends(program, r.may_end);
    for (bool moved = true; moved && status == OK;) {
        moved = false;
        for (int node = count - 1; node > 1 && status == OK; node--)
            if (stage[node] != stage[node - 1]) status = refine_at(&r, node, &moved);
    }
    free(r.tried);
    free(r.may_end);
    return status;
}

/* The division for a schedule, and the seconds of a step: the faster one of partition's two. */
static enum status divide(const struct program *program, const struct cut_options *options, int *stage,
                          double *seconds)
{
    const struct partition_options how = {options->stages, options->schedule, options->on_cpu, options->limit,
                                          stage_bytes};
    size_t bytes = (size_t)program->graph->count * sizeof *stage;
    int *moved = memory_new(1, bytes);
    double after;
    enum status status = partition(program, &how, stage, moved, seconds);
    if (status == OK) status = division_seconds(program, options, stage, seconds);
    if (status == OK) status = division_seconds(program, options, moved, &after);
    if (status == OK && after < *seconds) {
        *seconds = after;
        memcpy(stage, moved, bytes);
    }
    free(moved);
    return status;
}

/* Like `divide`, for the best schedule, which it sets. */
static enum status choose(const struct program *program, struct cut_options *options, int *stage,
                          double *seconds)
{
    struct cut_options tried = *options;
    size_t bytes = (size_t)program->graph->count * sizeof *stage;
    int *other = memory_new(1, bytes);
    double least, after;
    int parts = partition_parts(program);
    options->schedule = tried.schedule = PIPELINE_1F1B;
    enum status status = divide(program, &tried, stage, seconds);
    least = WORTH_MEMORY * *seconds;
    for (tried.schedule = 0; tried.schedule < PIPELINE_SCHEDULES; tried.schedule++) {
        bool fits = pipeline_chunks(tried.schedule, tried.stages) <= parts;
        if (status != OK || tried.schedule == PIPELINE_1F1B || !fits) continue;
        status = divide(program, &tried, other, &after);
        if (status != OK || after >= least) continue;
        *seconds = least = after;
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
    double seconds;
    if (options->node_stages) {
        memcpy(stage, options->node_stages, (size_t)count * sizeof *stage);
    } else {
        status = options->choose ? choose(program, &chosen, stage, &seconds)
                                 : divide(program, options, stage, &seconds);
        if (status == OK) status = refine(program, &chosen, stage, seconds);
    }
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
