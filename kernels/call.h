/* call.h: what the operands of a call of an op's code are for it, and what the code does to its result before
 * that is stored. A program's instructions (compile/ir/program.h) are described in these words. */
#pragma once

#include <stdint.h>

#define CALL_MAX_EPILOGUES 6

/* The role of an operand. Each call has those of the first group, as struct call says (kernels/op.h); the
 * others are there only if a pass has added them. Sums are F32, over n, h, w; c is the number of channels of
 * the tensor that they are of. */
enum operand_role {
    OPERAND_X, OPERAND_D_X, OPERAND_PARAM, OPERAND_D_PARAM, OPERAND_Y, OPERAND_D_Y, OPERAND_SAVED,
    OPERAND_D_Y_ADDEND,      /* backward adds it to d_y; of d_y's shape, or one pixel of each image, which is
                              * added to all of its pixels */
    OPERAND_D_X_ADDEND,      /* of EPILOGUE_ADD in backward: another gradient of x[0] */
    OPERAND_Y_RECOMPUTED,    /* backward of an op that backward_recomputes writes y there as forward did */
    OPERAND_X_MOMENTS,       /* [2, c]: sums of x[0] and of its squares, which forward reads */
    OPERAND_Y_MOMENTS,       /* EPILOGUE_MOMENTS writes those of y */
    OPERAND_X_SUMS,          /* [1, c]: sums of x[0] as it is stored, which forward reads; or [1 + c, c], with
                              * the sums of the products of each two channels in the rows behind them */
    OPERAND_Y_SUMS,          /* EPILOGUE_SUMS writes those of y, EPILOGUE_GRAM all rows */
    OPERAND_D_X_SUMS,        /* [1, c] or [c]: EPILOGUE_SUMS of backward writes those of d_x[0] */
    OPERAND_D_Y_SUMS,        /* [1, c]: those of d_y, which backward reads; d_y is then the gradient of the
                              * activation's argument, and of the residual */
    OPERAND_RANK_SUMS,       /* batch norm among ranks: the sums that its gradients need, [2, c], which one
                              * call of backward writes and, added up over `ranks`, another one reads */
    OPERAND_X_PRODUCTS,      /* [2, c]: EPILOGUE_PRODUCTS writes the sums of d_x[0] where x[0] is not 0, and
                              * those of d_x[0] times x[0] */
    OPERAND_Y_PRODUCTS,      /* [2, c]: those of d_y and y, which backward reads; NaN where not known */
    OPERAND_MASK,            /* U8 [n, h, w, c / 8]: bit i of byte k is 0 where channel 8 k + i of y is 0:
                              * forward and recompute write it, backward reads it instead of y. Of
                              * EPILOGUE_MULTIPLY: that of x[0] */
    OPERAND_WORKSPACE,
    OPERAND_ROLES
};
extern const char *const operand_words[];    /* "d_y_addend"; ended by NULL */

/* What code does to its result (y; in backward and backward_data d_x[0]), in the order of the call's list,
 * before it stores it. X_RELU6 comes before all others. */
enum epilogue_kind {
    EPILOGUE_X_RELU6,        /* x[0] stands for relu6 of itself */
    EPILOGUE_ADD,            /* adds the operand, which has the result's shape; or at least as many channels,
                              * the first of which it adds; or every second of its pixels in both
                              * directions */
    EPILOGUE_MULTIPLY,       /* multiplies by the operand, a mask: the result is 0 where its bit is */
    EPILOGUE_RELU,
    EPILOGUE_D_RELU6,        /* multiplies by the derivative of relu6 at x[0] */
    EPILOGUE_SUMS,           /* writes sums of the result by channel to the operand ... */
    EPILOGUE_MOMENTS,        /* ... and of its squares */
    EPILOGUE_GRAM,           /* ... and of the products of each two channels */
    EPILOGUE_PRODUCTS,       /* ... as OPERAND_X_PRODUCTS says */
    EPILOGUE_MASK,           /* writes a bit for each number, 0 where that is 0 */
    EPILOGUE_KINDS
};
extern const char *const epilogue_words[];   /* "d_gelu"; ended by NULL */

struct epilogue {
    uint8_t kind;            /* enum epilogue_kind */
    uint8_t operand;         /* enum operand_role; OPERAND_ROLES: it has none */
};
