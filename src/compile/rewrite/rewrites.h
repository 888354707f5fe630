/* rewrites.h: the passes that have no types of their own, in the order of the table in passes.c; each is in
 * the file of its name. Those that fuse two instructions each are rows of rules.c; the others are in lower.h,
 * buckets.h, cut.h, offload.h and recompute.h. */
#pragma once

#include "compile/ir/kernel_plans.h"

/* Sets dtypes by class, and inserts casts where they differ. */
void autocast(struct program *program);

/* Fuses instructions by the rules of a pass, or by the one of that name. */
struct rule_options {
    const struct kernel_options *kernels;
    int64_t fold_least;      /* least numbers of a result that fold_conv_batchnorm folds */
};
void rules_apply(struct program *program, const char *name, const struct rule_options *options);
/* Reports each two instructions that an undivided rule is about. */
typedef void rules_found(void *context, const struct instruction *first, const struct instruction *second);
void rules_undivided(const struct program *program, rules_found *found, void *context);

/* Adds backward, after each micro-batch's forward, in reverse. In differentiate.c. */
void backward(struct program *program);
/* Gives the update scratch memory; 0: none. */
void update_set_workspace(struct program *program, int64_t bytes);

/* A step's updates of running statistics, one for each micro-batch, become one. */
void running_statistics(struct program *program);

/* The gradients of data and weights become one instruction where code backs_together. Where that reads the
 * output of a folded batch norm, relu6 moves there from it, forward and backward. Before cut: stages have the
 * instructions of a program that is not cut. */
void fuse_data_and_weight_gradients(struct program *program, const struct kernel_options *kernels);

/* Ranks normalise micro-batches of the same number together, in a program of one of several. */
void sync_statistics(struct program *program);

/* The moments of all ranks come in as well, in a program of one of several. */
void rank_statistics(struct program *program);

/* All stages of a pipeline update, or skip, by the norm of all gradients. */
void stage_norm(struct program *program);

/* Assigns streams. At most `count` compute, half of them weight gradients beside the chains that the other
 * half are; transfers either way and exchanges have others after those. One: exchanges are on it, transfers
 * are not. With micro-batches, the division says what a chain belongs to. In streams_within.c. */
enum stream_division { BY_MICRO_BATCH, BY_LAYER };
enum status streams_assign(struct program *program, int count, enum stream_division by);

/* Assigns streams, but where streams_can_part weight gradients stay in the chain that would bring live bytes
 * above `limit`. 0: none do. In streams_within.c. */
enum status streams_within(struct program *program, int count, enum stream_division by, int64_t limit);
/* True if a program has one chain and no exchanges. */
bool streams_can_part(const struct program *program);

/* Like streams_assign, but weight gradients may have `joined` the chain, by instruction. order[i]:
 * the old number of the instruction that is number i now. Both of program->count. In streams.c. */
void streams_arrange(struct program *program, int count, enum stream_division by, const bool *joined,
                     int *order);
