/* merging.h: the state of a pass that merges instructions; for this folder only. */
#pragma once

#include "compile/ir/kernel_plans.h"
#include "compile/ir/program_parts.h"

struct merging {
    struct program *program;
    code_lookup *code_of;        /* NULL: code does not matter */
    struct value_uses *uses;     /* by value, before anything is merged */
    bool *gone;                  /* by instruction: merging_close removes it */
};
struct merging merging_open(struct program *program, code_lookup *code_of);
void merging_close(struct merging *merging);

/* The code of an instruction's op; if there is none, code that has no abilities. */
const struct op_code *merging_code(code_lookup *code_of, const struct instruction *at);
