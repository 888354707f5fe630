/* fuse_relu.c: a relu behind an op whose code applies it, such as a convolution's, becomes part of the op's
 * forward: what it would read is then never stored. Backward stays as it is: it reads what relu wrote. */
#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"

/* Nothing reads `from` any more; instructions that refer to its shape refer to that of `to`. */
static void value_replace(struct program *program, int from, int to)
{
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        for (int k = 0; k < at->operand_count; k++)
            if (at->operands[k].value == from) at->operands[k].value = to;
    }
}

/* Makes a relu part of the preceding op if possible; returns whether it did. */
static bool fuse_pair(const struct merging *m, int i)
{
    struct program *program = m->program;
    const struct instruction *relu = &program->instructions[i];
    if (relu->op != build_op("relu") || relu->phase != PHASE_FORWARD) return false;
    const struct value_uses *use = &m->uses[operand_x(relu, 0)];
    if (use->reader != i || use->writer < 0) return false;
    struct instruction *giver = &program->instructions[use->writer];
    if (!merging_code(m->code_of, giver)->applies_relu) return false;
    if (giver->phase != PHASE_FORWARD || operand(giver, OPERAND_Y_MOMENTS, 0) >= 0) return false;
    epilogue_add(giver, EPILOGUE_RELU, OPERAND_ROLES, -1);
    value_replace(program, operand_x(relu, 0), operand_y(relu));
    instruction_link(program, giver);
    return true;
}

void fuse_relu(struct program *program, code_lookup *code_of)
{
    struct merging m = merging_open(program, code_of);
    for (int i = 0; i < program->count; i++) m.gone[i] = fuse_pair(&m, i);
    merging_close(&m);
}
