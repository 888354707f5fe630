/* model_drop_path.c: model.drop_path, the rate of stochastic depth. */
#include "graph/model_parts.h"

#include <string.h>

#include "kernels/elementwise/dropout.h"

static struct dropout *drop_path_of(const struct node *node)
{
    return node->op && strcmp(node->op->name, "drop_path") == 0 ? node->settings : NULL;
}

/* The blocks with drop_path up to a node; a layer outside of blocks is one of its own. */
static int blocks_up_to(const struct graph *graph, int last)
{
    int count = 0, block = 0;
    for (int i = 0; i <= last; i++) {
        if (!drop_path_of(&graph->nodes[i])) continue;
        count += graph->nodes[i].block == 0 || graph->nodes[i].block != block;
        block = graph->nodes[i].block;
    }
    return count;
}

enum status model_set_drop_path(const struct model_options *options, struct graph *graph)
{
    double largest = 0;
    int blocks = blocks_up_to(graph, graph->count - 1);
    if (!options->drop_path || (blocks == 0 && *options->drop_path == 0)) return OK;
    if (blocks == 0)
        return fail(USAGE, "model.drop_path: the network '%s' has no layers of drop_path", graph->arch);
    for (int i = 0; i < graph->count; i++) {
        const struct dropout *s = drop_path_of(&graph->nodes[i]);
        if (s && s->rate > largest) largest = s->rate;
    }
    for (int i = 0; i < graph->count; i++) {
        struct dropout *s = drop_path_of(&graph->nodes[i]);
        if (!s) continue;
        if (largest > 0) s->rate *= *options->drop_path / largest;
        else if (blocks > 1) s->rate = *options->drop_path * (blocks_up_to(graph, i) - 1) / (blocks - 1);
    }
    return OK;
}
