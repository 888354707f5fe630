#include "forecast.h"

#include "compile/cost.h"

/* An ordinary core in 2020s: multiply-adds in convolutions, and what streams through memory. */
#define CORE_FLOPS 40e9
#define MEMORY_BYTES_PER_SECOND 10e9

double forecast_layer_flops(const struct graph *graph, int node, int batch)
{
    double weights = 0;
    for (int i = 0; i < graph->nodes[node].param_count; i++) {
        const struct op_param *spec = &graph->params[graph->nodes[node].param_first + i].spec;
        if (spec->role == ROLE_WEIGHT) weights += (double)shape_count(spec->shape);
    }
    return 2 * weights * batch * (double)(graph->nodes[node].shape.h * graph->nodes[node].shape.w);
}

static double bytes_of(const struct program *program, const int *ids, int count)
{
    double bytes = 0;
    for (int i = 0; i < count; i++) bytes += (double)program->values[ids[i]].bytes;
    return bytes;
}

/* On a processor, backward costs twice what forward does. */
static double model_step(const struct session *session, const struct program *program)
{
    if (session_device_kind(session) == DEVICE_CUDA) return 1e3 * cost_program(program);
    double flops = 0, bytes = 0;
    for (int i = 0; i < program->graph->count; i++)
        flops += 3 * forecast_layer_flops(program->graph, i, program->batch);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        bytes +=
            bytes_of(program, at->reads, at->read_count) + bytes_of(program, at->writes, at->write_count);
    }
    int threads = session->settings->run.threads ? (int)session->settings->run.threads : 2;
    return 1e3 * (flops / (CORE_FLOPS * threads) + bytes / MEMORY_BYTES_PER_SECOND);
}

enum status forecast_make(const struct session *session, struct forecast *forecast)
{
    *forecast = (struct forecast){0};
    struct compile_options options = step_options(session, STEP_TRAINING);
    TRY(compile_plan(step_graph(session, STEP_TRAINING), &options, &forecast->compiled));
    const struct program *program = &forecast->compiled.program;
    forecast->bytes = step_bytes(session, program, &forecast->compiled.plan, step_store_bytes(session));
    forecast->step_ms = model_step(session, program);
    return OK;
}

void forecast_free(struct forecast *forecast)
{
    compiled_free(&forecast->compiled);
    *forecast = (struct forecast){0};
}
