/* stage_norm.c: makes the gradient norm, by which a step is clipped or skipped, that of all stages: each
 * stage computes the squares of its own gradients, and all gather them before the update. So when a stage
 * ends its step, all others have read what it has sent (HOME_MAIL). */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

static int value_squares(struct program *program, int stages, const char *name)
{
    int64_t chunks = program_update_chunks(program->graph, program->graph->param_count);
    struct value value = {.home = HOME_ARENA, .kind = KIND_EXCHANGE, .dtype = F32, .node = -1, .index = -1,
                          .shape = shape_vector(stages * chunks * (int64_t)(sizeof(double) / sizeof(float)))};
    return build_value(program, value, text_copy(name));
}

static void push_norm(struct program *program, struct instruction *update)
{
    int own = value_squares(program, 1, "squares");
    int all = value_squares(program, program->stages, "all squares");
    struct instruction measure = instruction_new(PHASE_UPDATE, NULL, NULL, text_copy("squares of gradients"));
    struct instruction gather = instruction_transfer(INSTRUCTION_ALL_GATHER, PHASE_UPDATE,
                                                     text_copy("squares all-gather"), own, all);
    measure.kind = INSTRUCTION_MEASURE;
    measure.micro_batch = gather.micro_batch = update->micro_batch;
    FOR_OPERANDS(o, update)
        if (o->role == OPERAND_D_PARAM) operand_set(&measure, OPERAND_D_PARAM, (int)o->index, o->value);
    operand_set(&measure, OPERAND_Y, 0, own);
    gather.among_stages = true;
    build_push(program, measure);
    build_push(program, gather);
    operand_set(update, OPERAND_X, 0, all);
}

void stage_norm(struct program *program)
{
    struct instruction *from = program->instructions;
    int count = program->count;
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < count; i++) {
        if (from[i].kind == INSTRUCTION_UPDATE) push_norm(program, &from[i]);
        build_push(program, from[i]);
    }
    free(from);
}
