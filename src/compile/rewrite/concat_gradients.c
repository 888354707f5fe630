/* concat_gradients.c: the gradient of a concatenation's first input is the first channels of its output's
 * gradient. If it is only added to another gradient of that input, the op that computes the other one adds it
 * as it writes: neither is copied or stored by itself. */
#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"

#define MULTIPLE 8           /* of channels, so that rows begin where whole packs do */

static bool can_add(const struct merging *m, const struct instruction *at)
{
    return merging_code(m->code_of, at)->adds_first_channels && at->phase == PHASE_BACKWARD &&
           operand_count(at, OPERAND_X) == 1 && operand(at, OPERAND_D_Y_ADDEND, 0) < 0 &&
           operand(at, OPERAND_D_X_ADDEND, 0) < 0 &&
           m->program->values[operand_x(at, 0)].shape.c % MULTIPLE == 0;
}

/* Fuses the sum that alone reads the first input's gradient with the instruction that wrote the other. */
static void fuse_first(struct merging *m, int i)
{
    struct program *program = m->program;
    struct instruction *concat = &program->instructions[i];
    int first = operand(concat, OPERAND_D_X, 0), d_y = operand(concat, OPERAND_D_Y, 0);
    if (concat->op != build_op("concat") || concat->phase != PHASE_BACKWARD || first < 0) return;
    int sum_at = m->uses[first].reader;
    const struct instruction *sum = sum_at < 0 ? concat : &program->instructions[sum_at];
    if (sum->op != build_op("sum") || program->values[d_y].shape.c % MULTIPLE != 0) return;
    int other = operand_x(sum, operand_x(sum, 0) == first), writer = m->uses[other].writer;
    if (m->uses[other].reader != sum_at || writer < i) return;
    struct instruction *adder = &program->instructions[writer];
    if (!can_add(m, adder) || operand(adder, OPERAND_D_X, 0) != other) return;
    operand_set(adder, OPERAND_D_X, 0, operand_y(sum));
    epilogue_add(adder, EPILOGUE_ADD, OPERAND_D_X_ADDEND, d_y);
    operand_set(concat, OPERAND_D_X, 0, -1);
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
