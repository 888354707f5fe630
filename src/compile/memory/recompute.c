/* recompute.c: recomputes activations in the backward pass instead of keeping them from forward. */
#include "compile/memory/recompute.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"

static bool can_recompute(const struct program *program, const struct instruction *at)
{
    return at->phase == PHASE_FORWARD && at->op && program->values[operand_y(at)].kind == KIND_ACTIVATION &&
           program->values[operand_y(at)].home == HOME_ARENA;
}

bool recompute_makes(const struct instruction *forward, const struct operand *o)
{
    enum operand_access access = operand_rows[o->role].recompute;
    bool writes = access == CALL_WRITE || (access == CALL_KEPT && !recompute_keeps_saved(forward->op));
    return writes && !operand_is_extra(o);
}

/* True for sums and workspaces that an instruction which runs again writes although nothing reads them:
 * moments are written so that the same code runs as in forward. */
static bool writes_extra(const struct operand *o)
{
    return operand_rows[o->role].recompute == CALL_WRITE && operand_is_extra(o);
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
        if (!instruction_is_backward(at)) continue;
        FOR_READS(o, at)
            if (walk->producer[o->value] >= 0) *array_push(walk->wanted, count) = o->value;
    }
    walk->wanted_first[program->count] = count;
}

static void again_add(struct recompute_walk *walk, int *count, int value)
{
    *array_push(walk->again_values, walk->again_count) = value;
    (*count)++;
}

/* Notes what it reads, but for parameters, and then what it makes. */
static void again_note(struct recompute_walk *walk, int i)
{
    const struct instruction *at = &walk->program->instructions[i];
    struct recompute_again again = {.first = walk->again_count};
    bool reads_x = recompute_inputs(at) > 0;
    FOR_OPERANDS(o, at) {
        enum operand_access access = operand_rows[o->role].recompute;
        bool reads = access == CALL_ASKED ? reads_x : access == CALL_READ && o->role != OPERAND_PARAM;
        if (access == CALL_KEPT) reads = !recompute_makes(at, o);
        if (reads) again_add(walk, &again.reads, o->value);
    }
    FOR_OPERANDS(o, at) {
        if (recompute_makes(at, o)) again_add(walk, &again.made, o->value);
        again.others += writes_extra(o);
    }
    walk->again[i] = again;
}

struct recompute_walk recompute_walk_open(const struct program *program)
{
    size_t values = (size_t)program->value_count;
    struct recompute_walk walk = {.program = program, .end = program->count};
    walk.producer = memory_new(values, sizeof *walk.producer);
    walk.now = memory_new(values, sizeof *walk.now);
    walk.chain = memory_new(values, sizeof *walk.chain);
    walk.stays = memory_new(values, sizeof *walk.stays);
    walk.again = memory_new((size_t)program->count + 1, sizeof *walk.again);
    walk.wanted_first = memory_new((size_t)program->count + 1, sizeof *walk.wanted_first);
    for (int v = 0; v < program->value_count; v++) walk.producer[v] = walk.now[v] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!can_recompute(program, at)) continue;
        again_note(&walk, i);
        for (int k = 0; k < walk.again[i].made; k++) walk.producer[recompute_made_of(&walk, i)[k]] = i;
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
    free(walk->again);
    free(walk->again_values);
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
    const struct recompute_again *again = &walk->again[i];
    const int *reads = recompute_reads_of(walk, i), *made = recompute_made_of(walk, i);
    for (int k = 0; k < again->reads; k++) value_wanted(walk, reads[k]);
    for (int k = 0; k < again->made; k++) value_made(walk, made[k]);
    walk->value_count += again->others;
    walk->next(walk->context, i, true);
}

/* Keeps in the chain only values that were recomputed for other recomputations, and are freed after them. */
static void chain_sift(struct recompute_walk *walk, int i)
{
    const int *wanted = walk->wanted + walk->wanted_first[i];
    int wanted_count = walk->wanted_first[i + 1] - walk->wanted_first[i];
    int kept = 0;
    for (int c = 0; c < walk->chain_count; c++) {
        int value = walk->chain[c];
        bool each = walk->modes[walk->producer[value]] == RECOMPUTE_EACH;
        if (each && !ids_have(wanted, wanted_count, value)) walk->chain[kept++] = value;
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
        if (walk->chain_count > 0) chain_sift(walk, i);
        walk->next(walk->context, i, false);
        values_forget(walk, walk->chain, &walk->chain_count);
    }
    values_forget(walk, walk->stays, &walk->stay_count);
}

/* Readers of values. */
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
        FOR_READS(o, at)
            if (instruction_is_backward(at)) by[o->value] = true;
    }
    return readers;
}

void recompute_cheap(const struct program *program, enum recompute_mode *modes)
{
    struct readers readers = readers_open(program);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        modes[i] = RECOMPUTE_NEVER;
        if (!can_recompute(program, at)) continue;
        if (!at->op->backward_recomputes && !recompute_keeps_saved(at->op)) continue;
        int x = operand_x(at, 0), y = operand_y(at);
        if (operand_count(at, OPERAND_X) == 1 && readers.by_weights[y] && !readers.by_others[y] &&
            readers.by_others[x])
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

static void move_as_is(struct recompute_pass *pass, int i)
{
    struct instruction at = pass->from[i];
    if (instruction_is_backward(&at)) operands_replace(&at, pass->walk.now, pass->walk.program->value_count);
    build_push(pass->program, at);
}

static int value_recomputed(struct program *program, int id)
{
    struct value value = program->values[id];
    if (value.home == HOME_PART) value.home = HOME_ARENA;
    return build_value(program, value, text_format("%s recomputed", value.name));
}

/* A workspace whose size is already known is as large as that of forward. */
static void move_recomputed(struct recompute_pass *pass, int i)
{
    const struct instruction *forward = &pass->from[i];
    struct program *program = pass->program;
    struct instruction at = instruction_after(program, forward, PHASE_RECOMPUTE);
    FOR_OPERANDS(o, forward) {
        if (operand_rows[o->role].recompute == CALL_SHAPE) continue;
        if (recompute_makes(forward, o)) value_recomputed(program, o->value);
        operand_set(&at, (enum operand_role)o->role, (int)o->index, o->value);
    }
    FOR_OPERANDS(o, forward)
        if (writes_extra(o))
            operand_set(&at, (enum operand_role)o->role, 0, value_recomputed(program, o->value));
    operands_replace(&at, pass->walk.now, pass->walk.program->value_count);
    epilogues_take(&at, forward);
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
        bool whole = at->phase == PHASE_RECOMPUTE && at->kind == INSTRUCTION_OP;
        count += whole || operand(at, OPERAND_Y_RECOMPUTED, 0) >= 0;
    }
    return count;
}
