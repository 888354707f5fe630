/* fuse_relu.c: a relu behind an op whose code applies it, such as a convolution's, becomes part of the op's
 * forward: what it would read is then never stored. Backward stays as it is: it reads what relu wrote. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"
#include "compile/rewrites.h"

/* Nothing reads `from` any more; instructions that refer to its shape refer to that of `to`. */
static void value_replace(struct program *program, int from, int to)
{
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        for (int k = 0; k < at->x_count; k++)
            if (at->x[k] == from) at->x[k] = to;
        if (at->y == from) at->y = to;
    }
}

/* Makes a relu part of the preceding op if possible; returns whether it did. */
static bool fuse_pair(struct program *program, const struct value_uses *uses, int i,
                      code_lookup *code_of)
{
    const struct instruction *relu = &program->instructions[i];
    if (relu->op != build_op("relu") || relu->phase != PHASE_FORWARD) return false;
    const struct value_uses *use = &uses[relu->x[0]];
    if (use->reader != i || use->writer < 0) return false;
    struct instruction *giver = &program->instructions[use->writer];
    const struct op_code *code = giver->op ? code_of(giver->op) : NULL;
    if (!code || !code->applies_relu || giver->phase != PHASE_FORWARD || giver->sums >= 0) return false;
    giver->relu = true;
    value_replace(program, relu->x[0], relu->y);
    instruction_link(program, giver);
    return true;
}

void fuse_relu(struct program *program, code_lookup *code_of)
{
    struct value_uses *uses = value_uses(program);
    bool *gone = memory_new((size_t)program->count, sizeof *gone);
    for (int i = 0; i < program->count; i++) gone[i] = fuse_pair(program, uses, i, code_of);
    build_remove(program, gone);
    free(uses);
    free(gone);
}
