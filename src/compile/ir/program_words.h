/* program_words.h: the words of a program's text, which dump.c writes and parse.c reads; for this folder
 * only. */
#pragma once

#include "compile/ir/program.h"

/* Names by the numbers of their enums, each list ended by NULL. */
extern const char *const instruction_kind_words[], *const home_words[];
extern const char *const value_kind_words[], *const dtype_words[], *const schedule_words[];
extern const char *const operand_words[];

/* The values that the program as a whole names, by the place of their id in struct program. */
struct program_word {
    const char *name;
    size_t offset;           /* of an int */
};
extern const struct program_word program_value_words[];   /* ended by a row without a name */

/* What an operand is for its instruction: a member of struct instruction. */
enum operand_role {
    OPERAND_X, OPERAND_D_X, OPERAND_PARAM, OPERAND_D_PARAM, OPERAND_SAVED, OPERAND_Y, OPERAND_D_Y,
    OPERAND_D_Y_MORE, OPERAND_D_X_MORE, OPERAND_Y_RECOMPUTED, OPERAND_SUMS, OPERAND_Y_SUMS,
    OPERAND_X_PRODUCTS, OPERAND_Y_PRODUCTS, OPERAND_MASK, OPERAND_WORKSPACE,
};
enum access { ACCESS_SHAPE, ACCESS_READ, ACCESS_WRITE };   /* a set of the last two, or only its shape */

struct operand {
    enum operand_role role;
    int index;               /* of x, d_x, params, d_params, saved; otherwise 0 */
    int value;
    unsigned access;
};

/* The operands of an instruction, in the order of roles; the update, and what adds up squares for it, have
 * gradients that they read as D_PARAM, and parameters that it writes as PARAM. The caller frees them. */
struct operand *operands_of(const struct instruction *at, int *count);

/* Whether a role has several operands, by index. */
static inline bool operand_is_list(enum operand_role role)
{
    return role <= OPERAND_SAVED;
}

/* Gives an instruction that has none these operands, and the lists that its phase has; to be linked
 * afterwards. False, with a reason: they do not belong together. */
bool operands_set(struct instruction *at, const struct operand *operands, int count, struct reason *reason);
