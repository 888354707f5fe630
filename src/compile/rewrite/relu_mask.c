/* relu_mask.c: where the backward pass only needs to know which elements of an activation are 0, the forward
 * pass also writes a bit mask, which backward reads instead: a sixteenth of the bytes, in a separate
 * value. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

/* Whether instruction i is a backward that would read the mask instead of y. */
static bool masks(const struct program *program, int i, code_lookup *code_of)
{
    const struct instruction *at = &program->instructions[i];
    if (!at->op || !at->op->masks || at->phase != PHASE_BACKWARD) return false;
    const struct op_code *code = code_of(at->op);
    struct call_storage storage;
    return code && code->keeps_mask && at->op->masks(at->settings, program_call(program, i, &storage).x);
}

static int mask_new(struct program *program, const struct instruction *forward)
{
    const struct value *y = &program->values[operand_y(forward)];
    struct value value = {.home = HOME_ARENA, .kind = KIND_SAVED, .dtype = U8, .node = forward->node,
                          .index = -1, .shape = y->shape};
    value.shape.c /= 8;
    return build_value(program, value, text_format("%s mask", y->name));
}

void relu_mask(struct program *program, code_lookup *code_of)
{
    int *writer = memory_new((size_t)program->value_count, sizeof *writer);
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        int y = operand_y(at);
        if (at->op && at->phase == PHASE_FORWARD) writer[y] = i + 1;
        if (!masks(program, i, code_of) || writer[y] == 0) continue;
        struct instruction *forward = &program->instructions[writer[y] - 1];
        if (forward->op != at->op) continue;
        int mask = mask_new(program, forward);
        epilogue_add(forward, EPILOGUE_MASK, OPERAND_MASK, mask);
        operand_set(at, OPERAND_MASK, 0, mask);
        instruction_link(program, forward);
        instruction_link(program, at);
    }
    free(writer);
}
