#include "compile/memory/plan.h"

#include <stdlib.h>

#include "alloc/check.h"
#include "alloc/pack.h"
#include "base/clock.h"
#include "base/memory.h"

#define SECONDS_DEFAULT 1.5
#define ROOM_SPARE 0.005     /* distance to the bound that packing usually reaches */

/* One block for each group of values computed in place, alive as long as any of them. span_of[value] is its
 * block's number, -1 outside the arena. */
static struct span *spans_make(const struct program *program, const struct lifetime *lifetimes,
                               int *span_of, int *count)
{
    struct span *spans = memory_new((size_t)program->value_count, sizeof *spans);
    *count = 0;
    for (int v = 0; v < program->value_count; v++) {
        span_of[v] = -1;
        if (lifetimes[v].born < 0 || lifetimes[v].group != v) continue;
        span_of[v] = (*count)++;
        spans[span_of[v]] = (struct span){.lower = lifetimes[v].born, .upper = lifetimes[v].dead,
                                          .size = plan_bytes(&program->values[v])};
    }
    for (int v = 0; v < program->value_count; v++) {
        if (lifetimes[v].born < 0 || lifetimes[v].group == v) continue;
        struct span *head = &spans[span_of[lifetimes[v].group]];
        span_of[v] = span_of[lifetimes[v].group];
        if (lifetimes[v].born < head->lower) head->lower = lifetimes[v].born;
        if (lifetimes[v].dead > head->upper) head->upper = lifetimes[v].dead;
    }
    return spans;
}

/* The blocks to pack. */
struct blocks {
    int *span_of;              /* [value_count] */
    struct span *spans;
    int count;
};

/* Uses the offsets in the program; false if it has none, or if blocks have changed since. */
static bool pack_as_known(const struct program *program, const struct lifetime *lifetimes,
                           const struct blocks *blocks, int64_t *arena)
{
    struct reason reason;
    if (!program->offsets || program->offset_count != program->value_count) return false;
    *arena = 0;
    for (int v = 0; v < program->value_count; v++) {
        if (blocks->span_of[v] < 0 || lifetimes[v].group != v) continue;
        struct span *span = &blocks->spans[blocks->span_of[v]];
        span->offset = program->offsets[v];
        if (span->offset + span->size > *arena) *arena = span->offset + span->size;
    }
    return check_spans(blocks->spans, blocks->count, PLAN_ALIGNMENT, *arena, &reason);
}

/* Bytes alive, by instruction. */
static int64_t *live_bytes(const struct span *spans, int span_count, int instructions)
{
    int64_t *live = memory_new((size_t)instructions + 1, sizeof *live), alive = 0;
    for (int s = 0; s < span_count; s++) {
        live[spans[s].lower] += spans[s].size;
        live[spans[s].upper] -= spans[s].size;
    }
    for (int i = 0; i < instructions; i++) live[i] = alive += live[i];
    return live;
}

/* The largest sum of bytes alive, and the first instruction that has it. */
static void find_peak(const struct span *spans, int span_count, int instructions, struct plan *plan)
{
    int64_t *live = live_bytes(spans, span_count, instructions);
    for (int i = 0; i < instructions; i++) {
        if (live[i] <= plan->live_bytes_bound) continue;
        plan->live_bytes_bound = live[i];
        plan->peak = i;
    }
    free(live);
}

static void find_workspace(const struct program *program, struct plan *plan)
{
    for (int v = 0; v < program->value_count; v++) {
        const struct value *value = &program->values[v];
        if (value->kind == KIND_WORKSPACE && plan_bytes(value) > plan->workspace_bytes)
            plan->workspace_bytes = plan_bytes(value);
    }
}

/* The goal of packing. */
struct aim {
    int64_t room;              /* limit; 0: as small as possible */
    double seconds;
};

/* A program that fits easily is packed as any other; one that just fits is packed only for the limit. */
static int64_t pack_for(struct span *spans, int count, int64_t bound, struct aim aim)
{
    bool spare = (1 + ROOM_SPARE) * (double)bound <= (double)aim.room;
    return pack_spans(spans, count, PLAN_ALIGNMENT, spare ? 0 : aim.room, aim.seconds);
}

/* Fills in the plan what is known without packing: lifetimes and the peak. */
static struct blocks blocks_open(const struct program *program, bool share, struct plan *plan)
{
    size_t values = (size_t)program->value_count;
    struct blocks blocks = {.span_of = memory_new(values, sizeof *blocks.span_of)};
    *plan = (struct plan){.value_count = program->value_count};
    plan->lifetimes = memory_new(values, sizeof *plan->lifetimes);
    plan->separate = !share;
    liveness(program, share, plan->lifetimes);
    blocks.spans = spans_make(program, plan->lifetimes, blocks.span_of, &blocks.count);
    find_peak(blocks.spans, blocks.count, program->count, plan);
    return blocks;
}

static void blocks_close(struct blocks *blocks)
{
    free(blocks->span_of);
    free(blocks->spans);
}

static void offsets_set(const struct program *program, const struct blocks *blocks, int64_t *offsets)
{
    for (int v = 0; v < program->value_count; v++) {
        const struct value *value = &program->values[v];
        int span = blocks->span_of[value_placed(program, v)];
        int64_t within = value->home == HOME_PART ? value->offset : 0;
        offsets[v] = span < 0 ? -1 : blocks->spans[span].offset + within;
    }
}

static void plan_pack(const struct program *program, const struct blocks *blocks, struct aim aim,
                      struct plan *plan)
{
    double begin = clock_seconds();
    if (plan->separate || !pack_as_known(program, plan->lifetimes, blocks, &plan->arena_bytes))
        plan->arena_bytes = pack_for(blocks->spans, blocks->count, plan->live_bytes_bound, aim);
    plan->seconds = clock_seconds() - begin;
    plan->offsets = memory_new((size_t)program->value_count, sizeof *plan->offsets);
    offsets_set(program, blocks, plan->offsets);
    find_workspace(program, plan);
}

/* An invalid plan, which is our bug and never the user's, is reported with the numbers of its tensors. */
static enum status plan_aim(const struct program *program, bool share, struct aim aim, struct plan *plan)
{
    struct reason reason;
    struct blocks blocks = blocks_open(program, share, plan);
    bool hopeless = aim.room > 0 && plan->live_bytes_bound > aim.room;
    if (hopeless) plan->arena_bytes = plan->live_bytes_bound;
    else plan_pack(program, &blocks, aim, plan);
    blocks_close(&blocks);
    if (hopeless || plan_verify(program, plan, &reason)) return OK;
    plan_free(plan);
    return fail(FAILED, "the memory plan is invalid: %s", reason.text);
}

enum status plan_make(const struct program *program, bool share, double seconds, struct plan *plan)
{
    return plan_aim(program, share, (struct aim){0, seconds > 0 ? seconds : SECONDS_DEFAULT}, plan);
}

enum status plan_fit(const struct program *program, int64_t room, double seconds, struct plan *plan)
{
    return plan_aim(program, true, (struct aim){room, seconds}, plan);
}

void plan_free(struct plan *plan)
{
    free(plan->lifetimes);
    free(plan->offsets);
    *plan = (struct plan){0};
}

static void count_params(const struct program *program, const struct instruction *at, struct plan_layer *row)
{
    FOR_OPERANDS(o, at) {
        if (o->role != OPERAND_PARAM) continue;
        const struct op_param *spec = &program->graph->params[program->values[o->value].index].spec;
        if (spec->role != ROLE_STATISTIC) row->params += shape_count(spec->shape);
        if (spec->role == ROLE_WEIGHT) row->weights += shape_count(spec->shape);
    }
}

int plan_layers(const struct program *program, const struct plan *plan, struct plan_layer *rows)
{
    const struct graph *graph = program->graph;
    int *row_of = memory_new((size_t)graph->count, sizeof *row_of), count = 0;
    for (int n = 0; n < graph->count; n++) row_of[n] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->phase != PHASE_FORWARD || at->node < 0) continue;
        int output = operand_y(at);
        const struct value *y = &program->values[output];
        if (row_of[at->node] < 0) {
            row_of[at->node] = count;
            rows[count] = (struct plan_layer){.node = at->node, .op = at->op, .shape = y->shape,
                                              .dtype = y->dtype,
                                              .in_place = plan->lifetimes[output].group != output};
            count_params(program, at, &rows[count++]);
        }
        struct plan_layer *row = &rows[row_of[at->node]];
        row->activation_bytes += y->bytes;
        FOR_OPERANDS(o, at)
            if (o->role == OPERAND_SAVED) row->saved_bytes += program->values[o->value].bytes;
    }
    free(row_of);
    return count;
}

int64_t *plan_live_bytes(const struct program *program)
{
    struct plan plan;
    struct blocks blocks = blocks_open(program, true, &plan);
    int64_t *live = live_bytes(blocks.spans, blocks.count, program->count);
    blocks_close(&blocks);
    plan_free(&plan);
    return live;
}

int64_t plan_live_peak(const struct program *program)
{
    struct plan plan;
    struct blocks blocks = blocks_open(program, true, &plan);
    int64_t most = plan.live_bytes_bound;
    blocks_close(&blocks);
    plan_free(&plan);
    return most;
}

/* True if an instruction's output has separate memory from its inputs. */
static bool has_own_place(const struct program *program, const struct instruction *at, int value)
{
    int over = instruction_over(at, value);
    bool in_place = over >= 0 && program->values[value_placed(program, over)].home == HOME_ARENA;
    return !in_place && !instruction_reads(at, value);
}

static int64_t arena_bytes(const struct program *program, int value)
{
    const struct value *placed = &program->values[value_placed(program, value)];
    return placed->home == HOME_ARENA ? plan_bytes(&program->values[value]) : 0;
}

int64_t plan_minimum_bytes(const struct program *program)
{
    int64_t least = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        int64_t bytes = 0;
        FOR_READS(o, at) bytes += arena_bytes(program, o->value);
        FOR_WRITES(o, at)
            if (has_own_place(program, at, o->value)) bytes += arena_bytes(program, o->value);
        if (bytes > least) least = bytes;
    }
    return least;
}
