/* fuse_recompute.c: leaves the recomputation of an activation to the backward code of the op that produced
 * it, which reads all inputs for that anyway: one write replaces a read and a write.
 *
 * The weight gradients that read the activation then come after that backward instruction, not before the
 * data gradient that it waits for; their other inputs live longer as a result. They come even after the
 * following data gradient, so that on a separate stream they still overlap with other work: a chain that
 * waits for the last weight gradient but one (streams.c) would otherwise wait for the one that has just
 * started.
 *
 * If that exceeds the limit of live bytes, those around the peak come directly behind the backward
 * instruction, and if it still does, they are not fused. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/memory/plan.h"
#include "compile/memory/recompute.h"

/* The place of the weight gradients. */
enum place { FAR, NEAR, APART };

struct fusing {
    const struct program *program;
    int *after;              /* by instruction: the one that it now comes after; -1: it stays */
    int *makes;              /* by instruction: the one that it replaces; -1: none */
    int *until;              /* by instruction: the last whose surroundings change, if it is left out; -1 */
    int *followed;           /* by instruction: the first of those that come after it; -1: none */
    enum place *place;       /* by instruction that may be replaced */
    bool *late;              /* by value: written by an instruction that moves */
};

static struct fusing fusing_open(const struct program *program)
{
    size_t count = (size_t)program->count;
    return (struct fusing){
        .program = program,
        .after = memory_new(count, sizeof(int)),
        .makes = memory_new(count, sizeof(int)),
        .until = memory_new(count, sizeof(int)),
        .followed = memory_new(count, sizeof(int)),
        .place = memory_new(count, sizeof(enum place)),
        .late = memory_new((size_t)program->value_count, sizeof(bool)),
    };
}

static void fusing_close(struct fusing *m)
{
    free(m->after);
    free(m->makes);
    free(m->until);
    free(m->followed);
    free(m->place);
    free(m->late);
}

bool fuse_recompute_may(const struct instruction *forward)
{
    bool alone = operand_count(forward, OPERAND_X) == 1 && operand(forward, OPERAND_POOLED, 0) < 0;
    return forward->op->backward_recomputes && alone;
}

static int backward_of(const struct program *program, int again)
{
    const struct instruction *at = &program->instructions[again];
    for (int i = again + 1; i < program->count; i++) {
        const struct instruction *other = &program->instructions[i];
        if (other->phase == PHASE_BACKWARD && other->node == at->node &&
            other->micro_batch == at->micro_batch) return i;
    }
    return -1;
}

/* Only the update reads its output. */
static bool can_wait(const struct program *program, const struct instruction *at)
{
    return at->phase == PHASE_BACKWARD_PARAMS ||
           (at->op && at->phase == PHASE_FORWARD &&
            program->values[operand_y(at)].kind == KIND_PARAM_GRADIENT);
}

static bool reads_late(const struct fusing *m, const struct instruction *at)
{
    FOR_READS(o, at)
        if (m->late[o->value]) return true;
    return false;
}

static void fusing_mark(struct fusing *m, int i, bool late)
{
    const struct instruction *at = &m->program->instructions[i];
    FOR_WRITES(o, at) m->late[o->value] = m->late[value_placed(m->program, o->value)] = late;
}

/* True if all readers of what `again` writes, up to `last`, can come later; marks them. */
static bool can_move(struct fusing *m, int again, int last)
{
    const struct program *program = m->program;
    fusing_mark(m, again, true);
    for (int i = again + 1; i <= last; i++) {
        if (!reads_late(m, &program->instructions[i])) continue;
        if (i == last || m->after[i] >= 0 || !can_wait(program, &program->instructions[i])) return false;
        fusing_mark(m, i, true);
    }
    return true;
}

/* The place for them: after the next instruction of the chain, if that is of backward. */
static int place_after(const struct fusing *m, int last)
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

static void move_readers(struct fusing *m, int again, int last)
{
    int place = m->place[again] == FAR ? place_after(m, last) : last;
    m->makes[last] = again;
    m->until[again] = place;
    for (int i = again + 1; i < last; i++)
        if (reads_late(m, &m->program->instructions[i])) {
            m->after[i] = place;
            if (m->followed[place] < 0 || i < m->followed[place]) m->followed[place] = i;
        }
}

static void fusing_unmark(struct fusing *m, int again, int last)
{
    for (int i = again; i <= last; i++) fusing_mark(m, i, false);
}

static void fuse_one(struct fusing *m, int i)
{
    const struct program *program = m->program;
    const struct instruction *again = &program->instructions[i];
    if (m->place[i] == APART || again->phase != PHASE_RECOMPUTE || !again->op) return;
    if (!fuse_recompute_may(again)) return;
    int last = backward_of(program, i);
    if (last < 0 || m->makes[last] >= 0) return;
    if (operand(&program->instructions[last], OPERAND_Y_RECOMPUTED, 0) >= 0) return;
    if (can_move(m, i, last)) move_readers(m, i, last);
    fusing_unmark(m, i, last);
}

static void fuse_all(struct fusing *m)
{
    for (int i = 0; i < m->program->count; i++)
        m->after[i] = m->makes[i] = m->until[i] = m->followed[i] = -1;
    for (int i = 0; i < m->program->count; i++) fuse_one(m, i);
}

/* The new instructions, which share all lists with the old ones, except the operands of those that replace
 * another one. order[count]: the old index of each. */
static struct instruction *instructions_reordered(const struct fusing *m, int *order, int *count)
{
    const struct program *program = m->program;
    struct instruction *to = NULL;
    int ordered = 0;
    for (int i = 0; i < program->count; i++) {
        if (m->until[i] >= 0 || m->after[i] >= 0) continue;
        order[ordered++] = i;
        for (int k = m->followed[i]; k >= 0 && k < i; k++)
            if (m->after[k] == i) order[ordered++] = k;
    }
    for (*count = 0; *count < ordered;) {
        int i = order[*count];
        struct instruction *at = array_push(to, *count);
        *at = program->instructions[i];
        if (m->makes[i] < 0) continue;
        at->operands = operands_copy(at);
        operand_set(at, OPERAND_Y_RECOMPUTED, 0, operand_y(&program->instructions[m->makes[i]]));
        instruction_link(program, at);
    }
    return to;
}

/* Moves what is fused around instruction `peak` nearer, or undoes it; false: nothing is. */
static bool fusing_separate(struct fusing *m, int peak)
{
    bool any = false;
    for (int i = 0; i <= peak; i++) {
        if (m->until[i] < peak) continue;
        m->place[i]++;
        m->until[i] = -1;                /* once a round */
        any = true;
    }
    return any;
}

/* Reduces fusion around the maximum of each stretch of a micro-batch's instructions above the limit. */
static bool separate_peaks(struct fusing *m, const struct program *made, const int *order, int64_t limit)
{
    int64_t *live = plan_live_bytes(made);
    bool any = false;
    for (int t = 0, peak = -1; t < made->count; t++) {
        if (live[t] > limit && (peak < 0 || live[t] > live[peak])) peak = t;
        bool last = t + 1 == made->count || live[t + 1] <= limit ||
                    made->instructions[t + 1].micro_batch != made->instructions[t].micro_batch;
        if (peak < 0 || !last) continue;
        if (fusing_separate(m, order[peak])) any = true;
        peak = -1;
    }
    free(live);
    return any;
}

/* True if the limit required reducing a fusion. */
static bool separate_excess(struct fusing *m, int64_t limit, int *order)
{
    struct program made = *m->program;
    made.instructions = instructions_reordered(m, order, &made.count);
    bool any = separate_peaks(m, &made, order, limit);
    for (int t = 0; t < made.count; t++)
        if (m->makes[order[t]] >= 0) free(made.instructions[t].operands);
    free(made.instructions);
    return any;
}

static void put_in_order(const struct fusing *m, struct program *program, int *order)
{
    int count = program->count;
    struct instruction *from = program->instructions, *to = instructions_reordered(m, order, &program->count);
    for (int i = 0; i < count; i++) {
        if (m->until[i] >= 0) instruction_free(&from[i]);
        if (m->makes[i] >= 0) free(from[i].operands);
    }
    free(from);
    program->instructions = to;
}

void fuse_recompute(struct program *program, int64_t limit)
{
    struct fusing m = fusing_open(program);
    int *order = memory_new((size_t)program->count, sizeof *order);
    do fuse_all(&m);
    while (limit < INT64_MAX && separate_excess(&m, limit, order));
    put_in_order(&m, program, order);
    free(order);
    fusing_close(&m);
}
