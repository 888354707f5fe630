#include "compile/rewrite/merging.h"

#include <stdlib.h>

#include "base/memory.h"

struct merging merging_open(struct program *program, code_lookup *code_of)
{
    return (struct merging){
        .program = program, .code_of = code_of, .uses = value_uses(program),
        .gone = memory_new((size_t)program->count, sizeof(bool)),
    };
}

void merging_close(struct merging *merging)
{
    build_remove(merging->program, merging->gone);
    free(merging->uses);
    free(merging->gone);
}

const struct op_code *merging_code(code_lookup *code_of, const struct instruction *at)
{
    static const struct op_code none = {.forward = NULL};
    const struct op_code *code = at->op ? code_of(at->op) : NULL;
    return code ? code : &none;
}
