/* recompute_merge.c: what backward of the op that made an activation can make again on its way, since it
 * reads all that this takes: one write in place of a read and a write.
 *
 * The weight gradients that read the activation then come after that backward, not before the data gradient
 * that it waits for; what they read besides lives so much longer. They come even after the data gradient
 * that follows, so that those on a lane of their own still have company: a chain that waits for the last
 * weight gradient but one (lanes.c) would else wait for the one that has only just begun. */
#include <stdlib.h>

#include "base/memory.h"
#include "graph/build.h"
#include "graph/recompute.h"

struct merging {
    struct program *program;
    int *after;              /* by instruction: the one that it now comes after; -1: it stays */
    bool *gone, *followed;   /* by instruction: it is left out; some come after it */
    bool *late;              /* by value: written by what moves */
};

bool recompute_merges(const struct instruction *forward)
{
    return forward->op->backward_remakes && forward->x_count == 1;
}

static int backward_of(const struct program *program, int again)
{
    const struct instruction *at = &program->instructions[again];
    for (int i = again + 1; i < program->count; i++) {
        const struct instruction *other = &program->instructions[i];
        if (other->phase == PHASE_BACKWARD && other->node == at->node && other->slice == at->slice) return i;
    }
    return -1;
}

/* Nobody but the update waits for what it writes. */
static bool can_wait(const struct program *program, const struct instruction *at)
{
    return at->phase == PHASE_BACKWARD_PARAMS ||
           (at->op && at->phase == PHASE_FORWARD && program->values[at->y].kind == KIND_PARAM_GRADIENT);
}

static bool reads_late(const struct merging *m, const struct instruction *at)
{
    for (int k = 0; k < at->read_count; k++)
        if (m->late[at->reads[k]]) return true;
    return false;
}

static void mark(struct merging *m, int i, bool late)
{
    const struct instruction *at = &m->program->instructions[i];
    for (int k = 0; k < at->write_count; k++) m->late[at->writes[k]] = late;
}

/* Whether all that reads what `again` writes, up to `last`, can come later. Marks that. */
static bool can_move(struct merging *m, int again, int last)
{
    const struct program *program = m->program;
    mark(m, again, true);
    for (int i = again + 1; i <= last; i++) {
        if (!reads_late(m, &program->instructions[i])) continue;
        if (i == last || m->after[i] >= 0 || !can_wait(program, &program->instructions[i])) return false;
        mark(m, i, true);
    }
    return true;
}

/* Where that comes: after the next instruction of the chain, if it is backward's. */
static int place_after(const struct merging *m, int last)
{
    const struct program *program = m->program;
    for (int i = last + 1; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (reads_late(m, at)) return last;
        if (m->after[i] >= 0 || at->phase == PHASE_RECOMPUTE || can_wait(program, at)) continue;
        return at->phase == PHASE_BACKWARD || at->phase == PHASE_BACKWARD_DATA ? i : last;
    }
    return last;
}

static void move_readers(struct merging *m, int again, int last)
{
    int place = place_after(m, last);
    for (int i = again + 1; i < last; i++)
        if (reads_late(m, &m->program->instructions[i])) {
            m->after[i] = place;
            m->followed[place] = true;
        }
}

static void unmark(struct merging *m, int again, int last)
{
    for (int i = again; i <= last; i++) mark(m, i, false);
}

static void merge_again(struct merging *m, int i)
{
    struct program *program = m->program;
    struct instruction *again = &program->instructions[i];
    if (again->phase != PHASE_RECOMPUTE || !again->op || !recompute_merges(again)) return;
    int last = backward_of(program, i);
    if (last < 0 || program->instructions[last].y_again >= 0) return;
    m->gone[i] = can_move(m, i, last);
    if (m->gone[i]) {
        move_readers(m, i, last);
        program->instructions[last].y_again = again->y;
        instruction_link(program, &program->instructions[last]);
    }
    unmark(m, i, last);
}

static void put_in_order(struct merging *m)
{
    struct program *program = m->program;
    struct instruction *from = program->instructions;
    int count = program->count;
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < count; i++) {
        if (m->gone[i]) instruction_free(&from[i]);
        if (m->gone[i] || m->after[i] >= 0) continue;
        *array_push(program->instructions, program->count) = from[i];
        for (int k = 0; m->followed[i] && k < i; k++)
            if (m->after[k] == i) *array_push(program->instructions, program->count) = from[k];
    }
    free(from);
}

void recompute_merge(struct program *program)
{
    struct merging m = {.program = program};
    m.after = memory_new((size_t)program->count, sizeof *m.after);
    m.gone = memory_new((size_t)program->count, sizeof *m.gone);
    m.followed = memory_new((size_t)program->count, sizeof *m.followed);
    m.late = memory_new((size_t)program->value_count, sizeof *m.late);
    for (int i = 0; i < program->count; i++) m.after[i] = -1;
    for (int i = 0; i < program->count; i++) merge_again(&m, i);
    put_in_order(&m);
    free(m.after);
    free(m.gone);
    free(m.followed);
    free(m.late);
}
