/* Fusion on the graph: an activation moves into the preceding batch norm, directly or across the addition of
 * a shortcut. The activation (and addition) are removed, and their readers read the batch norm.
 *
 * Any other relu or relu6 in front of a max pooling moves behind it, where there are fewer elements: both are
 * monotonic, and no gradient passes where different arguments have the same result, so no bit changes.
 * A relu behind a max pooling becomes part of it.
 *
 * These are no rules (rule.h), because there are no instructions yet: a node has no phase, and which of its
 * values backward reads is not known.
 *
 * Before all that, dropout and drop_path of rate 0, and padding that adds nothing, are left out. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/elementwise/dropout.h"
#include "kernels/norm/batchnorm.h"
#include "kernels/elementwise/activation.h"
#include "kernels/pool/pool.h"

struct fusion {
    struct graph *graph;
    int *readers;       /* how often each node is read; the output once more */
    int *stands_for;    /* the node that replaced this one; itself if none */
};

static bool node_is(const struct node *node, const char *op)
{
    return node->op && strcmp(node->op->name, op) == 0;
}

/* The activation that a node is, in batch norm's terms; ACTIVATION_NONE when it is something else. */
static enum activation node_activation(const struct node *node)
{
    int i = ACTIVATION_RELU;
    while (activation_words[i] && !node_is(node, activation_words[i])) i++;
    return activation_words[i] ? (enum activation)i : ACTIVATION_NONE;
}

/* An unfused batch norm with a single reader. */
static bool is_plain_norm(const struct fusion *fusion, int index)
{
    const struct node *node = &fusion->graph->nodes[index];
    if (!node_is(node, "batchnorm") || fusion->readers[index] != 1) return false;
    const struct batchnorm *settings = node->settings;
    return settings->activation == ACTIVATION_NONE && !settings->residual;
}

static void take_activation(struct fusion *fusion, int norm, int activation)
{
    const struct node *node = &fusion->graph->nodes[activation];
    struct batchnorm *settings = fusion->graph->nodes[norm].settings;
    settings->activation = node_activation(node);
    if (settings->activation == ACTIVATION_LEAKY_RELU)
        settings->slope = ((const struct leaky_relu *)node->settings)->slope;
    fusion->stands_for[activation] = norm;
}

static void take_residual(struct fusion *fusion, int norm, int add, int residual)
{
    struct node *node = &fusion->graph->nodes[norm];
    struct batchnorm *settings = node->settings;
    settings->residual = true;
    node->inputs = memory_resize(node->inputs, 2, sizeof *node->inputs);
    node->inputs[node->input_count++] = residual;
    fusion->stands_for[add] = norm;
}

/* The batch norm must be the later of the two, so that the residual is available when it runs. */
static void fuse_across_add(struct fusion *fusion, int activation, int add)
{
    const struct node *node = &fusion->graph->nodes[add];
    if (node->input_count != 2 || fusion->readers[add] != 1) return;
    if (activation_is_smooth(node_activation(&fusion->graph->nodes[activation]))) return;
    int first = fusion->stands_for[node->inputs[0]], second = fusion->stands_for[node->inputs[1]];
    int norm = first > second ? first : second, residual = first > second ? second : first;
    if (!is_plain_norm(fusion, norm)) return;
    take_residual(fusion, norm, add, residual);
    take_activation(fusion, norm, activation);
}

static void fuse_node(struct fusion *fusion, int index)
{
    const struct node *node = &fusion->graph->nodes[index];
    if (node_activation(node) == ACTIVATION_NONE) return;
    int input = node->inputs[0];
    if (node_is(&fusion->graph->nodes[input], "add")) fuse_across_add(fusion, index, input);
    else if (is_plain_norm(fusion, input)) take_activation(fusion, input, index);
}

static void swap_with_pooling(struct fusion *fusion, int pooling)
{
    struct node *second = &fusion->graph->nodes[pooling], *first = &fusion->graph->nodes[second->inputs[0]];
    struct node moved = *first;
    if (!node_is(first, "relu") && !node_is(first, "relu6")) return;
    if (fusion->readers[second->inputs[0]] != 1 || fusion->stands_for[second->inputs[0]] != second->inputs[0])
        return;
    *first = *second;
    first->inputs = moved.inputs;
    moved.inputs = second->inputs;
    moved.shape = first->shape;
    *second = moved;
}

static void fuse_into_pooling(struct fusion *fusion, int relu)
{
    int input = fusion->graph->nodes[relu].inputs[0];
    struct node *pooling = &fusion->graph->nodes[input];
    if (!node_is(pooling, "maxpool") || fusion->readers[input] != 1) return;
    if (((const struct pool *)pooling->settings)->kernel > POOL_RELU_KERNEL) return;
    pooling->op = op_find("maxpool_relu");
    fusion->stands_for[relu] = input;
}

static bool is_idle(const struct graph *graph, const struct node *node)
{
    if (node_is(node, "dropout") || node_is(node, "drop_path"))
        return ((const struct dropout *)node->settings)->rate == 0;
    return node_is(node, "pad") && shape_equal(node->shape, graph->nodes[node->inputs[0]].shape);
}

/* Readers of such a layer read its input. */
static void skip_idle(struct fusion *fusion)
{
    struct graph *graph = fusion->graph;
    for (int i = 0; i < graph->count; i++) {
        struct node *node = &graph->nodes[i];
        fusion->stands_for[i] = i;
        for (int j = 0; j < node->input_count; j++) node->inputs[j] = fusion->stands_for[node->inputs[j]];
        if (is_idle(graph, node)) fusion->stands_for[i] = node->inputs[0];
    }
    graph->output = fusion->stands_for[graph->output];
    for (int i = 0; i < graph->output_count; i++)
        graph->outputs[i].node = fusion->stands_for[graph->outputs[i].node];
    if (graph->teacher > 0) graph->teacher = fusion->stands_for[graph->teacher];
}

/* Closes the gaps: `number` becomes each node's new index. */
static void compact(struct fusion *fusion, int *number)
{
    struct graph *graph = fusion->graph;
    int count = 0;
    for (int i = 0; i < graph->count; i++) {
        struct node *node = &graph->nodes[i];
        if (fusion->stands_for[i] != i) {
            number[i] = number[fusion->stands_for[i]];
            graph_free_node(node);
            continue;
        }
        for (int j = 0; j < node->input_count; j++) node->inputs[j] = number[node->inputs[j]];
        for (int j = 0; j < node->param_count; j++) graph->params[node->param_first + j].node = count;
        number[i] = count;
        graph->nodes[count++] = *node;
    }
    graph->output = number[graph->output];
    for (int i = 0; i < graph->output_count; i++) graph->outputs[i].node = number[graph->outputs[i].node];
    graph->teacher = number[graph->teacher];
    graph->count = count;
}

enum status fuse(struct graph *graph)
{
    struct fusion fusion = {
        .graph = graph,
        .readers = memory_new((size_t)graph->count, sizeof(int)),
        .stands_for = memory_new((size_t)graph->count, sizeof(int)),
    };
    int *number = memory_new((size_t)graph->count, sizeof *number);
    skip_idle(&fusion);
    for (int i = 0; i < graph->count; i++)
        for (int j = 0; fusion.stands_for[i] == i && j < graph->nodes[i].input_count; j++)
            fusion.readers[graph->nodes[i].inputs[j]]++;
    fusion.readers[graph->output]++;
    for (int i = 0; i < graph->output_count; i++) fusion.readers[graph->outputs[i].node]++;
    if (graph->teacher > 0) fusion.readers[graph->teacher]++;
    for (int i = 0; i < graph->count; i++) fuse_node(&fusion, i);
    for (int i = 0; i < graph->count; i++)
        if (node_is(&graph->nodes[i], "maxpool")) swap_with_pooling(&fusion, i);
    for (int i = 0; i < graph->count; i++)
        if (node_activation(&graph->nodes[i]) == ACTIVATION_RELU) fuse_into_pooling(&fusion, i);
    compact(&fusion, number);
    free(fusion.readers);
    free(fusion.stands_for);
    free(number);
    return OK;
}
