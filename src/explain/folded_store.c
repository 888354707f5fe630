#include "explain/folded_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/batchnorm_fold.h"
#include "kernels/conv/conv.h"

/* Convolutions in groups have code that adds no bias. */
bool folded_store_find(const struct graph *graph, int *norms)
{
    int count = 0;
    batchnorm_fold_find(graph, norms);
    for (int i = 1; i < graph->count; i++) {
        if (norms[i] == 0) continue;
        int64_t channels = graph->nodes[graph->nodes[i].inputs[0]].shape.c;
        if (conv_geometry(graph->nodes[i].settings, channels).groups > 1) norms[i] = 0;
        else count++;
    }
    return count > 0;
}

struct folding {
    const struct graph *whole;
    const struct store *from;
    float *in, *out;             /* room for a parameter that is not in the host's memory */
    enum status status;          /* of all so far */
};

/* A parameter of the whole graph; zeros if it has no such one. */
static const float *find_values(struct folding *folding, const char *name, struct shape shape)
{
    int param = graph_find_param(folding->from->graph, name);
    const float *held = param < 0 ? NULL : store_held(folding->from, param);
    if (param < 0) memset(folding->in, 0, (size_t)shape_count(shape) * sizeof *folding->in);
    else if (!held && folding->status == OK)
        folding->status = store_read_held(folding->from, param, folding->in);
    return held ? held : folding->in;
}

static float *read_param(void *context, int param)
{
    struct folding *folding = context;
    const struct parameter *at = &folding->whole->params[param];
    size_t count = (size_t)shape_count(at->spec.shape);
    float *values = memory_new(count, sizeof *values);
    memcpy(values, find_values(folding, at->name, at->spec.shape), count * sizeof *values);
    return values;
}

static enum status fill_param(struct folding *folding, struct store *store, int param, int norm)
{
    const struct parameter *at = &store->graph->params[param];
    struct shape shape = at->spec.shape;
    size_t bytes = (size_t)shape_count(shape) * dtype_bytes(at->spec.dtype);
    struct affine affine = {0};
    if (norm > 0) affine = batchnorm_fold_affine(&folding->whole->nodes[norm], read_param, folding);
    float *held = store_held(store, param), *to = held ? held : folding->out;
    const float *from = find_values(folding, at->name, shape);
    bool bias = param > store->graph->nodes[at->node].param_first;
    if (norm > 0)
        batchnorm_fold_apply(&affine, shape.dim[0], shape_count(shape) / shape.dim[0], bias, from, to);
    else
        memcpy(to, from, bytes);
    free(affine.scale);
    free(affine.shift);
    return held || folding->status != OK ? folding->status : store_write_held(store, param, to);
}

enum status folded_store_fill(struct store *store, const struct graph *whole, const int *norms,
                              const struct store *from)
{
    const struct graph *graph = store->graph;
    int64_t most = 0;
    for (int p = 0; p < graph->param_count; p++)
        if (shape_count(graph->params[p].spec.shape) > most) most = shape_count(graph->params[p].spec.shape);
    struct folding folding = {whole, from, memory_new((size_t)most, sizeof(int64_t)),
                              memory_new((size_t)most, sizeof(int64_t)), OK};
    enum status status = OK;
    for (int p = 0; status == OK && p < graph->param_count; p++) {
        const struct node *node = &graph->nodes[graph->params[p].node];
        status = fill_param(&folding, store, p, norms[graph_find(whole, node->name)]);
    }
    free(folding.in);
    free(folding.out);
    return status;
}
