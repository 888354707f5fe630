/* recompute.c: activations that are made again in backward instead of being kept from forward. */
#include "compile/recompute.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"

static bool is_backward(const struct instruction *at)
{
    switch (at->phase) {
    case PHASE_BACKWARD:
    case PHASE_BACKWARD_DATA:
    case PHASE_BACKWARD_PARAMS: return true;
    case PHASE_FORWARD:
    case PHASE_UPDATE:
    case PHASE_RECOMPUTE:
    case PHASE_COUNT: break;
    }
    return false;
}

static bool can_remake(const struct program *program, const struct instruction *at)
{
    return at->phase == PHASE_FORWARD && at->op && program->values[at->y].kind == KIND_ACTIVATION &&
           program->values[at->y].home == HOME_ARENA;
}

/* A value that may have to be recomputed for backward. */
static void wanted_note(struct remade *remade)
{
    const struct program *program = remade->program;
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        remade->wanted_first[i] = count;
        for (int k = 0; is_backward(at) && k < at->read_count; k++)
            if (remade->producer[at->reads[k]] >= 0) *array_push(remade->wanted, count) = at->reads[k];
    }
    remade->wanted_first[program->count] = count;
}

struct remade remade_open(const struct program *program)
{
    size_t values = (size_t)program->value_count;
    struct remade remade = {.program = program};
    remade.producer = memory_new(values, sizeof *remade.producer);
    remade.now = memory_new(values, sizeof *remade.now);
    remade.chain = memory_new(values, sizeof *remade.chain);
    remade.wanted_first = memory_new((size_t)program->count + 1, sizeof *remade.wanted_first);
    for (int v = 0; v < program->value_count; v++) remade.producer[v] = remade.now[v] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!can_remake(program, at)) continue;
        remade.producer[at->y] = i;
        for (int k = 0; k < at->saved_count && !remake_keeps_saved(at->op); k++)
            remade.producer[at->saved[k]] = i;
    }
    wanted_note(&remade);
    return remade;
}

void remade_close(struct remade *remade)
{
    free(remade->producer);
    free(remade->now);
    free(remade->chain);
    free(remade->wanted);
    free(remade->wanted_first);
}

/* Made once more for the sake of what else is made with it, a value that is there stays. */
static void value_made(struct remade *remade, int value)
{
    if (remade->now[value] < 0) remade->chain[remade->chain_count++] = value;
    remade->now[value] = remade->value_count++;
}

/* Sees to it that `value` is there: it is kept, or made again, after what that needs. */
static void value_wanted(struct remade *remade, int value)
{
    int i = remade->producer[value];
    if (i < 0 || remade->remake[i] == REMAKE_NOT || remade->now[value] >= 0) return;
    const struct instruction *at = &remade->program->instructions[i];
    for (int k = 0; k < at->x_count; k++) value_wanted(remade, at->x[k]);
    value_made(remade, at->y);
    for (int k = 0; k < at->saved_count && !remake_keeps_saved(at->op); k++)
        value_made(remade, at->saved[k]);
    remade->value_count += at->sums_given + (at->workspace >= 0);
    remade->next(remade->context, i, true);
}

/* Leaves in the chain what was made for the sake of remaking alone and is not to be kept. */
static void chain_sift(struct remade *remade, const struct instruction *at)
{
    int kept = 0;
    for (int c = 0; c < remade->chain_count; c++) {
        int value = remade->chain[c];
        bool each = remade->remake[remade->producer[value]] == REMAKE_EACH;
        if (each && !ids_have(at->reads, at->read_count, value)) remade->chain[kept++] = value;
    }
    remade->chain_count = kept;
}

static void chain_forget(struct remade *remade)
{
    for (int c = 0; c < remade->chain_count; c++) remade->now[remade->chain[c]] = -1;
    remade->chain_count = 0;
}

void remade_walk(struct remade *remade)
{
    const struct program *program = remade->program;
    remade->value_count = program->value_count;
    remade->chain_count = 0;
    for (int v = 0; v < program->value_count; v++) remade->now[v] = -1;
    for (int i = remade->first; i < program->count; i++) {
        for (int w = remade->wanted_first[i]; w < remade->wanted_first[i + 1]; w++)
            value_wanted(remade, remade->wanted[w]);
        if (remade->chain_count > 0) chain_sift(remade, &program->instructions[i]);
        remade->next(remade->context, i, false);
        chain_forget(remade);
    }
}

/* Results of a pass over the values' readers. */
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
        for (int k = 0; is_backward(at) && k < at->read_count; k++) by[at->reads[k]] = true;
    }
    return readers;
}

void recompute_cheap(const struct program *program, enum remake *remake)
{
    struct readers readers = readers_open(program);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        remake[i] = REMAKE_NOT;
        if (!can_remake(program, at) || !remake_keeps_saved(at->op) || at->x_count != 1) continue;
        if (readers.by_weights[at->y] && !readers.by_others[at->y] && readers.by_others[at->x[0]])
            remake[i] = REMAKE_ONCE;
    }
    free(readers.by_weights);
    free(readers.by_others);
}

/* The pass under way: `program` is being filled with the instructions of `from`. */
struct pass {
    struct program *program;
    struct remade remade;
    struct instruction *from;
};

static void ids_replace(const struct remade *remade, int *ids, int count)
{
    for (int k = 0; k < count; k++)
        if (ids[k] >= 0 && ids[k] < remade->program->value_count && remade->now[ids[k]] >= 0)
            ids[k] = remade->now[ids[k]];
}

static void move_as_is(struct pass *pass, int i)
{
    struct instruction at = pass->from[i];
    if (is_backward(&at)) {
        ids_replace(&pass->remade, at.x, at.x_count);
        ids_replace(&pass->remade, at.saved, at.saved_count);
        ids_replace(&pass->remade, &at.y, 1);
    }
    build_push(pass->program, at);
}

static int value_again(struct program *program, int id)
{
    struct value value = program->values[id];
    if (value.home == HOME_PART) value.home = HOME_ARENA;
    return build_value(program, value, text_format("%s again", value.name));
}

/* Sums that forward gives besides are given again and read by nobody: so it is sure to run the same code.
 * A workspace, where it is known already, is taken to be as large as forward's. */
static void move_again(struct pass *pass, int i)
{
    const struct instruction *forward = &pass->from[i];
    struct program *program = pass->program;
    struct instruction at = instruction_after(program, forward, PHASE_RECOMPUTE, "again");
    value_again(program, at.y);
    for (int k = 0; k < at.saved_count && !remake_keeps_saved(at.op); k++) value_again(program, at.saved[k]);
    if (forward->sums_given) {
        at.sums_given = true;
        at.sums = value_again(program, forward->sums);
    }
    if (forward->workspace >= 0) at.workspace = value_again(program, forward->workspace);
    ids_replace(&pass->remade, at.x, at.x_count);
    ids_replace(&pass->remade, at.saved, at.saved_count);
    ids_replace(&pass->remade, &at.y, 1);
    build_push(program, at);
}

static void move_next(void *context, int i, bool again)
{
    struct pass *pass = context;
    if (again) move_again(pass, i);
    else move_as_is(pass, i);
}

static int first_backward(const struct program *program)
{
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->phase == PHASE_RECOMPUTE || is_backward(at)) return i;
    }
    return program->count;
}

void recompute(struct program *program, const enum remake *remake)
{
    struct program before = *program;
    struct pass pass = {.program = program, .from = program->instructions};
    pass.remade = remade_open(&before);
    pass.remade.remake = remake;
    pass.remade.next = move_next;
    pass.remade.context = &pass;
    program->instructions = NULL;
    program->count = 0;
    remade_walk(&pass.remade);
    program->first_backward = first_backward(program);
    remade_close(&pass.remade);
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
