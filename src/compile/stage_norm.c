/* stage_norm.c: the norm of the gradients, by which a step is clipped or skipped, is that of all stages: each
 * measures its own gradients, and all get the squares of all before the update. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/cut.h"
#include "compile/program_parts.h"

static int value_squares(struct program *program, int stages, const char *name)
{
    int64_t chunks = program_update_chunks(program->graph, program->graph->param_count);
    struct value value = {.home = HOME_ARENA, .kind = KIND_EXCHANGE, .dtype = F32, .node = -1, .index = -1,
                          .shape = shape_vector(stages * chunks * (int64_t)(sizeof(double) / sizeof(float)))};
    return build_value(program, value, text_copy(name));
}

static struct instruction instruction_to(const struct program *program, enum instruction_kind kind,
                                         const char *name, int y)
{
    struct instruction at = instruction_new(PHASE_UPDATE, NULL, NULL, text_copy(name));
    at.kind = kind;
    at.micro_batch = program->micro_batches - 1;
    at.y = y;
    *array_push(at.writes, at.write_count) = y;
    return at;
}

static void read_value(struct instruction *at, int value)
{
    at->x = ids_copy(&value, 1);
    at->x_count = 1;
    *array_push(at->reads, at->read_count) = value;
}

static void push_norm(struct program *program, struct instruction *update)
{
    int own = value_squares(program, 1, "squares");
    int all = value_squares(program, program->stages, "all squares");
    struct instruction measure = instruction_to(program, INSTRUCTION_MEASURE, "squares of gradients", own);
    struct instruction gather = instruction_to(program, INSTRUCTION_ALL_GATHER, "squares all-gather", all);
    for (int k = 0; k < update->read_count; k++)
        *array_push(measure.reads, measure.read_count) = update->reads[k];
    read_value(&gather, own);
    gather.among_stages = true;
    build_push(program, measure);
    build_push(program, gather);
    read_value(update, all);
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
