#include "graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* The limit of an image's activation or a parameter. Below it every extent fits an int, and bytes of a
 * whole batch fit 64 bits. */
#define ELEMENTS_MAX INT64_C(0x7fffffff)

static bool shape_is_sane(struct shape shape)
{
    int64_t room = ELEMENTS_MAX;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 1 || shape.dim[i] > room) return false;
        room /= shape.dim[i];
    }
    return true;
}

void graph_begin(struct graph *graph, const char *arch, struct shape input)
{
    *graph = (struct graph){.arch = text_copy(arch)};
    *array_push(graph->nodes, graph->count) = (struct node){
        .name = text_copy("input"),
        .shape = input,
        .where = text_copy("input"),
    };
    graph->classes = (int)input.c;
}

static bool check_input_count(const struct op *op, int count, struct reason *reason)
{
    int least = op->min_inputs ? op->min_inputs : 1, most = op->max_inputs ? op->max_inputs : 1;
    if (count >= least && count <= most) return true;
    if (least == most)
        return because(reason, "%s takes %d input%s, not %d", op->name, most, most == 1 ? "" : "s", count);
    return because(reason, "%s takes %d to %d inputs, not %d", op->name, least, most, count);
}

/* A node's output shape and its parameters, from its op. */
struct inferred {
    struct shape shape;
    struct op_param params[OP_MAX_PARAMS];
    int param_count;
};

static bool infer(const struct graph *graph, const struct node_spec *spec, struct inferred *inferred,
                  struct reason *reason)
{
    const struct op *op = spec->op;
    int count = spec->input_count;
    struct shape x[OP_MAX_INPUTS];
    if (!check_input_count(op, count, reason)) return false;
    for (int i = 0; i < count; i++) x[i] = graph->nodes[spec->inputs[i]].shape;
    if (!op->shape(spec->settings, count, x, &inferred->shape, reason)) return false;
    if (!shape_is_sane(inferred->shape)) {
        char text[SHAPE_TEXT];
        return because(reason, "its output %s is empty or too large",
                       shape_text(inferred->shape, text));
    }
    inferred->param_count = op->params ? op->params(spec->settings, count, x, inferred->params) : 0;
    for (int i = 0; i < inferred->param_count; i++)
        if (!shape_is_sane(inferred->params[i].shape))
            return because(reason, "its %s is empty or too large", inferred->params[i].name);
    return true;
}

static void add_param(struct graph *graph, const struct node *node, const struct op_param *spec)
{
    *array_push(graph->params, graph->param_count) = (struct parameter){
        .name = text_format("%s%s%s", node->name, *spec->name && !text_ends_in(node->name, "_") ? "." : "",
                            spec->name),
        .node = graph->count,
        .spec = *spec,
        .lr_scale = 1,
    };
}

bool graph_add(struct graph *graph, const struct node_spec *spec, struct reason *reason)
{
    struct inferred inferred = {0};
    if (!infer(graph, spec, &inferred, reason)) {
        op_settings_free(spec->op, spec->settings);
        return false;
    }
    struct node node = {
        .name = text_copy(spec->name),
        .op = spec->op,
        .settings = spec->settings,
        .inputs = memory_new((size_t)spec->input_count, sizeof *spec->inputs),
        .input_count = spec->input_count,
        .shape = inferred.shape,
        .param_first = graph->param_count,
        .param_count = inferred.param_count,
        .where = text_copy(spec->where),
        .block = spec->block,
    };
    memcpy(node.inputs, spec->inputs, (size_t)spec->input_count * sizeof *spec->inputs);
    for (int i = 0; i < inferred.param_count; i++) add_param(graph, &node, &inferred.params[i]);
    graph->output = graph->count;
    graph->classes = (int)node.shape.c;
    *array_push(graph->nodes, graph->count) = node;
    return true;
}

void graph_shapes(const struct graph *graph, int64_t n, struct shape *shapes)
{
    for (int i = 0; i < graph->count; i++) {
        shapes[i] = graph->nodes[i].shape;
        shapes[i].n = n;
    }
}

static bool has_weights(const struct graph *graph, int node)
{
    const struct node *at = &graph->nodes[node];
    for (int p = at->param_first; p < at->param_first + at->param_count; p++)
        if (graph->params[p].spec.role == ROLE_WEIGHT) return true;
    return false;
}

/* A layer, or with `by_block` the block that it belongs to. */
static bool counts(const struct graph *graph, bool by_block, int node)
{
    int block = by_block ? graph->nodes[node].block : 0;
    if (block == 0) return has_weights(graph, node);
    for (int i = 0; i < graph->count; i++)
        if (graph->nodes[i].block == block && has_weights(graph, i)) return true;
    return false;
}

void graph_layers_behind(const struct graph *graph, bool by_block, int *layers)
{
    for (int i = 0; i < graph->count; i++) layers[i] = 0;
    for (int i = graph->output; i > 0; i--) {
        const struct node *node = &graph->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            int input = node->inputs[k];
            bool inside = by_block && node->block > 0 && graph->nodes[input].block == node->block;
            int behind = layers[i] + (!inside && counts(graph, by_block, i));
            if (layers[input] < behind) layers[input] = behind;
        }
    }
}

static int last_with_weights(const struct graph *graph, int node)
{
    while (graph->nodes[node].param_count == 0 && graph->nodes[node].input_count > 0)
        node = graph->nodes[node].inputs[0];
    return node;
}

int graph_classifier(const struct graph *graph)
{
    return last_with_weights(graph, graph->output);
}

bool graph_heads(const struct graph *graph, int heads[2])
{
    const struct node *last = &graph->nodes[graph->output];
    if (!last->op || strcmp(last->op->name, "mean") != 0 || last->input_count != 2) return false;
    for (int i = 0; i < 2; i++) heads[i] = last->inputs[i];
    return true;
}

bool graph_is_classifier(const struct graph *graph, int node)
{
    for (int i = 0; i < graph->output_count; i++)
        if (node == last_with_weights(graph, graph->outputs[i].node)) return true;
    bool *behind = memory_new((size_t)graph->count, sizeof *behind), weights = false;
    behind[node] = true;
    for (int i = node + 1; i < graph->count && !weights; i++) {
        for (int k = 0; k < graph->nodes[i].input_count; k++)
            behind[i] = behind[i] || behind[graph->nodes[i].inputs[k]];
        weights = behind[i] && graph->nodes[i].param_count > 0;
    }
    free(behind);
    return graph->nodes[node].param_count > 0 && !weights;
}

void graph_leads_to_output(const struct graph *graph, bool *leads)
{
    for (int i = 0; i < graph->count; i++) leads[i] = i == graph->output;
    for (int i = graph->count - 1; i > 0; i--)
        for (int k = 0; k < graph->nodes[i].input_count; k++)
            leads[graph->nodes[i].inputs[k]] = leads[graph->nodes[i].inputs[k]] || leads[i];
}

static int64_t matrix_rows(const struct op_param *spec)
{
    int64_t rows = spec->shape.dim[0], count = shape_count(spec->shape);
    bool matrix = spec->role == ROLE_WEIGHT && (spec->shape.rank == 2 || spec->shape.rank == 4);
    return matrix && rows > 1 && count > rows ? rows : 0;
}

static bool has_matrix(const struct graph *graph, int node)
{
    const struct node *at = &graph->nodes[node];
    for (int i = 0; i < at->param_count; i++)
        if (matrix_rows(&graph->params[at->param_first + i].spec) > 0) return true;
    return false;
}

static int matrices_alike(const struct graph *graph, int param)
{
    const struct parameter *one = &graph->params[param];
    int alike = 0;
    for (int p = 0; p < graph->param_count && one->rows > 0; p++)
        alike += graph->params[p].rows == one->rows &&
                 shape_count(graph->params[p].spec.shape) == shape_count(one->spec.shape);
    return alike;
}

void graph_find_matrices(struct graph *graph)
{
    bool *before = memory_new((size_t)graph->count, sizeof *before);    /* a matrix is in front */
    bool *behind = memory_new((size_t)graph->count, sizeof *behind);
    for (int i = 1; i < graph->count; i++)
        for (int k = 0; k < graph->nodes[i].input_count; k++) {
            int from = graph->nodes[i].inputs[k];
            before[i] = before[i] || before[from] || has_matrix(graph, from);
        }
    for (int i = graph->count - 1; i > 0; i--)
        for (int k = 0; k < graph->nodes[i].input_count; k++) {
            int to = graph->nodes[i].inputs[k];
            behind[to] = behind[to] || behind[i] || has_matrix(graph, i);
        }
    for (int p = 0; p < graph->param_count; p++) {
        int node = graph->params[p].node;
        graph->params[p].rows = before[node] && behind[node] ? matrix_rows(&graph->params[p].spec) : 0;
    }
    for (int p = 0; p < graph->param_count; p++) graph->params[p].alike = matrices_alike(graph, p);
    free(before);
    free(behind);
}

int graph_find(const struct graph *graph, const char *name)
{
    for (int i = 0; i < graph->count; i++)
        if (strcmp(graph->nodes[i].name, name) == 0) return i;
    return -1;
}

int graph_find_param(const struct graph *graph, const char *name)
{
    for (int i = 0; i < graph->param_count; i++)
        if (strcmp(graph->params[i].name, name) == 0) return i;
    return -1;
}

int64_t graph_param_elements(const struct graph *graph)
{
    int64_t elements = 0;
    for (int i = 0; i < graph->param_count; i++)
        if (graph->params[i].spec.role != ROLE_STATISTIC)
            elements += shape_count(graph->params[i].spec.shape);
    return elements;
}

int64_t graph_trained_elements(const struct graph *graph)
{
    int64_t elements = 0;
    for (int i = 0; i < graph->param_count; i++)
        if (graph->params[i].spec.role != ROLE_STATISTIC && !graph->params[i].frozen)
            elements += shape_count(graph->params[i].spec.shape);
    return elements;
}

void graph_free_node(struct node *node)
{
    if (node->op) op_settings_free(node->op, node->settings);
    free(node->inputs);
    free(node->name);
    free(node->where);
    free(node->like);
}

static struct node node_copy(const struct node *node)
{
    struct node copy = *node;
    copy.name = text_copy(node->name);
    if (node->op) copy.settings = op_settings_copy(node->op, node->settings);
    copy.inputs = memory_new((size_t)node->input_count, sizeof *copy.inputs);
    for (int i = 0; i < node->input_count; i++) copy.inputs[i] = node->inputs[i];
    copy.where = node->where ? text_copy(node->where) : NULL;
    copy.like = text_copy(node->like);
    return copy;
}

struct graph graph_copy(const struct graph *graph)
{
    struct graph copy = *graph;
    copy.outputs = memory_new((size_t)graph->output_count, sizeof *copy.outputs);
    for (int i = 0; i < graph->output_count; i++) {
        copy.outputs[i] = graph->outputs[i];
        copy.outputs[i].name = text_copy(graph->outputs[i].name);
    }
    copy.arch = text_copy(graph->arch);
    copy.nodes = memory_new((size_t)graph->count, sizeof *copy.nodes);
    copy.params = memory_new((size_t)graph->param_count, sizeof *copy.params);
    for (int i = 0; i < graph->count; i++) copy.nodes[i] = node_copy(&graph->nodes[i]);
    for (int i = 0; i < graph->param_count; i++) {
        copy.params[i] = graph->params[i];
        copy.params[i].name = text_copy(graph->params[i].name);
    }
    return copy;
}

struct graph graph_with_teacher(const struct graph *student, const struct graph *teacher)
{
    struct graph both = graph_copy(student);
    int nodes = student->count - 1, params = student->param_count;
    both.nodes = memory_resize(both.nodes, (size_t)(nodes + teacher->count), sizeof *both.nodes);
    both.params = memory_resize(both.params, (size_t)(params + teacher->param_count), sizeof *both.params);
    for (int i = 1; i < teacher->count; i++) {
        struct node node = node_copy(&teacher->nodes[i]);
        char *name = text_format("teacher.%s", node.name);
        free(node.name);
        node.name = name;
        node.param_first += params;
        for (int k = 0; k < node.input_count; k++)
            if (node.inputs[k] > 0) node.inputs[k] += nodes;
        both.nodes[both.count++] = node;
    }
    for (int i = 0; i < teacher->param_count; i++) {
        struct parameter param = teacher->params[i];
        param.name = text_format("teacher.%s", param.name);
        param.node += nodes;
        param.frozen = true;
        both.params[both.param_count++] = param;
    }
    both.teacher = teacher->output + nodes;
    return both;
}

static void free_outputs(struct graph *graph)
{
    for (int i = 0; i < graph->output_count; i++) free(graph->outputs[i].name);
    free(graph->outputs);
    graph->outputs = NULL;
    graph->output_count = 0;
}

/* Removes the nodes behind one, and their parameters. */
static void graph_cut(struct graph *graph, int node)
{
    const struct node *last = &graph->nodes[node];
    int params = last->param_first + last->param_count;
    while (graph->count > node + 1) graph_free_node(&graph->nodes[--graph->count]);
    while (graph->param_count > params) free(graph->params[--graph->param_count].name);
    free_outputs(graph);
    graph->output = node;
    graph->classes = (int)graph->nodes[node].shape.c;
}

/* Adds a node without settings to a graph that was cut. */
static void graph_end(struct graph *graph, const char *name, const char *op_name, const int *inputs,
                      int count)
{
    /* array_push would have made it as large. */
    size_t room = 1;
    while (room <= (size_t)graph->count) room *= 2;
    graph->nodes = memory_resize(graph->nodes, room, sizeof *graph->nodes);
    struct reason reason;
    const struct op *op = op_find(op_name);
    const struct node_spec spec = {.name = name, .op = op, .settings = op_settings_new(op, "", &reason),
                                   .inputs = inputs, .input_count = count};
    bool good = graph_add(graph, &spec, &reason);
    assert(good);
}

struct graph graph_until(const struct graph *graph, int node, bool mean)
{
    struct graph part = graph_copy(graph);
    struct shape shape = graph->nodes[node].shape;
    graph_cut(&part, node);
    if (mean && shape.h * shape.w > 1) graph_end(&part, "mean", "globalavgpool", &node, 1);
    return part;
}

bool graph_has(const struct graph *graph, const char *op)
{
    for (int i = 1; i < graph->count; i++)
        if (strcmp(graph->nodes[i].op->name, op) == 0) return true;
    return false;
}

struct graph graph_behind(const struct graph *graph, int node)
{
    struct graph part = graph_copy(graph);
    part.nodes[0].shape = graph->nodes[node].shape;
    for (int i = node + 1; i < part.count; i++)
        for (int k = 0; k < part.nodes[i].input_count; k++)
            if (part.nodes[i].inputs[k] == node) part.nodes[i].inputs[k] = 0;
    return part;
}

struct graph graph_join(const struct graph *graph, const int *nodes, int count)
{
    struct graph part = graph_copy(graph);
    int last = nodes[0];
    for (int i = 1; i < count; i++)
        if (nodes[i] > last) last = nodes[i];
    graph_cut(&part, last);
    graph_end(&part, "joined", "concat", nodes, count);
    return part;
}

void graph_free(struct graph *graph)
{
    for (int i = 0; i < graph->count; i++) graph_free_node(&graph->nodes[i]);
    for (int i = 0; i < graph->param_count; i++) free(graph->params[i].name);
    free_outputs(graph);
    free(graph->nodes);
    free(graph->params);
    free(graph->arch);
    *graph = (struct graph){0};
}
