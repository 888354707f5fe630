#include "forecast/forecast.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "session/step_fit.h"
#include "session/step_ranks.h"
#include "session/tiles.h"

static struct cluster cluster_of(const struct session *session, const struct forecast_options *options)
{
    struct cluster cluster = {
        .replicas = session->hyper.replicas, .stages = session->hyper.stages, .hosts = options->hosts,
        .link_bytes_per_second = options->link_bytes_per_second,
        .machine = step_options(session, STEP_TRAINING).lower.machine,
    };
    if (options->link_seconds > 0) cluster.machine.network_seconds = options->link_seconds;
    return cluster;
}

/* Milliseconds of a step with that many images on that many ranks without stages. */
static enum status whole_ms(const struct session *session, const struct forecast_options *options, int ranks,
                            int images, double *ms)
{
    struct cluster cluster = cluster_of(session, options);
    struct compile_options compiling = step_time_options(session, &cluster);
    struct program program;
    cluster.replicas = ranks;
    cluster.stages = 1;
    if (ranks == 1) cluster.hosts = 1;
    compiling.cut = (struct cut_options){0};
    compiling.lower.batch = images / ranks;
    if (session->hyper.stages > 1) compiling.lower.micro_batches = 1;
    compiling.lower.all_micro_batches = ranks * compiling.lower.micro_batches;
    TRY(compile(step_graph(session, STEP_TRAINING), &compiling, &program));
    const struct program *const programs[] = {&program};
    struct step_time time = step_time_simulate(programs, &cluster, options->times);
    *ms = time.ms;
    step_time_free(&time);
    program_free(&program);
    return OK;
}

static enum status forecast_compare(const struct session *session, const struct forecast_options *options,
                                    struct forecast *forecast)
{
    int ranks = cluster_ranks(&forecast->cluster), images = session->hyper.batch;
    forecast->alone_ms = forecast->data_parallel_ms = forecast->time.ms;
    if (ranks == 1 || !options->compares) return OK;
    TRY(best_pipeline_find(session, &forecast->cluster, options->times, &forecast->pipeline));
    TRY(whole_ms(session, options, 1, images > ranks ? images / ranks : 1, &forecast->alone_ms));
    if (forecast->cluster.stages == 1) return OK;
    forecast->data_parallel_ms = NAN;
    return images % ranks != 0 ? OK : whole_ms(session, options, ranks, images, &forecast->data_parallel_ms);
}

static bool has_node(const struct program *program, int node)
{
    return !program->node_stages || program->node_stages[node] == program->stage;
}

static void forecast_describe(struct forecast_stage *stage)
{
    const struct program *program = &stage->compiled.program;
    const struct graph *graph = program->graph;
    struct text layers = {0};
    int first = 0, last = 0;
    for (int node = 1; node < graph->count; node++) {     /* the first one is the input */
        if (!has_node(program, node)) continue;
        const char *name = graph->nodes[node].name;
        if (first == 0) first = node;
        if (last == 0 || last < node - 1) text_add(&layers, "%s%s", last ? ", " : "", name);
        last = node;
        if (node == graph->count - 1 || !has_node(program, node + 1)) text_add(&layers, " to %s", name);
    }
    stage->first = text_copy(graph->nodes[first].name);
    stage->last = text_copy(graph->nodes[last].name);
    stage->layers = layers.data;
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].kind == INSTRUCTION_SEND)
            stage->sent_bytes += program->values[operand_x(&program->instructions[i], 0)].bytes;
}

/* A step that has run before, on one device, takes as long again. */
static void forecast_recall(const struct session *session, const struct forecast_options *options,
                            struct forecast *forecast)
{
    double seconds;
    if (options->times || cluster_ranks(&forecast->cluster) > 1) return;
    forecast->origin = step_times_recall(session, &forecast->compiled.program, &seconds);
    if (forecast->origin == STEP_TIME_MODELLED) return;
    forecast->time.busy_ms[0] *= 1e3 * seconds / forecast->time.ms;
    forecast->time.ms = 1e3 * seconds;
}

/* The arena of evaluations, which lies in that of training if it is no larger; 0: they are not of tiles. */
static enum status forecast_tiles(const struct session *session, struct forecast *forecast, int64_t *arena)
{
    struct compiled compiled;
    *arena = 0;
    if (!tiles_run(session)) return OK;
    struct compile_options options = step_options(session, STEP_EVALUATION);
    options.kernel_plans.device = NULL;
    TRY(compile_plan(step_graph(session, STEP_EVALUATION), &options, &compiled));
    int64_t values = compiled.plan.arena_bytes;
    *arena = budget_taken(&options.budget, &compiled.program, values).arena;
    forecast->tiles = step_tiles_taken(session, &compiled.program, values);
    compiled_free(&compiled);
    return OK;
}

/* Compiles the program of each stage. */
static enum status compile_stages(const struct session *session, struct forecast *forecast)
{
    struct compile_options options = step_time_options(session, &forecast->cluster);
    int64_t evaluation;
    TRY(forecast_tiles(session, forecast, &evaluation));
    for (int s = 0; s < forecast->cluster.stages; s++) {
        struct forecast_stage *stage = &forecast->stages[s];
        if (s > 0) options.cut = cut_like(&forecast->stages[0].compiled.program, &options.cut);
        options.cut.stage = s;
        TRY(compile_plan(step_graph(session, STEP_TRAINING), &options, &stage->compiled));
        int64_t arena = stage->compiled.plan.arena_bytes;
        stage->bytes = step_taken(session, &stage->compiled.program, arena > evaluation ? arena : evaluation);
        forecast_describe(stage);
        if (stage->bytes.total <= forecast->bytes.total) continue;
        forecast->bytes = stage->bytes;
        forecast->compiled = stage->compiled;
    }
    return OK;
}

static void forecast_play(struct forecast *forecast, const struct measured_times *times)
{
    int stages = forecast->cluster.stages;
    const struct program **programs = memory_new((size_t)stages, sizeof *programs);
    for (int s = 0; s < stages; s++) programs[s] = &forecast->stages[s].compiled.program;
    forecast->time = step_time_simulate(programs, &forecast->cluster, times);
    free(programs);
}

enum status forecast_make(const struct session *session, const struct forecast_options *options,
                          struct forecast *forecast)
{
    struct forecast made = {.cluster = cluster_of(session, options)};
    made.stages = memory_new((size_t)made.cluster.stages, sizeof *made.stages);
    enum status status = options->compares ? step_ranks_verify(session) : OK;
    if (status == OK) status = compile_stages(session, &made);
    if (status == OK) {
        forecast_play(&made, options->times);
        forecast_recall(session, options, &made);
    }
    if (status == OK) status = forecast_compare(session, options, &made);
    if (status == OK) *forecast = made;
    else forecast_free(&made);
    return status;
}

void forecast_free(struct forecast *forecast)
{
    step_time_free(&forecast->time);
    for (int s = 0; forecast->stages && s < forecast->cluster.stages; s++) {
        free(forecast->stages[s].first);
        free(forecast->stages[s].layers);
        free(forecast->stages[s].last);
        compiled_free(&forecast->stages[s].compiled);
    }
    free(forecast->stages);
    *forecast = (struct forecast){0};
}
