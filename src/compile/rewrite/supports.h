/* supports.h: what the code of ops can fuse: where rules ask for its capabilities (struct op_code). */
#pragma once

#include "compile/rewrite/rule.h"

enum { PACK_CHANNELS = 8 };  /* that are read at once: rows that are added begin with whole ones */

/* The code of an instruction's op; if there is none, code without capabilities. */
const struct op_code *supports_code(code_lookup *code_of, const struct instruction *at);

/* Whether code runs instruction i with the operand and the epilogue that the rule adds to it; OPERAND_ROLES:
 * the epilogue alone; OPERAND_D_PARAM: without the gradient of params[1]. */
bool supports(const struct match *match, int i, enum operand_role role);
/* The shape of a part of the value between the two, which the first may write and the second read instead. */
struct shape supports_part(const struct match *match, struct shape shape);
/* Whether code runs another op, which no instruction calls yet, on such an input. */
bool supports_op(const struct match *match, const struct op *op, const void *settings, const struct value *x);
