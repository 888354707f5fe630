/* sync_statistics.c: batch norm over the micro-batches of the same number of all ranks together. One call of
 * its code becomes two, with an exchange between them:
 *
 *     forward     moments of this rank; all-gather; moments of all; y
 *     backward    sums of this rank, with parameter gradients; all-gather; their sum; d_x
 *
 * Values keep their names and readers: what forward saves is common to all ranks from here on. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"
#include "kernels/norm/batchnorm.h"

/* One instruction that becomes several. */
struct sync_split {
    struct program *program;
    const struct instruction *from;
    int ranks;
};

/* Two numbers by channel, of each of so many ranks. */
static int pairs_new(const struct sync_split *s, const char *what, int ranks)
{
    const struct node *node = &s->program->graph->nodes[s->from->node];
    int64_t channels = s->program->values[operand_x(s->from, 0)].shape.c;
    struct value value = {.home = HOME_ARENA, .kind = KIND_OTHER, .dtype = F32, .node = s->from->node,
                          .index = -1, .shape = {.rank = 4, .n = ranks, .h = 1, .w = 2, .c = channels}};
    return build_value(s->program, value, text_format("%s %s", node->name, what));
}

static struct instruction step_new(const struct sync_split *s, const char *op, const void *settings, int x,
                                   int y)
{
    struct instruction at = instruction_new(PHASE_FORWARD, build_op(op), settings,
                                            text_format("%s for all ranks", s->from->name));
    at.node = s->from->node;
    at.micro_batch = s->from->micro_batch;
    operand_set(&at, OPERAND_X, 0, x);
    operand_set(&at, OPERAND_Y, 0, y);
    return at;
}

static int push_gather(const struct sync_split *s, const char *what, int own)
{
    int all = pairs_new(s, what, s->ranks);
    struct instruction at = instruction_transfer(INSTRUCTION_ALL_GATHER, s->from->phase,
                                                 text_format("%s for all ranks", s->from->name), own, all);
    at.node = s->from->node;
    at.micro_batch = s->from->micro_batch;
    build_push(s->program, at);
    return all;
}

static const void *rank_moments_settings(const struct sync_split *s)
{
    const struct batchnorm *set = s->from->settings;
    struct shape x = s->program->values[operand_x(s->from, 0)].shape;
    return build_settings(s->program, build_op("rank_moments"),
                          text_format("count=%" PRId64 " eps=%.17g", shape_count(x) / x.c, set->eps));
}

static void split_forward(const struct sync_split *s)
{
    int own = pairs_new(s, "moments", 1);
    struct instruction measure = step_new(s, "batch_moments", NULL, operand_x(s->from, 0), own);
    operand_set(&measure, OPERAND_X_MOMENTS, 0, operand(s->from, OPERAND_X_MOMENTS, 0));
    build_push(s->program, measure);
    int all = push_gather(s, "moments of all ranks", own);
    struct instruction join = step_new(s, "rank_moments", rank_moments_settings(s), all,
                                       operand(s->from, OPERAND_SAVED, SAVED_MEAN));
    operand_set(&join, OPERAND_SAVED, 0, operand(s->from, OPERAND_SAVED, SAVED_INVSTD));
    operand_set(&join, OPERAND_SAVED, 1, operand(s->from, OPERAND_SAVED, SAVED_VARIANCE));
    build_push(s->program, join);
    struct instruction normalise = instruction_copy(s->from);
    operand_set(&normalise, OPERAND_X_MOMENTS, 0, -1);
    normalise.ranks = s->ranks;
    build_push(s->program, normalise);
}

static void split_backward(const struct sync_split *s)
{
    int own = pairs_new(s, "gradient sums", 1), sum = pairs_new(s, "gradient sums, added", 1);
    struct instruction add_up = instruction_copy(s->from), pass_on = instruction_copy(s->from);
    operand_set(&add_up, OPERAND_D_X, 0, -1);
    operand_set(&add_up, OPERAND_RANK_SUMS, 0, own);
    build_push(s->program, add_up);
    int all = push_gather(s, "gradient sums of all ranks", own);
    const void *settings = build_settings(s->program, build_op("sum_ranks"), text_copy(""));
    build_push(s->program, step_new(s, "sum_ranks", settings, all, sum));
    for (int k = 1; k < OP_MAX_INPUTS; k++) operand_set(&pass_on, OPERAND_D_X, k, -1);
    for (int k = 0; k < OP_MAX_PARAMS; k++) operand_set(&pass_on, OPERAND_D_PARAM, k, -1);
    operand_set(&pass_on, OPERAND_RANK_SUMS, 0, sum);
    pass_on.ranks = s->ranks;
    build_push(s->program, pass_on);
}

static bool is_batchnorm(const struct instruction *at)
{
    return at->op == build_op("batchnorm");
}

void sync_statistics(struct program *program)
{
    struct instruction *from = program->instructions;
    int count = program->count, ranks = program->all_micro_batches / program->micro_batches;
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < count; i++) {
        if (i == program->first_backward) program->first_backward = program->count;
        const struct sync_split split = {program, &from[i], ranks};
        bool forward = is_batchnorm(&from[i]) && from[i].phase == PHASE_FORWARD;
        bool backward = is_batchnorm(&from[i]) && from[i].phase == PHASE_BACKWARD &&
                        operand(&from[i], OPERAND_D_X, 0) >= 0;
        if (!forward && !backward) {
            build_push(program, from[i]);
            continue;
        }
        if (forward) split_forward(&split);
        else split_backward(&split);
        instruction_free(&from[i]);
    }
    free(from);
}
