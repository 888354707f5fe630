/* recompute.c: recomputes activations in the backward pass instead of keeping them from forward. */
#include "compile/memory/recompute.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"

static bool can_recompute(const struct program *program, const struct instruction *at)
{
    return at->phase == PHASE_FORWARD && at->op && program->values[at->y].kind == KIND_ACTIVATION &&
           program->values[at->y].home == HOME_ARENA;
}

int recompute_fold(const struct program *program, const enum recompute_mode *modes,
                   enum recompute_mode *folded)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->micro_batch == 0 && can_recompute(program, at)) folded[count++] = modes[i];
    }
    return count;
}

void recompute_unfold(const struct program *program, const enum recompute_mode *folded,
                      enum recompute_mode *modes)
{
    int *counts = memory_new((size_t)program->micro_batches, sizeof *counts);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        modes[i] = RECOMPUTE_NEVER;
        if (can_recompute(program, at)) modes[i] = folded[counts[at->micro_batch]++];
    }
    free(counts);
}

/* A value that may have to be recomputed for backward. */
static void wanted_note(struct recompute_walk *walk)
{
    const struct program *program = walk->program;
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        walk->wanted_first[i] = count;
        for (int k = 0; instruction_is_backward(at) && k < at->read_count; k++)
            if (walk->producer[at->reads[k]] >= 0) *array_push(walk->wanted, count) = at->reads[k];
    }
    walk->wanted_first[program->count] = count;
}

struct recompute_walk recompute_walk_open(const struct program *program)
{
    size_t values = (size_t)program->value_count;
    struct recompute_walk walk = {.program = program, .end = program->count};
    walk.producer = memory_new(values, sizeof *walk.producer);
    walk.now = memory_new(values, sizeof *walk.now);
    walk.chain = memory_new(values, sizeof *walk.chain);
    walk.stays = memory_new(values, sizeof *walk.stays);
    walk.wanted_first = memory_new((size_t)program->count + 1, sizeof *walk.wanted_first);
    for (int v = 0; v < program->value_count; v++) walk.producer[v] = walk.now[v] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!can_recompute(program, at)) continue;
        walk.producer[at->y] = i;
        if (at->mask >= 0) walk.producer[at->mask] = i;
        for (int k = 0; k < at->saved_count && !recompute_keeps_saved(at->op); k++)
            walk.producer[at->saved[k]] = i;
    }
    wanted_note(&walk);
    return walk;
}

void recompute_walk_close(struct recompute_walk *walk)
{
    free(walk->producer);
    free(walk->now);
    free(walk->chain);
    free(walk->stays);
    free(walk->wanted);
    free(walk->wanted_first);
}

/* If the instruction runs again for another of its outputs, a value that is live is not replaced. */
static void value_made(struct recompute_walk *walk, int value)
{
    if (walk->now[value] < 0) walk->chain[walk->chain_count++] = value;
    walk->now[value] = walk->value_count++;
}

/* Recomputes `value` unless it is kept or live, after the inputs of its instruction. */
static void value_wanted(struct recompute_walk *walk, int value)
{
    int i = walk->producer[value];
    if (i < 0 || walk->modes[i] == RECOMPUTE_NEVER || walk->now[value] >= 0) return;
    const struct instruction *at = &walk->program->instructions[i];
    for (int k = 0, inputs = recompute_inputs(at); k < inputs; k++) value_wanted(walk, at->x[k]);
    value_made(walk, at->y);
    if (at->mask >= 0) value_made(walk, at->mask);
    for (int k = 0; k < at->saved_count && !recompute_keeps_saved(at->op); k++)
        value_made(walk, at->saved[k]);
    walk->value_count += at->sums_given + (at->workspace >= 0);
    walk->next(walk->context, i, true);
}

/* Keeps in the chain only values that were recomputed for other recomputations, and are freed after them. */
static void chain_sift(struct recompute_walk *walk, const struct instruction *at)
{
    int kept = 0;
    for (int c = 0; c < walk->chain_count; c++) {
        int value = walk->chain[c];
        bool each = walk->modes[walk->producer[value]] == RECOMPUTE_EACH;
        if (each && !ids_have(at->reads, at->read_count, value)) walk->chain[kept++] = value;
        else walk->stays[walk->stay_count++] = value;
    }
    walk->chain_count = kept;
}

static void values_forget(struct recompute_walk *walk, const int *values, int *count)
{
    for (int v = 0; v < *count; v++) walk->now[values[v]] = -1;
    *count = 0;
}

void recompute_walk(struct recompute_walk *walk)
{
    const struct program *program = walk->program;
    walk->value_count = program->value_count;
    for (int i = walk->first; i < walk->end; i++) {
        for (int w = walk->wanted_first[i]; w < walk->wanted_first[i + 1]; w++)
            value_wanted(walk, walk->wanted[w]);
        if (walk->chain_count > 0) chain_sift(walk, &program->instructions[i]);
        walk->next(walk->context, i, false);
        values_forget(walk, walk->chain, &walk->chain_count);
    }
    values_forget(walk, walk->stays, &walk->stay_count);
}

/* Which instructions read a value. */
struct readers {
    bool *by_weights, *by_others;   /* by value: backward instructions that read it */
};

static struct readers readers_open(const struct program *program)
{
    struct readers readers = {memory_new((size_t)program->value_count, sizeof(bool)),
                              memory_new((size_t)program->value_count, sizeof(bool))};
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        bool *by = at->phase == PHASE_BACKWARD_PARAMS ? readers.by_weights : readers.by_others;
        for (int k = 0; instruction_is_backward(at) && k < at->read_count; k++) by[at->reads[k]] = true;
    }
    return readers;
}

void recompute_cheap(const struct program *program, enum recompute_mode *modes)
{
    struct readers readers = readers_open(program);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        modes[i] = RECOMPUTE_NEVER;
        if (!can_recompute(program, at) || !recompute_keeps_saved(at->op) || at->x_count != 1) continue;
        if (readers.by_weights[at->y] && !readers.by_others[at->y] && readers.by_others[at->x[0]])
            modes[i] = RECOMPUTE_ONCE;
    }
    free(readers.by_weights);
    free(readers.by_others);
}

/* The state of the pass: `program` is filled with the instructions of `from`. */
struct recompute_pass {
    struct program *program;
    struct recompute_walk walk;
    struct instruction *from;
};

static void ids_replace(const struct recompute_walk *walk, int *ids, int count)
{
    for (int k = 0; k < count; k++)
        if (ids[k] >= 0 && ids[k] < walk->program->value_count && walk->now[ids[k]] >= 0)
            ids[k] = walk->now[ids[k]];
}

static void move_as_is(struct recompute_pass *pass, int i)
{
    struct instruction at = pass->from[i];
    if (instruction_is_backward(&at)) {
        ids_replace(&pass->walk, at.x, at.x_count);
        ids_replace(&pass->walk, at.saved, at.saved_count);
        ids_replace(&pass->walk, &at.y, 1);
        ids_replace(&pass->walk, &at.mask, 1);
    }
    build_push(pass->program, at);
}

static int value_recomputed(struct program *program, int id)
{
    struct value value = program->values[id];
    if (value.home == HOME_PART) value.home = HOME_ARENA;
    return build_value(program, value, text_format("%s recomputed", value.name));
}

/* Sums that forward also writes are written again, though nothing reads them, so that the same code runs. A
 * workspace whose size is already known is as large as that of forward. */
static void move_recomputed(struct recompute_pass *pass, int i)
{
    const struct instruction *forward = &pass->from[i];
    struct program *program = pass->program;
    struct instruction at = instruction_after(program, forward, PHASE_RECOMPUTE);
    value_recomputed(program, at.y);
    if (forward->mask >= 0) at.mask = value_recomputed(program, forward->mask);
    for (int k = 0; k < at.saved_count && !recompute_keeps_saved(at.op); k++)
        value_recomputed(program, at.saved[k]);
    if (forward->sums_given) {
        at.sums_given = true;
        at.sums = value_recomputed(program, forward->sums);
    }
    if (forward->workspace >= 0) at.workspace = value_recomputed(program, forward->workspace);
    ids_replace(&pass->walk, at.x, at.x_count);
    ids_replace(&pass->walk, at.saved, at.saved_count);
    ids_replace(&pass->walk, &at.y, 1);
    build_push(program, at);
}

static void move_next(void *context, int i, bool recomputed)
{
    struct recompute_pass *pass = context;
    if (recomputed) move_recomputed(pass, i);
    else move_as_is(pass, i);
}

static int first_backward(const struct program *program)
{
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->phase == PHASE_RECOMPUTE || instruction_is_backward(at)) return i;
    }
    return program->count;
}

void recompute(struct program *program, const enum recompute_mode *modes)
{
    struct program before = *program;
    struct recompute_pass pass = {.program = program, .from = program->instructions};
    pass.walk = recompute_walk_open(&before);
    pass.walk.modes = modes;
    pass.walk.next = move_next;
    pass.walk.context = &pass;
    program->instructions = NULL;
    program->count = 0;
    recompute_walk(&pass.walk);
    program->first_backward = first_backward(program);
    recompute_walk_close(&pass.walk);
    free(before.instructions);
}

int recompute_count(const struct program *program)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        count += (at->phase == PHASE_RECOMPUTE && at->kind == INSTRUCTION_OP) || at->y_recomputed >= 0;
    }
    return count;
}
