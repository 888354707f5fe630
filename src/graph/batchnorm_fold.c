#include "graph/batchnorm_fold.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/conv/conv.h"
#include "kernels/norm/batchnorm.h"

static bool node_is(const struct node *node, const char *op)
{
    return node->op && strcmp(node->op->name, op) == 0;
}

void batchnorm_fold_find(const struct graph *graph, int *norms)
{
    int *readers = memory_new((size_t)graph->count, sizeof *readers);
    memset(norms, 0, (size_t)graph->count * sizeof *norms);
    readers[graph->output]++;
    for (int i = 0; i < graph->output_count; i++) readers[graph->outputs[i].node]++;
    for (int i = 1; i < graph->count; i++)
        for (int k = 0; k < graph->nodes[i].input_count; k++) readers[graph->nodes[i].inputs[k]]++;
    for (int i = 1; i < graph->count; i++) {
        int from = graph->nodes[i].inputs[0];
        bool pair = node_is(&graph->nodes[i], "batchnorm") && node_is(&graph->nodes[from], "conv");
        if (pair && readers[from] == 1) norms[from] = i;
    }
    free(readers);
}

/* Appends a copy of a node, which reads the numbers of its inputs; with a bias if `biased`. */
static void add_copy(struct graph *folded, const struct node *node, const int *number, bool biased)
{
    struct node_spec spec = {.name = node->name, .op = node->op, .input_count = node->input_count,
                             .settings = op_settings_copy(node->op, node->settings), .where = node->where,
                             .block = node->block};
    int *inputs = memory_new((size_t)node->input_count, sizeof *inputs);
    for (int k = 0; k < node->input_count; k++) inputs[k] = number[node->inputs[k]];
    spec.inputs = inputs;
    if (biased) ((struct conv_settings *)spec.settings)->weight.bias = true;
    struct reason reason;
    bool added = graph_add(folded, &spec, &reason);
    assert(added);
    (void)added;
    folded->nodes[folded->count - 1].like = text_copy(node->like);
    free(inputs);
}

struct graph batchnorm_fold(const struct graph *graph, const int *norms)
{
    struct graph folded;
    int *number = memory_new((size_t)graph->count, sizeof *number);
    graph_begin(&folded, graph->arch, graph->nodes[0].shape);
    for (int i = 1; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        bool gone = node_is(node, "batchnorm") && norms[node->inputs[0]] == i;
        if (!gone) add_copy(&folded, node, number, norms[i] > 0);
        number[i] = gone ? number[node->inputs[0]] : folded.count - 1;
    }
    folded.output = number[graph->output];
    folded.classes = graph->classes;
    for (int i = 0; i < graph->output_count; i++) {
        struct graph_output output = graph->outputs[i];
        output.name = text_copy(output.name);
        output.node = number[output.node];
        *array_push(folded.outputs, folded.output_count) = output;
    }
    free(number);
    return folded;
}

struct affine batchnorm_fold_affine(const struct node *norm, float *(*read)(void *context, int param),
                                    void *context)
{
    const struct batchnorm *s = norm->settings;
    struct batchnorm_statistics at = batchnorm_statistics(s);
    int first = norm->param_first;
    struct affine affine = {read(context, first + (s->affine ? 0 : at.variance)),
                            read(context, first + (s->affine ? 1 : at.mean))};
    float *mean = read(context, first + at.mean), *variance = read(context, first + at.variance);
    for (int64_t c = 0; c < norm->shape.c; c++) {
        double scale = (s->affine ? affine.scale[c] : 1) / sqrt(variance[c] + s->eps);
        affine.shift[c] = (float)((s->affine ? affine.shift[c] : 0) - mean[c] * scale);
        affine.scale[c] = (float)scale;
    }
    free(mean);
    free(variance);
    return affine;
}

void batchnorm_fold_apply(const struct affine *affine, int64_t filters, int64_t each, bool bias,
                          const float *from, float *to)
{
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < filters; k++)
        for (int64_t i = k * each; i < (k + 1) * each; i++)
            to[i] = bias ? from[i] * affine->scale[k] + affine->shift[k] : from[i] * affine->scale[k];
}
