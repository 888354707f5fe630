/* bias_gradients.c: a bias's gradient is the sum, by channel, of the gradient of its op's output. The op
 * behind it, which computes that gradient, adds it up as well, so that the bias's own op need not read it
 * again. */
#include <stdlib.h>

#include "compile/rewrite/merging.h"
#include "compile/rewrite/rewrites.h"

void bias_gradients(struct program *program, code_lookup *code_of)
{
    struct value_uses *uses = value_uses(program);
    for (int i = 0; i < program->count; i++) {
        struct instruction *taker = &program->instructions[i];
        int bias = operand(taker, OPERAND_D_PARAM, 1), d_y = operand(taker, OPERAND_D_Y, 0);
        bool sums = taker->phase == PHASE_BACKWARD_PARAMS && bias >= 0 && uses[d_y].writer >= 0;
        if (!sums || !merging_code(code_of, taker)->spares_bias) continue;
        struct instruction *giver = &program->instructions[uses[d_y].writer];
        if (!merging_code(code_of, giver)->sums_gradient || giver->phase != PHASE_BACKWARD) continue;
        if (operand(giver, OPERAND_D_X, 0) != d_y || operand(giver, OPERAND_D_X_SUMS, 0) >= 0) continue;
        epilogue_add(giver, EPILOGUE_SUMS, OPERAND_D_X_SUMS, bias);
        operand_set(taker, OPERAND_D_PARAM, 1, -1);
        instruction_link(program, giver);
        instruction_link(program, taker);
    }
    free(uses);
}
