/* rule.h: rules that fuse two instructions, of which the first writes a value that the second one reads, and
 * the engine that applies them. The rows are in rules.c; a fusion that is no such pair is a pass.
 *
 * A rule
 *   - changes the two instructions and the value between them alone, and may add values. Either may go.
 *   - does not ask what code can do: the engine asks the ops' code whether it supports the calls that the two
 *     have become (op_code.supports), and otherwise takes everything back.
 *   - keeps types: what one writes in the place of the other has the same type; values that are added are
 *     fp32 sums, or masks.
 *   - makes the program smaller: an instruction goes, a value has fewer elements, one of the two gets an
 *     operand or epilogue of which it has at most one, or becomes an op that no rule changes back. So the
 *     engine, which goes on until no rule changes anything, ends.
 *   - does not look across micro-batches, stages or recomputation: the engine compares micro-batches; what
 *     crosses stages is a message, which no rule is about; and recomputation comes after all rules. So a step
 *     is fused in the same way however it is divided.
 *   - does not know the memory limit, which must not change a bit.
 *
 * The engine visits instructions in order, each as the second of two, and tries all rows in order, so a
 * specific one stands before a general one. It does so again until nothing changes. */
#pragma once

#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

/* One of the two, and the role that the value between them has there, with index 0; or any input of a sum,
 * an addition or a concatenation, also one that is part of an op. */
struct rule_end {
    const char *op;          /* NULL: any */
    enum phase phase;
    enum operand_role role;
};

/* Additions: to the first an epilogue (EPILOGUE_KINDS: none) with its operand, to the second an operand
 * (OPERAND_ROLES: none). Neither has it yet. */
struct rule_addition {
    enum epilogue_kind epilogue;
    enum operand_role first, second;
};

enum {
    RULE_SINGLE_USE = 1,     /* nobody else reads the value */
    RULE_UNDIVIDED = 2,      /* no stage of a pipeline ends between the two, whether or not code supports the
                              * change: unfused, results would be rounded, or summed, in another order */
};

struct match;
struct rule {
    const char *pass, *name;
    struct rule_end first, second;
    unsigned between;        /* RULE_... */
    struct rule_addition adds;
    bool (*apply)(struct match *match);   /* makes the change; false: the rule is not about these two */
};
const struct rule *rules_table(int *count);        /* those of a pass are next to each other */
const struct rule *rules_find(const char *name);   /* NULL: there is none */

/* How often a value is written and read by others than the two. */
struct rule_use {
    int writes, reads;
    int writer;              /* the last one; -1: none */
};

struct match {
    struct program *program;
    const struct rule_options *options;
    const struct rule *rule;
    const struct rule_use *uses;     /* by value */
    struct instruction *first, *second;
    int first_number, second_number;
    int value;               /* between the two */
    struct instruction *removed; /* rule.apply sets it: the one that goes; NULL: none */
    int shaped_as;               /* set, too: the value to whose shape others refer that referred to that of
                                  * `value`, which goes; -1: none do */
};
