/* running_statistics.c: running statistics follow once a step, by the moments of all micro-batches together,
 * which are joined in the tree of sum_tree.h; those of other ranks come in by rank_statistics.c.
 *
 * Each micro-batch is still normalised by its own. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/sum_tree.h"
#include "compile/program_parts.h"

/* Of a node. */
struct partial_moments {
    struct moments_value of[SUM_TREE_DEPTH];
    int count;
};

struct moments_value moments_of(const struct program *program, const struct instruction *update)
{
    struct shape x = program->values[update->x[0]].shape;
    return (struct moments_value){update->saved[update->op->moments.mean],
                                  update->saved[update->op->moments.variance], shape_count(x) / x.c};
}

static const void *join_settings(struct program *program, int64_t a, int64_t b)
{
    char *text = text_format("a=%" PRId64 " b=%" PRId64, a, b);
    const void *settings = build_settings(program, build_op("moments"), text);
    free(text);
    return settings;
}

static int copy_value(struct program *program, int of)
{
    struct value value = program->values[of];
    value.home = HOME_ARENA;
    return build_value(program, value, text_copy(value.name));
}

struct moments_value moments_join(struct program *program, const struct instruction *update,
                                  const struct moments_value *a, const struct moments_value *b)
{
    int x[] = {a->mean, a->variance, b->mean, b->variance};
    struct moments_value both = {copy_value(program, a->mean), copy_value(program, a->variance),
                                 a->count + b->count};
    struct instruction join = instruction_new(PHASE_FORWARD, build_op("moments"),
                                              join_settings(program, a->count, b->count),
                                              text_format("moments for %s", update->name));
    join.micro_batch = program->micro_batches - 1;
    join.x = ids_copy(x, 4);
    join.x_count = 4;
    join.y = both.mean;
    join.saved = ids_copy(&both.variance, 1);
    join.saved_count = 1;
    build_push(program, join);
    return both;
}

/* Of nothing else that was saved is there one for all micro-batches. */
void moments_set(struct instruction *update, const struct moments_value *moments)
{
    for (int k = 0; k < update->saved_count; k++) update->saved[k] = -1;
    update->saved[update->op->moments.mean] = moments->mean;
    update->saved[update->op->moments.variance] = moments->variance;
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

/* Moments are joined before the optimizer's update: what is written after it may take the place of gradients,
 * which are looked at after the step. */
void running_statistics(struct program *program)
{
    struct instruction *from = program->instructions;
    int count = program->count, optimizer = 0;
    struct partial_moments *partial = memory_new((size_t)program->graph->count, sizeof *partial);
    while (from[optimizer].kind != INSTRUCTION_UPDATE) optimizer++;
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < optimizer; i++) build_push(program, from[i]);
    for (int i = optimizer + 1; i < count; i++) moments_arrive(program, &partial[from[i].node], &from[i]);
    build_push(program, from[optimizer]);
    for (int i = optimizer + 1; i < count; i++) {
        bool last = from[i].micro_batch == program->micro_batches - 1;
        if (!last) {
            instruction_free(&from[i]);
            continue;
        }
        moments_set(&from[i], &partial[from[i].node].of[0]);
        build_push(program, from[i]);
    }
    free(partial);
    free(from);
}
