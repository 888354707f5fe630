/* rank_statistics.c: makes running statistics use the moments of all ranks: the moments of a rank lie in one
 * value, one exchange gathers those of all, and they are combined in the tree of sum_tree.h.
 *
 * Launches take longer than what they compute, so from three ranks on, layers whose moments are of equally
 * many numbers are a group, joined by the same instructions. Two ranks have one join a layer, which backward
 * hides. */
#include <stdlib.h>

#include "base/memory.h"
#include "base/sum_tree.h"
#include "compile/memory/plan.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

/* The gathered values. */
struct gathering {
    struct program *program;
    int ranks;
    struct instruction *updates;     /* of running statistics, in the original program */
    int count;
    int *groups;                     /* by update: the first of its group */
    int64_t bytes;                   /* of one rank's moments */
    int own, all;                    /* values: of this rank; of all */
    struct moments_value *joined;    /* by update */
};

static struct moments_value own_moments(const struct gathering *g, int update)
{
    return moments_of(g->program, &g->updates[update]);
}

static void find_groups(struct gathering *g)
{
    g->groups = memory_new((size_t)g->count, sizeof *g->groups);
    for (int u = 0; u < g->count; u++) {
        int first = g->ranks > 2 ? 0 : u;
        while (own_moments(g, first).count != own_moments(g, u).count) first++;
        g->groups[u] = first;
    }
}

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

/* The means of each group, then its variances. */
static void lay_out(struct gathering *g)
{
    g->own = whole_new(g->program, "moments");
    g->all = whole_new(g->program, "moments of all ranks");
    for (int first = 0; first < g->count; first++) {
        for (int u = first; u < g->count; u++)
            if (g->groups[u] == first) add_part(g, own_moments(g, u).mean);
        for (int u = first; u < g->count; u++)
            if (g->groups[u] == first) add_part(g, own_moments(g, u).variance);
    }
    whole_set(g->program, g->own, g->bytes);
    whole_set(g->program, g->all, g->ranks * g->bytes);
}

/* A part of `whole` like a value, but for its size. */
static int part_new(struct gathering *g, int like, int whole, int64_t offset, int64_t count)
{
    struct value value = g->program->values[like];
    value.kind = KIND_EXCHANGE;
    value.whole = whole;
    value.offset = offset;
    value.shape = shape_vector(count);
    return build_value(g->program, value, text_copy(value.name));
}

/* A rank's part of the gathered values that corresponds to `count` numbers of this rank's moments, of which
 * those of a value are the first. */
static int of_rank(struct gathering *g, int id, int rank, int64_t count)
{
    return part_new(g, id, g->all, g->program->values[id].offset + rank * g->bytes, count);
}

/* Means and variances of a group, whose first update and size are given. */
static struct moments_value push_joins(struct gathering *g, int first, int64_t count)
{
    struct moments_value own = own_moments(g, first), stack[SUM_TREE_DEPTH], sum = own;
    int depth = 0;
    own.count *= g->program->micro_batches;
    for (int rank = 0; rank < g->ranks; rank++) {
        sum = (struct moments_value){of_rank(g, own.mean, rank, count), of_rank(g, own.variance, rank, count),
                                     own.count};
        for (int joins = sum_tree_joins(g->ranks, rank); joins > 0; joins--)
            sum = moments_join(g->program, &g->updates[first], &stack[--depth], &sum);
        stack[depth++] = sum;
    }
    return sum;
}

/* The part of a group's joined values that belongs to one of this rank's; `first` is the group's first. */
static int of_joined(struct gathering *g, int id, int joined, int first)
{
    struct value value = g->program->values[id];
    g->program->values[joined].divided = true;
    return part_new(g, id, joined, value.offset - g->program->values[first].offset, shape_count(value.shape));
}

static void join_group(struct gathering *g, int first)
{
    int last = g->count - 1;
    while (g->groups[last] != first) last--;
    struct moments_value begin = own_moments(g, first);
    const struct value *values = g->program->values, *end = &values[own_moments(g, last).mean];
    int64_t bytes = end->offset + end->bytes - values[begin.mean].offset;
    struct moments_value sum = push_joins(g, first, bytes / (int64_t)sizeof(float));
    g->joined[first] = sum;
    for (int u = first; u <= last && first < last; u++) {
        if (g->groups[u] != first) continue;
        struct moments_value own = own_moments(g, u);
        g->joined[u].mean = of_joined(g, own.mean, sum.mean, begin.mean);
        g->joined[u].variance = of_joined(g, own.variance, sum.variance, begin.variance);
    }
}

static void push_gather(struct gathering *g)
{
    struct instruction at = instruction_transfer(INSTRUCTION_ALL_GATHER, PHASE_BACKWARD,
                                                 text_copy("moments all-gather"), g->own, g->all);
    at.micro_batch = g->program->micro_batches - 1;
    build_push(g->program, at);
    for (int u = 0; u < g->count; u++)
        if (g->groups[u] == u) join_group(g, u);
}

/* The last instruction that writes a part of the rank's moments; not before the first of backward, so that
 * this stays the first. */
static int last_writer(const struct gathering *g)
{
    const struct program *program = g->program;
    int last = program->first_backward;
    for (int i = 0; i < program->count; i++)
        FOR_WRITES(o, &program->instructions[i])
            if (i > last && value_placed(program, o->value) == g->own) last = i;
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
        find_groups(&g);
        lay_out(&g);
        program_rebuild(&g);
    }
    free(g.joined);
    free(g.groups);
    free(g.updates);
}
