#include "explain/layer_output.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* The last layer whose name begins with the block's; -1: there is none. */
static int last_of_block(const struct graph *graph, const char *block)
{
    size_t length = strlen(block);
    for (int i = graph->count - 1; i > 0; i--) {
        const char *name = graph->nodes[i].name;
        if (strncmp(name, block, length) == 0 && name[length] == '.') return i;
    }
    return -1;
}

enum status layer_output_find(const struct graph *graph, const char *layer, int *node)
{
    if (!layer) {
        const struct node *last = &graph->nodes[graph_classifier(graph)];
        *node = last->input_count > 0 ? last->inputs[0] : graph->output;
        return OK;
    }
    *node = graph_find(graph, layer);
    if (*node < 0) *node = last_of_block(graph, layer);
    if (*node > 0) return OK;
    const char **names = memory_new((size_t)graph->count, sizeof *names);
    for (int i = 1; i < graph->count; i++) names[i - 1] = graph->nodes[i].name;
    const char *near = text_nearest(layer, names, graph->count - 1);
    free(names);
    return fail(USAGE, "%s has no layer '%s'%s%s%s; `amptrain summary` lists them", graph->arch, layer,
                near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum status open_part(const struct session *session, struct store *store, struct graph part,
                             const struct exec_memory *memory, struct layer_output *output)
{
    *output = (struct layer_output){.graph = part, .shape = part.nodes[part.output].shape};
    output->count = shape_count(output->shape);
    enum status status = step_open_features(session, &output->graph, store, memory, &output->step);
    if (status != OK) layer_output_close(output);
    return status;
}

enum status layer_output_open(const struct session *session, struct store *store, int node, bool mean,
                              const struct exec_memory *memory, struct layer_output *output)
{
    struct graph part = graph_until(&session->graphs.evaluation, node, mean);
    return open_part(session, store, part, memory, output);
}

enum status layer_output_open_joined(const struct session *session, struct store *store, const int *nodes,
                                     int count, const struct exec_memory *memory, struct layer_output *output)
{
    struct graph part = graph_join(&session->graphs.evaluation, nodes, count);
    return open_part(session, store, part, memory, output);
}

void layer_output_close(struct layer_output *output)
{
    step_close(&output->step);
    if (output->graph.nodes) graph_free(&output->graph);
    *output = (struct layer_output){0};
}
