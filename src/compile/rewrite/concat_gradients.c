/* concat_gradients.c: the gradient of a concatenation's first input is the first channels of its output's
 * gradient. If it is only added to another gradient of that input, the op that computes the other one adds it
 * as it writes: neither is copied or stored by itself. */
#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"

#define MULTIPLE 8           /* of channels, so that rows begin where whole packs do */

static bool can_add(const struct merging *m, const struct instruction *at)
{
    return merging_code(m->code_of, at)->adds_first_channels && at->phase == PHASE_BACKWARD &&
           at->x_count == 1 && at->d_y_more < 0 && at->d_x_more < 0 &&
           m->program->values[at->x[0]].shape.c % MULTIPLE == 0;
}

/* Fuses the sum that alone reads the first input's gradient with the instruction that wrote the other. */
static void fuse_first(struct merging *m, int i)
{
    struct program *program = m->program;
    struct instruction *concat = &program->instructions[i];
    if (concat->op != build_op("concat") || concat->phase != PHASE_BACKWARD || concat->d_x[0] < 0) return;
    int first = concat->d_x[0], sum_at = m->uses[first].reader;
    const struct instruction *sum = sum_at < 0 ? concat : &program->instructions[sum_at];
    if (sum->op != build_op("sum") || program->values[concat->d_y].shape.c % MULTIPLE != 0) return;
    int other = sum->x[0] == first ? sum->x[1] : sum->x[0], writer = m->uses[other].writer;
    if (m->uses[other].reader != sum_at || writer < i) return;
    struct instruction *adder = &program->instructions[writer];
    if (!can_add(m, adder) || adder->d_x[0] != other) return;
    adder->d_x[0] = sum->y;
    adder->d_x_more = concat->d_y;
    concat->d_x[0] = -1;
    m->gone[sum_at] = true;
    instruction_link(program, adder);
    instruction_link(program, concat);
}

void concat_gradients(struct program *program, code_lookup *code_of)
{
    struct merging m = merging_open(program, code_of);
    for (int i = 0; i < program->count; i++) fuse_first(&m, i);
    merging_close(&m);
}
