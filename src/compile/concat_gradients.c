/* concat_gradients.c: the gradient of a concatenation's first input is the first channels of its output's
 * gradient. If it is only added to another gradient of that input, the op that computes the other one adds it
 * as it writes: neither is copied or stored by itself. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"
#include "compile/rewrites.h"

#define MULTIPLE 8           /* of channels, so that rows begin where whole packs do */

static bool can_add(const struct program *program, const struct instruction *at,
                    code_lookup *code_of)
{
    const struct op_code *code = at->op ? code_of(at->op) : NULL;
    return code && code->adds_first_channels && at->phase == PHASE_BACKWARD && at->x_count == 1 &&
           at->d_y_more < 0 && at->d_x_more < 0 && program->values[at->x[0]].shape.c % MULTIPLE == 0;
}

/* Fuses the sum that alone reads the first input's gradient with the instruction that wrote the other. */
static void fuse_first(struct program *program, const struct value_uses *uses, int i,
                       code_lookup *code_of, bool *gone)
{
    struct instruction *concat = &program->instructions[i];
    if (concat->op != build_op("concat") || concat->phase != PHASE_BACKWARD || concat->d_x[0] < 0) return;
    int first = concat->d_x[0], sum_at = uses[first].reader;
    const struct instruction *sum = sum_at < 0 ? concat : &program->instructions[sum_at];
    if (sum->op != build_op("sum") || program->values[concat->d_y].shape.c % MULTIPLE != 0) return;
    int other = sum->x[0] == first ? sum->x[1] : sum->x[0], writer = uses[other].writer;
    if (uses[other].reader != sum_at || writer < i) return;
    struct instruction *adder = &program->instructions[writer];
    if (!can_add(program, adder, code_of) || adder->d_x[0] != other) return;
    adder->d_x[0] = sum->y;
    adder->d_x_more = concat->d_y;
    concat->d_x[0] = -1;
    gone[sum_at] = true;
    instruction_link(program, adder);
    instruction_link(program, concat);
}

void concat_gradients(struct program *program, code_lookup *code_of)
{
    struct value_uses *uses = value_uses(program);
    bool *gone = memory_new((size_t)program->count, sizeof *gone);
    for (int i = 0; i < program->count; i++) fuse_first(program, uses, i, code_of, gone);
    build_remove(program, gone);
    free(uses);
    free(gone);
}
