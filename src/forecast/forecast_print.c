#include "forecast/forecast_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/members.h"
#include "base/memory.h"
#include "compile/memory/offload.h"
#include "compile/memory/recompute.h"
#include "compile/time/cost.h"
#include "forecast/memory_map.h"
#include "graph/graph_text.h"
#include "session/step_fit.h"
#include "session/tiles.h"

/* -1: no limit, or unknown. */
static int64_t largest_fitting(const struct session *session)
{
    int64_t limit = session_limit(session);
    int batch;
    if (limit > 0 && session->fitted) return session->settings->train.batch;
    return limit > 0 && step_fit_batch(session, limit, false, &batch) == OK ? batch : -1;
}

static void print_bytes(const char *what, int64_t bytes, const char *note)
{
    char text[TEXT_BYTES];
    printf("  %-28s %12s  %s\n", what, text_bytes((uint64_t)bytes, text), note);
}

static void print_layers(const struct forecast *forecast)
{
    struct plan_layer *rows = memory_new((size_t)forecast->compiled.program.graph->count, sizeof *rows);
    int count = plan_layers(&forecast->compiled.program, &forecast->compiled.plan, rows);
    int width = 5;
    for (int i = 0; i < count; i++) {
        int length = (int)strlen(forecast->compiled.program.graph->nodes[rows[i].node].name);
        if (length > width) width = length;
    }
    printf("\n%-*s %-13s %-14s %8s %10s %9s\n", width, "layer", "op", "output", "params", "activation",
           "kept");
    for (int i = 0; i < count; i++) {
        const struct node *node = &forecast->compiled.program.graph->nodes[rows[i].node];
        char shape[SHAPE_TEXT], activation[TEXT_BYTES], saved[TEXT_BYTES];
        printf("%-*s %-13s %-14s %8" PRId64 " %10s %9s\n", width, node->name, rows[i].op->name,
               shape_text(rows[i].shape, shape), rows[i].params,
               rows[i].in_place ? "in place" : text_bytes((uint64_t)rows[i].activation_bytes, activation),
               text_bytes((uint64_t)rows[i].saved_bytes, saved));
    }
    free(rows);
    struct text outputs = {0};
    graph_text_outputs(forecast->compiled.program.graph, &outputs);
    if (outputs.data) printf("\n%s", outputs.data);
    text_free(&outputs);
}

static void print_total(const struct session *session, int64_t total)
{
    char note[64] = "", room[TEXT_BYTES];
    int64_t limit = session_limit(session);
    if (limit > 0 && total > limit)
        snprintf(note, sizeof note, "more than memory.limit, %s", text_bytes((uint64_t)limit, room));
    print_bytes("total", total, note);
}

static double images_per_second(const struct session *session, const struct forecast *forecast)
{
    return 1e3 * session->hyper.batch / forecast->time.ms;
}

/* Images per second, in percent of the same number of independent devices. */
static double efficiency(const struct forecast *forecast)
{
    return 100 * forecast->alone_ms / forecast->time.ms;
}

/* The work of the slowest stage relative to the mean; 1 if all are equal. */
static double balance(const struct forecast *forecast)
{
    double sum = 0, most = 0;
    for (int s = 0; s < forecast->cluster.stages; s++) {
        sum += forecast->time.busy_ms[s];
        most = fmax(most, forecast->time.busy_ms[s]);
    }
    return most * forecast->cluster.stages / sum;
}

/* The fraction of a stage's time in which it is idle. */
static double idle(const struct forecast *forecast, int stage)
{
    return 1 - forecast->time.busy_ms[stage] / forecast->time.ms;
}

static double bubble(const struct forecast *forecast)
{
    double sum = 0;
    for (int s = 0; s < forecast->cluster.stages; s++) sum += idle(forecast, s);
    return sum / forecast->cluster.stages;
}

static const char *const schedule_names[] = {
    [PIPELINE_GPIPE] = "gpipe", [PIPELINE_1F1B] = "1f1b", [PIPELINE_ZERO_BUBBLE] = "zerobubble",
    [PIPELINE_V] = "vshape",
};

static void print_alternatives(const struct session *session, const struct forecast *forecast)
{
    const struct best_pipeline *best = &forecast->pipeline;
    double images = 1e3 * session->hyper.batch;
    if (forecast->cluster.stages > 1 && !isnan(forecast->data_parallel_ms))
        printf("  %-28s %12.0f  with parallel.stages=1\n", "  without stages",
               images / forecast->data_parallel_ms);
    if (best->stages > 0)
        printf("  %-28s %12.0f  parallel.stages=%d microbatches=%d schedule=%s\n", "  best pipeline",
               images / best->ms, best->stages, best->micro_batches, schedule_names[best->schedule]);
}

static const char *exchange_note(const struct hyperparameters *hyper)
{
    if (hyper->stages == 1) return "NCCL, among GPUs";
    return hyper->replicas == 1 ? "messages of other stages" : "NCCL, and messages of other stages";
}

static const char *const origins[] = {
    [STEP_TIME_MODELLED] = "model", [STEP_TIME_SCALED] = "scaled", [STEP_TIME_MEASURED] = "measured",
};
static const char *const origin_notes[] = {
    [STEP_TIME_MODELLED] = "estimated",
    [STEP_TIME_SCALED] = "estimated, from a step of this network that was measured",
    [STEP_TIME_MEASURED] = "measured in an earlier run",
};

static void print_time(const struct session *session, const struct forecast *forecast)
{
    int ranks = cluster_ranks(&forecast->cluster);
    printf("  %-28s %9.1f ms  %s\n", "step", forecast->time.ms, origin_notes[forecast->origin]);
    if (ranks == 1) return;
    printf("  %-28s %9.2f ms  added to the step by exchanges\n", "  of which exchange",
           forecast->time.exposed_ms);
    printf("  %-28s %9.2f ms  for the slowest of %d ranks\n", "  of which waiting",
           forecast->time.waiting_ms, ranks);
    printf("  %-28s %12.0f  %.1f %% of %d independent GPUs with %d images each\n", "images/s",
           images_per_second(session, forecast), efficiency(forecast), ranks, session->hyper.batch / ranks);
    print_alternatives(session, forecast);
}

static void print_stages(const struct forecast *forecast)
{
    if (forecast->cluster.stages == 1) return;
    printf("  %-28s %12s  order of micro-batches in a stage\n", "schedule",
           schedule_names[forecast->compiled.program.schedule]);
    printf("  %-28s %12.2f  work of the slowest stage, relative to the mean\n", "balance", balance(forecast));
    printf("  %-28s %10.1f %%  of the time, stages are idle\n", "bubble",
           100 * bubble(forecast));
    printf("\n%5s  %-44s %10s %8s %12s %12s\n", "stage", "layers", "busy, ms", "idle", "memory", "sent");
    for (int s = 0; s < forecast->cluster.stages; s++) {
        const struct forecast_stage *stage = &forecast->stages[s];
        char bytes[TEXT_BYTES], sent[TEXT_BYTES];
        printf("%5d  %-44s %10.2f %6.1f %% %12s %12s\n", s, stage->layers, forecast->time.busy_ms[s],
               100 * idle(forecast, s), text_bytes((uint64_t)stage->bytes.total, bytes),
               text_bytes((uint64_t)stage->sent_bytes, sent));
    }
    printf("\n");
}

void forecast_print(const struct session *session, const struct forecast *forecast, bool brief)
{
    const struct budget *bytes = &forecast->bytes;
    const struct plan *plan = &forecast->compiled.plan;
    char note[96], bound[TEXT_BYTES];
    const struct graph *graph = &session->graphs.training;
    const struct data *data = &session->data;
    const struct caching_options caching = session_caching_options(session);
    printf("%s, %" PRId64 " parameters, batch %d of %dx%dx%d in %s\n\n", graph->arch,
           graph_param_elements(graph), session->hyper.batch, data->train.h, data->train.w, data->channels,
           session->hyper.precision->name);
    snprintf(note, sizeof note, "step tensors; lower bound %s",
             text_bytes((uint64_t)plan->live_bytes_bound, bound));
    print_bytes("arena", bytes->arena, note);
    print_bytes("  of which workspaces", plan->workspace_bytes, "");
    print_bytes("store", bytes->store, "parameters, optimizer state");
    print_bytes("batch", bytes->input, "images, labels, results");
    if (caching_device_bytes(&caching) > 0)
        print_bytes("  of which cached images", caching_device_bytes(&caching), "loader.cache");
    if (bytes->exchange > 0) print_bytes("exchange", bytes->exchange, exchange_note(&session->hyper));
    if (forecast->tiles.total > 0) {
        const struct tiles tiles = tiles_of(session);
        snprintf(note, sizeof note, "images of any size, %d tiles of %dx%d at a time", tiles.batch, tiles.w,
                 tiles.h);
        print_bytes("evaluation alone", forecast->tiles.total, note);
    }
    print_total(session, bytes->total);
    print_time(session, forecast);
    print_stages(forecast);
    printf("  %-28s %12d  computed again in the backward pass\n", "recomputed activations",
           recompute_count(&forecast->compiled.program));
    if (offload_bytes(&forecast->compiled.program) > 0)
        print_bytes("  offloaded to the host", offload_bytes(&forecast->compiled.program),
                    "after forward, and copied back for backward");
    int64_t largest = largest_fitting(session);
    if (largest >= 0)
        printf("  %-28s %12" PRId64 "  images fit into memory.limit\n", "largest batch", largest);
    if (brief) {
        printf("\nEach layer, its memory, and settings that need less: -v\n");
        return;
    }
    struct memory_map map = memory_map_make(forecast);
    memory_map_print(session, &map);
    memory_map_free(&map);
    print_layers(forecast);
}

static void add_layer(const struct program *program, const struct plan_layer *row, struct text *out)
{
    const struct node *node = &program->graph->nodes[row->node];
    text_add(out, "{");
    member_string(out, "name", node->name);
    member_string(out, "op", row->op->name);
    text_add(out, ",\"output\":[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", row->shape.n,
             row->shape.h, row->shape.w, row->shape.c);
    member_string(out, "dtype", dtype_table[row->dtype].name);
    member_integer(out, "params", row->params);
    member_integer(out, "activation_bytes", row->activation_bytes);
    member_integer(out, "saved_bytes", row->saved_bytes);
    text_add(out, ",\"in_place\":%s", row->in_place ? "true" : "false");
    bool others = row->op->macs || row->op->products_by_input;
    member_number(out, "flops", others ? cost_node_flops(program->graph, row->node, program->batch)
                                       : cost_layer_flops(row->weights, row->shape, program->batch));
    text_add(out, "}");
}

static void add_stages(const struct session *session, const struct forecast *forecast, struct text *out)
{
    member_number(out, "data_parallel_images_per_s", 1e3 * session->hyper.batch / forecast->data_parallel_ms);
    member_string(out, "schedule", schedule_names[forecast->compiled.program.schedule]);
    member_number(out, "balance", balance(forecast));
    member_number(out, "bubble", bubble(forecast));
    for (int s = 0; s < forecast->cluster.stages; s++) {
        const struct forecast_stage *stage = &forecast->stages[s];
        text_add(out, s ? ",{" : ",\"stages\":[{");
        member_string(out, "first", stage->first);
        member_string(out, "last", stage->last);
        member_string(out, "layers", stage->layers);
        member_number(out, "busy_ms", forecast->time.busy_ms[s]);
        member_integer(out, "total_bytes", stage->bytes.total);
        member_integer(out, "sent_bytes", stage->sent_bytes);
        text_add(out, "}");
    }
    text_add(out, "]");
}

static void add_pipeline(const struct session *session, const struct best_pipeline *best, struct text *out)
{
    text_add(out, ",\"best_pipeline\":{\"stages\":%d,\"microbatches\":%d,\"schedule\":\"%s\"", best->stages,
             best->micro_batches, schedule_names[best->schedule]);
    member_number(out, "images_per_s", 1e3 * session->hyper.batch / best->ms);
    text_add(out, "}");
}

static void add_ranks(const struct session *session, const struct forecast *forecast, struct text *out)
{
    int ranks = cluster_ranks(&forecast->cluster);
    if (ranks == 1) return;
    member_integer(out, "ranks", ranks);
    member_integer(out, "hosts", forecast->cluster.hosts);
    member_integer(out, "exchange_bytes", forecast->bytes.exchange);
    member_number(out, "exchange_exposed_ms", forecast->time.exposed_ms);
    member_number(out, "waiting_ms", forecast->time.waiting_ms);
    member_number(out, "images_per_s", images_per_second(session, forecast));
    member_number(out, "efficiency", efficiency(forecast) / 100);
    if (forecast->pipeline.stages > 0) add_pipeline(session, &forecast->pipeline, out);
    if (forecast->cluster.stages > 1) add_stages(session, forecast, out);
}

void forecast_print_json(const struct session *session, const struct forecast *forecast)
{
    const struct program *program = &forecast->compiled.program;
    struct text out = {0};
    text_add(&out, "{");
    step_taken_json(&forecast->bytes, &forecast->compiled.plan, &out);
    member_number(&out, "step_ms", forecast->time.ms);
    member_string(&out, "step_ms_from", origins[forecast->origin]);
    add_ranks(session, forecast, &out);
    if (forecast->tiles.total > 0) {
        const struct tiles tiles = tiles_of(session);
        text_add(&out, ",\"evaluation\":{\"tile\":[%d,%d]", tiles.h, tiles.w);
        member_integer(&out, "tiles", tiles.batch);
        member_integer(&out, "total_bytes", forecast->tiles.total);
        text_add(&out, "}");
    }
    graph_text_outputs_json(graphs_step(&session->graphs), program->batch, &out);
    member_string(&out, "strategy", step_strategy(session, program));
    member_integer(&out, "recomputed", recompute_count(program));
    member_integer(&out, "offloaded_bytes", offload_bytes(program));
    text_add(&out, ",\"estimated\":true,\"layers\":[");
    struct plan_layer *rows = memory_new((size_t)program->graph->count, sizeof *rows);
    int count = plan_layers(program, &forecast->compiled.plan, rows);
    for (int i = 0; i < count; i++) {
        if (i > 0) text_add(&out, ",");
        add_layer(program, &rows[i], &out);
    }
    free(rows);
    int64_t largest = largest_fitting(session);
    if (largest >= 0) text_add(&out, "],\"largest_batch\":%" PRId64, largest);
    else text_add(&out, "],\"largest_batch\":null");
    struct memory_map map = memory_map_make(forecast);
    text_add(&out, ",\"tensors\":%d,\"peak\":", map.count);
    memory_map_json(&map, &out);
    memory_map_free(&map);
    printf("%s}\n", out.data);
    text_free(&out);
}
