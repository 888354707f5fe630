/* partition.c: derives the input of partition_search.h from a program: the time of each node, and the tensors
 * that cross the boundaries between nodes. */
#include "compile/parallel/partition.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/parallel/cluster.h"
#include "compile/parallel/partition_move.h"
#include "compile/parallel/partition_search.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

/* The nodes that touch a value in the first micro-batch; last is -1 if none does. */
struct reach {
    int writer, first, last;
};

struct partitioning {
    const struct program *program;
    const struct partition_options *options;
    struct partition_block *blocks;      /* by node */
    struct reach *reach;                 /* by value */
    int *crossing, crossing_count;       /* values that several nodes touch */
    struct cluster cluster;              /* the pipelines; on one host, since hosts are unknown here */
};

/* Where an instruction belongs: sums and casts have no node of their own. -1: to no node. */
static int node_of(const struct program *program, const struct instruction *at)
{
    if (at->node >= 0) return at->node;
    return at->op ? program->values[operand_y(at)].node : -1;
}

/* Sums of gradients are forward calls after forward; those of parameters' gradients run beside the chain. */
static void add_seconds(const struct partitioning *p, const struct instruction *at, int node)
{
    struct partition_block *block = &p->blocks[node];
    double count = p->program->micro_batches, seconds = cluster_seconds(&p->cluster, p->program, at) / count;
    int y = operand_y(at);
    enum value_kind kind = y >= 0 && at->node < 0 ? p->program->values[y].kind : KIND_OTHER;
    bool weights = at->phase == PHASE_BACKWARD_PARAMS || kind == KIND_PARAM_GRADIENT;
    if (at->phase == PHASE_UPDATE) return;
    if (at->phase == PHASE_FORWARD && !weights && kind != KIND_GRADIENT) {
        block->forward += seconds;
        return;
    }
    *(weights ? &block->weights : &block->data) += seconds;
    block->launches += p->program->machine.launch / count;
}

/* The first node whose parameters an instruction has: of a folded op, one before its own. */
static int first_node(const struct program *program, const struct instruction *at)
{
    int first = at->node;
    FOR_OPERANDS(o, at) {
        if (o->role != OPERAND_PARAM) continue;
        int node = program->graph->params[program->values[o->value].index].node;
        if (node < first) first = node;
    }
    return first;
}

/* Forbids a stage to end between two nodes. */
static void keep_together(const struct partitioning *p, int a, int b)
{
    int end = a > b ? a : b;
    for (int n = a < b ? a : b; n >= 0 && n < end; n++) p->blocks[n].crossing = PARTITION_NEVER;
}

static void keep_pair(void *context, const struct instruction *first, const struct instruction *second)
{
    const struct partitioning *p = context;
    keep_together(p, node_of(p->program, first), node_of(p->program, second));
}

static void touch(struct reach *reach, int node, bool writes)
{
    if (reach->last < 0) *reach = (struct reach){node, node, node};
    if (writes) reach->writer = node;
    if (node < reach->first) reach->first = node;
    if (node > reach->last) reach->last = node;
}

static void look_at(const struct partitioning *p)
{
    for (int v = 0; v < p->program->value_count; v++) p->reach[v].last = -1;
    for (int i = 0; i < p->program->count; i++) {
        const struct instruction *at = &p->program->instructions[i];
        int node = node_of(p->program, at);
        if (node < 0) continue;
        add_seconds(p, at, node);
        if (at->node >= 0) keep_together(p, first_node(p->program, at), at->node);
        if (at->micro_batch > 0 || at->phase == PHASE_UPDATE) continue;
        FOR_READS(o, at) touch(&p->reach[o->value], node, false);
        FOR_WRITES(o, at) touch(&p->reach[o->value], node, true);
    }
}

static void list_crossing(struct partitioning *p)
{
    for (int v = 0; v < p->program->value_count; v++)
        if (p->program->values[v].home == HOME_ARENA && p->reach[v].first < p->reach[v].last)
            *array_push(p->crossing, p->crossing_count) = v;
}

/* Sending in both directions costs as much as half of both in each direction. */
static void add_crossings(const struct partitioning *p)
{
    for (int k = 0; k < p->crossing_count; k++) {
        int v = p->crossing[k];
        for (int node = p->reach[v].first; node < p->reach[v].last; node++)
            if (p->blocks[node].crossing < PARTITION_NEVER)
                p->blocks[node].crossing += p->program->values[v].bytes / 2;
    }
    const struct graph *graph = p->program->graph;
    for (int param = 0; param < graph->param_count; param++)
        if (p->program->gradients[param] >= 0)
            p->blocks[graph->params[param].node].gradients +=
                p->program->values[p->program->gradients[param]].bytes;
}

/* A value that crosses a boundary: the seconds of its message, and from its writing to the chunk's end. */
struct crossing {
    double seconds, before;
};

/* Values of one direction that cross the boundary behind a node; messages are sent in the order of writing.
 * `time` is of forward or of data gradients, and the sums of these up to each node. */
static double hidden_seconds(const struct partitioning *p, int node, bool rises, const double *time)
{
    struct crossing *crossings = NULL;
    int count = 0;
    double late = 0;
    for (int k = 0; k < p->crossing_count; k++) {
        int v = p->crossing[k];
        const struct reach *reach = &p->reach[v];
        if (reach->last <= node || reach->first > node) continue;
        if ((reach->writer <= node) != rises) continue;
        double before = rises ? time[node] - time[reach->writer] : time[reach->writer - 1] - time[node];
        double seconds = cluster_message(&p->cluster, (double)p->program->values[v].bytes);
        *array_push(crossings, count) = (struct crossing){seconds, before};
    }
    for (int k = 0; k < count; k++) {
        double end = -crossings[k].before;
        for (int n = 0; n < count; n++)
            if (crossings[n].before <= crossings[k].before) end += crossings[n].seconds;
        if (end > late) late = end;
    }
    free(crossings);
    return cluster_message(&p->cluster, (double)p->blocks[node].crossing) - late;
}

/* A GPU sends while it computes. */
static void add_hidden(const struct partitioning *p)
{
    int count = p->program->graph->count;
    double *forward = memory_new((size_t)count, sizeof *forward);
    double *data = memory_new((size_t)count, sizeof *data);
    for (int node = 1; node < count; node++) {
        forward[node] = forward[node - 1] + p->blocks[node].forward;
        data[node] = data[node - 1] + p->blocks[node].data;
    }
    for (int node = 1; node < count; node++) {
        if (p->blocks[node].crossing >= PARTITION_NEVER) continue;
        p->blocks[node].hidden[PARTITION_RISES] = hidden_seconds(p, node, true, forward);
        p->blocks[node].hidden[PARTITION_FALLS] = hidden_seconds(p, node, false, data);
    }
    free(forward);
    free(data);
}

/* Only the stage's own nodes matter. */
static int64_t stage_bytes(void *context, const struct partition_chunk *at, int number)
{
    const struct partitioning *p = context;
    int count = p->program->graph->count;
    int *stage = memory_new((size_t)count, sizeof *stage);
    for (int node = 1; node < count; node++)
        stage[node] = node - 1 < at->first ? number - 1 : node - 1 < at->end ? number : number + 1;
    int64_t bytes = p->options->bytes(p->program, p->options, stage, number);
    free(stage);
    return bytes;
}

/* Assigns nodes to stages. The first node is the input, whose images all stages have, so blocks begin after
 * it. */
static void number_nodes(const struct partition_problem *problem, const struct partition_chunk *found,
                         int *stage)
{
    stage[0] = pipeline_stage(problem->schedule, problem->stages, 0);
    for (int c = 0; c < partition_chunks(problem); c++)
        for (int node = found[c].first; node < found[c].end; node++)
            stage[node + 1] = pipeline_stage(problem->schedule, problem->stages, c);
}

/* Where memory does not suffice, there is no limit. False if there are too few blocks. */
static bool search(struct partitioning *p, int *stage, int *moved, double *seconds)
{
    struct partition_problem problem = {
        .blocks = p->blocks + 1, .count = p->program->graph->count - 1, .stages = p->options->stages,
        .replicas = p->cluster.replicas, .micro_batches = p->program->micro_batches,
        .schedule = p->options->schedule, .link = p->cluster.machine.message,
        .sends_itself = p->options->on_cpu, .bytes = stage_bytes, .context = p,
        .limit = pipeline_interleaves(p->options->schedule) ? 0 : p->options->limit,
    };
    struct partition_chunk *found = memory_new((size_t)partition_chunks(&problem), sizeof *found);
    bool any = partition_search(&problem, found, seconds);
    if (!any) problem.limit = 0;
    any = any || partition_search(&problem, found, seconds);
    if (any) number_nodes(&problem, found, stage);
    if (any && moved) {
        partition_move(&problem, found);
        number_nodes(&problem, found, moved);
    }
    free(found);
    return any;
}

struct cluster partition_cluster(const struct program *program, int stages)
{
    return (struct cluster){.replicas = program->all_micro_batches / program->micro_batches, .hosts = 1,
                            .stages = stages, .machine = program->machine};
}

void partition_ends(const struct program *program, bool *may_end)
{
    int count = program->graph->count;
    struct partitioning p = {.program = program, .cluster = partition_cluster(program, 1),
                             .blocks = memory_new((size_t)count, sizeof *p.blocks),
                             .reach = memory_new((size_t)program->value_count, sizeof *p.reach)};
    look_at(&p);
    rules_undivided(program, keep_pair, &p);
    for (int node = 0; node < count; node++)
        may_end[node] = node > 0 && p.blocks[node].crossing < PARTITION_NEVER;
    free(p.blocks);
    free(p.reach);
}

int partition_parts(const struct program *program)
{
    int parts = 0, count = program->graph->count;
    bool *may_end = memory_new((size_t)count, sizeof *may_end);
    partition_ends(program, may_end);
    for (int node = 1; node < count; node++) parts += may_end[node];
    free(may_end);
    return parts;
}

enum status partition(const struct program *program, const struct partition_options *options, int *stage,
                      int *moved, double *seconds)
{
    size_t nodes = (size_t)program->graph->count, values = (size_t)program->value_count;
    struct partitioning p = {
        .program = program, .options = options,
        .blocks = memory_new(nodes, sizeof *p.blocks), .reach = memory_new(values, sizeof *p.reach),
        .cluster = partition_cluster(program, options->stages),
    };
    look_at(&p);
    rules_undivided(program, keep_pair, &p);
    list_crossing(&p);
    add_crossings(&p);
    int chunks = pipeline_chunks(options->schedule, options->stages);
    if (!options->on_cpu) add_hidden(&p);
    bool right = chunks < program->graph->count && search(&p, stage, moved, seconds);
    free(p.blocks);
    free(p.reach);
    free(p.crossing);
    if (right) return OK;
    return fail(USAGE, "%s: a network of %d layers cannot be cut into %d %s", program->graph->arch,
                program->graph->count - 1, chunks, chunks == options->stages ? "stages" : "parts");
}
