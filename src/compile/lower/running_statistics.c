/* running_statistics.c: updates running statistics once per step, by the moments of all micro-batches,
 * combined in the tree of sum_tree.h; rank_statistics.c adds those of other ranks.
 *
 * Each micro-batch is still normalised by its own moments. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/sum_tree.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

/* Sums of a node by tree level. */
struct partial_moments {
    struct moments_value of[SUM_TREE_DEPTH];
    int count;
};

struct moments_value moments_of(const struct program *program, const struct instruction *update)
{
    struct shape y = program->values[operand_y(update)].shape;
    int ranks = program->sync_bn ? program->all_micro_batches / program->micro_batches : 1;
    return (struct moments_value){operand(update, OPERAND_SAVED, update->op->moments.mean),
                                  operand(update, OPERAND_SAVED, update->op->moments.variance),
                                  ranks * shape_count(y) / y.c};
}

/* A value that only the update reads must not be offloaded: it would come back after the optimizer's
 * update. */
static int copy_value(struct program *program, int of)
{
    struct value value = program->values[of];
    value.home = HOME_ARENA;
    if (value.kind == KIND_SAVED) value.kind = KIND_OTHER;
    return build_value(program, value, text_copy(value.name));
}

struct moments_value moments_join(struct program *program, const struct instruction *update,
                                  const struct moments_value *a, const struct moments_value *b)
{
    int x[] = {a->mean, a->variance, b->mean, b->variance};
    struct moments_value both = {copy_value(program, a->mean), copy_value(program, a->variance),
                                 a->count + b->count};
    const struct op *op = build_op("moments");
    char *counts = text_format("a=%" PRId64 " b=%" PRId64, a->count, b->count);
    struct instruction join = instruction_new(PHASE_FORWARD, op, build_settings(program, op, counts),
                                              text_format("moments for %s", update->name));
    join.micro_batch = program->micro_batches - 1;
    for (int i = 0; i < 4; i++) operand_set(&join, OPERAND_X, i, x[i]);
    operand_set(&join, OPERAND_Y, 0, both.mean);
    operand_set(&join, OPERAND_SAVED, 0, both.variance);
    build_push(program, join);
    return both;
}

/* Only these saved values are shared by all micro-batches. */
void moments_set(struct instruction *update, const struct moments_value *moments)
{
    for (int k = operand_count(update, OPERAND_SAVED) - 1; k >= 0; k--)
        operand_set(update, OPERAND_SAVED, k, -1);
    operand_set(update, OPERAND_SAVED, update->op->moments.mean, moments->mean);
    operand_set(update, OPERAND_SAVED, update->op->moments.variance, moments->variance);
}

static void moments_arrive(struct program *program, struct partial_moments *partial,
                           const struct instruction *update)
{
    partial->of[partial->count++] = moments_of(program, update);
    for (int joins = sum_tree_joins(program->micro_batches, update->micro_batch); joins > 0; joins--) {
        struct moments_value *top = &partial->of[--partial->count - 1];
        *top = moments_join(program, update, &top[0], &top[1]);
    }
}

static bool is_last(const struct program *program, const struct instruction *at)
{
    return at->micro_batch == program->micro_batches - 1;
}

static int find_last_backward(const struct program *program)
{
    const struct instruction *at = program->instructions;
    while (!is_last(program, at) || at->phase == PHASE_FORWARD) at++;
    return (int)(at - program->instructions);
}

/* Moments are combined as soon as the last micro-batch has its own, so that backward hides their exchange
 * among ranks; not after the optimizer's update, where results could overwrite gradients, which are
 * examined after the step. */
void running_statistics(struct program *program)
{
    struct instruction *from = program->instructions;
    int count = program->count, backward = find_last_backward(program);
    struct partial_moments *partial = memory_new((size_t)program->graph->count, sizeof *partial);
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < backward; i++) build_push(program, from[i]);
    for (int i = backward; i < count; i++)
        if (instruction_is_op_update(&from[i])) moments_arrive(program, &partial[from[i].node], &from[i]);
    for (int i = backward; i < count; i++) {
        if (instruction_is_op_update(&from[i]) && !is_last(program, &from[i])) {
            instruction_free(&from[i]);
            continue;
        }
        if (instruction_is_op_update(&from[i])) moments_set(&from[i], &partial[from[i].node].of[0]);
        build_push(program, from[i]);
    }
    free(partial);
    free(from);
}
