/* rank_statistics.c: makes running statistics use the moments of all ranks: the moments of a rank lie in one
 * value, one exchange gathers those of all, and they are combined in the tree of sum_tree.h. */
#include <stdlib.h>

#include "base/memory.h"
#include "base/sum_tree.h"
#include "compile/plan.h"
#include "compile/program_parts.h"
#include "compile/rewrites.h"

/* The gathered values. */
struct gathering {
    struct program *program;
    int ranks;
    struct instruction *updates;     /* of running statistics, in the original program */
    int count;
    int64_t bytes;                   /* of one rank's moments */
    int own, all;                    /* values: of this rank; of all */
    struct moments_value *joined;    /* by update */
};

/* Makes a value the next part of this rank's moments. */
static void add_part(struct gathering *g, int id)
{
    struct value *value = &g->program->values[id];
    value->home = HOME_PART;
    value->whole = g->own;
    value->offset = g->bytes;
    g->bytes += plan_bytes(value);
}

static int whole_new(struct program *program, const char *name)
{
    struct value value = {.home = HOME_ARENA, .kind = KIND_EXCHANGE, .dtype = F32, .node = -1, .index = -1,
                          .shape = shape_vector(0), .divided = true};
    return build_value(program, value, text_copy(name));
}

static void whole_set(struct program *program, int whole, int64_t bytes)
{
    program->values[whole].shape = shape_vector(bytes / (int64_t)sizeof(float));
    program->values[whole].bytes = bytes;
}

static void lay_out(struct gathering *g)
{
    g->own = whole_new(g->program, "moments");
    g->all = whole_new(g->program, "moments of all ranks");
    for (int u = 0; u < g->count; u++) {
        struct moments_value moments = moments_of(g->program, &g->updates[u]);
        add_part(g, moments.mean);
        add_part(g, moments.variance);
    }
    whole_set(g->program, g->own, g->bytes);
    whole_set(g->program, g->all, g->ranks * g->bytes);
}

/* A rank's part of the gathered values that corresponds to a value. */
static int of_rank(struct gathering *g, int id, int rank)
{
    struct value value = g->program->values[id];
    value.kind = KIND_EXCHANGE;
    value.whole = g->all;
    value.offset += rank * g->bytes;
    return build_value(g->program, value, text_copy(value.name));
}

static struct moments_value push_joins(struct gathering *g, const struct instruction *update)
{
    struct moments_value own = moments_of(g->program, update), stack[SUM_TREE_DEPTH], sum = own;
    int depth = 0;
    own.count *= g->program->micro_batches;
    for (int rank = 0; rank < g->ranks; rank++) {
        sum = (struct moments_value){of_rank(g, own.mean, rank), of_rank(g, own.variance, rank), own.count};
        for (int joins = sum_tree_joins(g->ranks, rank); joins > 0; joins--)
            sum = moments_join(g->program, update, &stack[--depth], &sum);
        stack[depth++] = sum;
    }
    return sum;
}

static void push_gather(struct gathering *g)
{
    struct instruction at = instruction_transfer(INSTRUCTION_ALL_GATHER, PHASE_BACKWARD,
                                                 text_copy("moments all-gather"), g->own, g->all);
    at.micro_batch = g->program->micro_batches - 1;
    build_push(g->program, at);
    for (int u = 0; u < g->count; u++) g->joined[u] = push_joins(g, &g->updates[u]);
}

/* The last instruction that writes a part of the rank's moments; not before the first of backward, so that
 * this stays the first. */
static int last_writer(const struct gathering *g)
{
    const struct program *program = g->program;
    int last = program->first_backward;
    for (int i = 0; i < program->count; i++)
        for (int k = 0; k < program->instructions[i].write_count; k++)
            if (i > last && value_placed(program, program->instructions[i].writes[k]) == g->own) last = i;
    return last;
}

/* During backward, if all moments are known after forward. */
static void program_rebuild(struct gathering *g)
{
    struct program *program = g->program;
    struct instruction *from = program->instructions;
    int count = program->count, after = last_writer(g), update = 0;
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < count; i++) {
        if (instruction_is_op_update(&from[i])) moments_set(&from[i], &g->joined[update++]);
        build_push(program, from[i]);
        if (i == after) push_gather(g);
    }
    free(from);
}

void rank_statistics(struct program *program)
{
    struct gathering g = {.program = program,
                          .ranks = program->all_micro_batches / program->micro_batches};
    for (int i = 0; i < program->count; i++)
        if (instruction_is_op_update(&program->instructions[i]))
            *array_push(g.updates, g.count) = program->instructions[i];
    if (g.count > 0) {
        g.joined = memory_new((size_t)g.count, sizeof *g.joined);
        lay_out(&g);
        program_rebuild(&g);
    }
    free(g.joined);
    free(g.updates);
}
