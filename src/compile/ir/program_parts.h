/* program_parts.h: functions with which lowering and passes create values and instructions; for this folder
 * only. */
#pragma once

#include "compile/ir/program.h"

/* Appends a value and returns its id. `name` is the program's from here on; bytes are worked out. */
int build_value(struct program *program, struct value value, char *name);
/* Works out a value's bytes again, from its shape and dtype. */
void value_set_bytes(struct value *value);
/* Appends F32 [rows, channels]: sums over the pixels of a tensor of node `node`. */
int build_sums(struct program *program, int node, int rows, int64_t channels, char *name);

/* The op called `name`, which every build has. */
const struct op *build_op(const char *name);

/* Settings of an internal op, owned by the program. Frees `text`. */
const void *build_settings(struct program *program, const struct op *op, char *text);

/* An instruction without operands, of weight 1. Owns `name`. */
struct instruction instruction_new(enum phase phase, const struct op *op, const void *settings, char *name);
/* A copy, message or collective, from x to y; of a message, one of them is -1. Owns `name`. */
struct instruction instruction_transfer(enum instruction_kind kind, enum phase phase, char *name, int x,
                                        int y);
/* A call of another phase of what `forward` calls: its inputs, parameters, saved tensors, output, kernel
 * plan, and epilogues without an operand. */
struct instruction instruction_after(const struct program *program, const struct instruction *forward,
                                     enum phase phase);
/* "layer1.0.conv1 backward data": the usual name of a node's instruction; NULL: it is of no node. The caller
 * frees it. */
char *instruction_name(const struct program *program, int node, enum phase phase);
void instruction_free(struct instruction *instruction);
struct instruction instruction_copy(const struct instruction *at);
/* Its operands, to which operand_set may add others. */
struct operand *operands_copy(const struct instruction *at);
int *ids_copy(const int *ids, int count);
bool ids_have(const int *ids, int count, int id);

/* True if the op recomputes its output from what forward saved, which is then kept; otherwise forward is
 * run again, and what it saved is recomputed as well. */
bool recompute_keeps_saved(const struct op *op);

/* True if recomputing what a forward instruction writes makes this operand again. */
bool recompute_makes(const struct instruction *forward, const struct operand *o);

/* How many of its inputs recomputing what a forward instruction writes takes: all or none. */
int recompute_inputs(const struct instruction *forward);

/* Gives an instruction an operand, or another value for one that it has; -1: it has none any more. To be
 * linked again. */
void operand_set(struct instruction *at, enum operand_role role, int index, int value);
/* Values below `count` become to[value] in all operands, where that is not -1. */
void operands_replace(struct instruction *at, const int *to, int count);
/* Appends to the epilogues, with its operand, unless `role` is OPERAND_ROLES. */
void epilogue_add(struct instruction *at, enum epilogue_kind kind, enum operand_role role, int value);
bool epilogue_has(const struct instruction *at, enum epilogue_kind kind);
/* The epilogues become those of another instruction whose operands this one also has. */
void epilogues_take(struct instruction *at, const struct instruction *from);

/* Sets the accesses of the operands, and the in-place pair, from all else and what the op says. */
void instruction_link(const struct program *program, struct instruction *at);

/* Links and appends. The program owns what the instruction owns. */
void build_push(struct program *program, struct instruction instruction);

/* Takes out and frees the instructions marked in `removed`, [count]. */
void build_remove(struct program *program, const bool *removed);

/* For each value, the instruction that writes it and the one that reads it. The caller frees them. */
enum { NO_USE = -1, SEVERAL_USES = -2 };
struct value_uses {
    int writer, reader;
};
struct value_uses *value_uses(const struct program *program);

/* `from` as `dtype`: a cast instruction, appended. Returns the new value. */
int build_cast(struct program *program, int from, enum dtype dtype, int micro_batch);

/* Sets what the update reads and writes from the program's gradients. */
void optimizer_link(const struct program *program, struct instruction *update);

/* Mean and variance of x[0] by channel, of so many numbers each: value ids. Those that an update of running
 * statistics reads; two of them together, by an instruction that is appended; and others given to the update,
 * which is to be linked then. */
struct moments_value {
    int mean, variance;
    int64_t count;
};
struct moments_value moments_of(const struct program *program, const struct instruction *update);
struct moments_value moments_join(struct program *program, const struct instruction *update,
                                  const struct moments_value *a, const struct moments_value *b);
void moments_set(struct instruction *update, const struct moments_value *moments);

/* Gives every instruction the waits that order it after its dependencies; streams are set. */
void streams_wait(struct program *program);

/* happens-before: known[i * streams + l] is the last instruction on stream l that has ended when i
 * starts, -1 if none. The caller frees it. */
int *happens_before(const struct program *program);
