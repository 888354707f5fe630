/* merge_gradients.c: merges the data and weight gradients of an op whose code computes both in one kernel,
 * which reads their common inputs once.
 *
 * If only such an op reads the output of a folded batch norm (kernels/norm/conv_batchnorm.c) with relu6, that
 * moves into it. Forward, it clips its input, which a product wrote after a relu; backward, it passes its
 * gradient through relu6 and computes its sums. Batch norm then needs no sweep of its own in either
 * direction. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"

/* The instruction of the data gradient for weight gradient i; -1. */
static int data_gradient_of(const struct merging *m, int i)
{
    const struct instruction *weights = &m->program->instructions[i];
    for (int j = i + 1; j < m->program->count; j++) {
        const struct instruction *at = &m->program->instructions[j];
        if (at->op == weights->op && at->phase == PHASE_BACKWARD_DATA && at->y == weights->y)
            return at->d_y == weights->d_y && at->d_x_more < 0 ? j : -1;
    }
    return -1;
}

static bool can_merge(const struct merging *m, int i)
{
    const struct instruction *at = &m->program->instructions[i];
    const struct op_code *code = merging_code(m->code_of, at);
    struct call_storage storage;
    if (at->phase != PHASE_BACKWARD_PARAMS || !code->backs_together) return false;
    struct call call = program_call(m->program, i, &storage);
    return code->backs_together(&call);
}

/* Whether only the instructions `own` and `other`, and forward calls of own's node, read `value`. */
static bool is_read_by(const struct merging *m, int value, int own, int other)
{
    int node = m->program->instructions[own].node;
    for (int i = 0; i < m->program->count; i++) {
        const struct instruction *at = &m->program->instructions[i];
        bool forward = at->phase == PHASE_FORWARD && at->node == node;
        if (i != own && i != other && !forward && ids_have(at->reads, at->read_count, value)) return false;
    }
    return true;
}

static bool has_relu6(const struct merging *m, const struct instruction *at)
{
    const struct op_code *code = merging_code(m->code_of, at);
    return code->clips_later && code->takes_joined && at->x_count == 1 && code->clips_later(at->settings);
}

static int clipped_sums_new(struct program *program, const struct instruction *taker)
{
    const struct value *y = &program->values[taker->y];
    struct value value = {.home = HOME_ARENA, .kind = KIND_OTHER, .dtype = F32, .node = taker->node,
                          .index = -1, .shape = {.rank = 2, .dim = {1, y->shape.c, 1, 1}}};
    return build_value(program, value, text_format("d %s sums", y->name));
}

static void set_clips(struct merging *m, int value)
{
    for (int i = 0; i < m->program->count; i++) {
        struct instruction *at = &m->program->instructions[i];
        bool forward = at->phase == PHASE_FORWARD && (at->y == value || ids_have(at->x, at->x_count, value));
        if (forward) at->clips = true;
    }
}

/* Moves relu6 from the batch norm in front into instruction i, whose data gradient `data` writes. */
static void take_relu6(struct merging *m, int i, int data)
{
    struct instruction *giver = &m->program->instructions[i];
    int y = giver->x[0], d_y = giver->d_x[0];
    if (m->uses[d_y].writer != data || m->uses[d_y].reader < 0 || m->uses[y].writer < 0) return;
    struct instruction *taker = &m->program->instructions[m->uses[d_y].reader];
    if (taker->phase != PHASE_BACKWARD || taker->y != y || taker->d_y != d_y || taker->d_y_more >= 0) return;
    if (taker->sums >= 0 || !has_relu6(m, taker) || !is_read_by(m, y, i, m->uses[d_y].reader)) return;
    set_clips(m, y);
    giver->clips = true;
    giver->sums = taker->sums = clipped_sums_new(m->program, taker);
    giver->sums_given = true;
    instruction_link(m->program, taker);
}

static void merge_at(struct merging *m, int i)
{
    int j = can_merge(m, i) ? data_gradient_of(m, i) : -1;
    if (j < 0) return;
    struct instruction *at = &m->program->instructions[i];
    const struct instruction *data = &m->program->instructions[j];
    free(at->name);
    at->name = instruction_name(m->program, at->node, PHASE_BACKWARD);
    at->phase = PHASE_BACKWARD;
    free(at->d_x);
    at->d_x = ids_copy(data->d_x, data->x_count);
    m->gone[j] = true;
    take_relu6(m, i, j);
    instruction_link(m->program, at);
}

void merge_gradients(struct program *program, code_lookup *code_of)
{
    struct merging m = merging_open(program, code_of);
    for (int i = 0; i < program->count; i++) merge_at(&m, i);
    merging_close(&m);
}
