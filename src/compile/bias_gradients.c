/* bias_gradients.c: a bias's gradient is the sum, by channel, of the gradient of its op's output. The op
 * behind it, which computes that gradient, adds it up as well, so that the bias's own op need not read it
 * again. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"
#include "compile/rewrites.h"

static const struct op_code *bias_code(const struct instruction *at,
                                       code_lookup *code_of)
{
    static const struct op_code none = {.forward = NULL};
    const struct op_code *code = at->op ? code_of(at->op) : NULL;
    return code ? code : &none;
}

void bias_gradients(struct program *program, code_lookup *code_of)
{
    struct value_uses *uses = value_uses(program);
    for (int i = 0; i < program->count; i++) {
        struct instruction *taker = &program->instructions[i];
        bool sums = taker->phase == PHASE_BACKWARD_PARAMS && taker->param_count > 1 &&
                    taker->d_params[1] >= 0 && uses[taker->d_y].writer >= 0;
        if (!sums || !bias_code(taker, code_of)->spares_bias) continue;
        struct instruction *giver = &program->instructions[uses[taker->d_y].writer];
        if (!bias_code(giver, code_of)->sums_gradient || giver->phase != PHASE_BACKWARD) continue;
        if (giver->d_x[0] != taker->d_y || giver->sums >= 0) continue;
        giver->sums = taker->d_params[1];
        giver->sums_given = true;
        taker->d_params[1] = -1;
        instruction_link(program, giver);
        instruction_link(program, taker);
    }
    free(uses);
}
