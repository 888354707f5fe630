/* partition.c: cuts a network into stages of about equal time, by cost.h's model, at positions in the order
 * of its nodes where one tensor crosses, or at any, if there are too few of those.
 *
 * D(s, j), the time of the slowest of s stages that have the first j nodes, is the least over k < j of
 * max(D(s - 1, k), time of nodes k to j). */
#include "compile/partition.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/cost.h"

struct partitioning {
    const struct graph *graph;
    double *before;          /* [count + 1]: seconds of a step for the nodes before each */
    bool *may;               /* [count + 1]: whether a stage may end before this node */
};

static void find_times(struct partitioning *p, const struct program *program)
{
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->op && at->node >= 0) p->before[at->node + 1] += cost_call(program, at);
    }
    for (int node = 0; node < p->graph->count; node++) p->before[node + 1] += p->before[node];
}

/* Nodes before `cut` whose output nodes from there on read. */
static int crossing(const struct graph *graph, int cut)
{
    bool *read = memory_new((size_t)graph->count, sizeof *read);
    int count = 0;
    for (int node = cut; node < graph->count; node++)
        for (int k = 0; k < graph->nodes[node].input_count; k++) {
            int input = graph->nodes[node].inputs[k];
            count += input < cut && !read[input];
            read[input] = true;
        }
    free(read);
    return count;
}

/* The first node is the input, which takes no time. */
static void find_cuts(struct partitioning *p, int stages)
{
    int count = 0;
    for (int cut = 2; cut < p->graph->count; cut++) count += p->may[cut] = crossing(p->graph, cut) == 1;
    for (int cut = 2; count < stages - 1 && cut < p->graph->count; cut++) p->may[cut] = true;
    p->may[p->graph->count] = true;
}

static void divide(const struct partitioning *p, int stages, int *stage)
{
    int count = p->graph->count, ends = count + 1;
    double *slowest = memory_new((size_t)((stages + 1) * ends), sizeof *slowest);
    int *from = memory_new((size_t)((stages + 1) * ends), sizeof *from);
    for (int i = 0; i < (stages + 1) * ends; i++) slowest[i] = INFINITY;
    slowest[0] = 0;
    for (int s = 1; s <= stages; s++)
        for (int j = 1; j <= count; j++)
            for (int k = 0; k < j && p->may[j]; k++) {
                double time = fmax(slowest[(s - 1) * ends + k], p->before[j] - p->before[k]);
                if (time >= slowest[s * ends + j]) continue;
                slowest[s * ends + j] = time;
                from[s * ends + j] = k;
            }
    for (int s = stages, end = count; s > 0; end = from[s-- * ends + end])
        for (int node = from[s * ends + end]; node < end; node++) stage[node] = s - 1;
    free(slowest);
    free(from);
}

enum status partition(const struct program *program, const struct partition_options *options, int *stage)
{
    struct partitioning p = {.graph = program->graph};
    size_t count = (size_t)p.graph->count + 1;
    if (options->stages >= p.graph->count)
        return fail(USAGE, "%s: a network of %d layers cannot be cut into %d stages", p.graph->arch,
                    p.graph->count - 1, options->stages);
    p.before = memory_new(count, sizeof *p.before);
    p.may = memory_new(count, sizeof *p.may);
    find_times(&p, program);
    find_cuts(&p, options->stages);
    divide(&p, options->stages, stage);
    free(p.before);
    free(p.may);
    return OK;
}
