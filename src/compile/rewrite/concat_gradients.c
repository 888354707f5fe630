/* concat_gradients.c: gradients of a value that are only added to each other, where the op that computes the
 * later one can add the other as it writes. The gradient of a concatenation's first input is the first
 * channels of its output's gradient: that is then not even copied. */
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

/* Fuses a sum with the instruction that wrote the later of its two gradients. */
static void fuse_sum(struct merging *m, int i)
{
    struct program *program = m->program;
    const struct instruction *sum = &program->instructions[i];
    if (m->gone[i] || sum->op != build_op("sum") || operand_count(sum, OPERAND_X) != 2) return;
    int first = operand_x(sum, 0), second = operand_x(sum, 1);
    if (first == second || m->uses[first].writer < 0 || m->uses[second].writer < 0) return;
    bool ordered = m->uses[first].writer < m->uses[second].writer;
    int earlier = ordered ? first : second, later = ordered ? second : first;
    struct instruction *adder = &program->instructions[m->uses[later].writer];
    if (m->uses[later].reader != i || !can_add(m, adder) || operand(adder, OPERAND_D_X, 0) != later) return;
    operand_set(adder, OPERAND_D_X, 0, operand_y(sum));
    epilogue_add(adder, EPILOGUE_ADD, OPERAND_D_X_ADDEND, earlier);
    m->gone[i] = true;
    instruction_link(program, adder);
}

void concat_gradients(struct program *program, code_lookup *code_of)
{
    struct merging m = merging_open(program, code_of);
    for (int i = 0; i < program->count; i++) fuse_first(&m, i);
    for (int i = 0; i < program->count; i++) fuse_sum(&m, i);
    merging_close(&m);
}
