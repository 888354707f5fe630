#include "explain/folded_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/batchnorm_fold.h"
#include "kernels/conv/conv.h"
#include "kernels/norm/batchnorm.h"

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
    const struct store *store;           /* of it */
};

/* The place of a parameter of the whole graph in the store. */
static float *find_param(const struct folding *folding, int param)
{
    int held = graph_find_param(folding->store->graph, folding->whole->params[param].name);
    return store_held(folding->store, held);
}

static float *read_param(void *context, int param)
{
    const struct folding *folding = context;
    size_t count = (size_t)shape_count(folding->whole->params[param].spec.shape);
    float *values = memory_new(count, sizeof *values);
    memcpy(values, find_param(folding, param), count * sizeof *values);
    return values;
}

/* A new bias takes the place of its norm's running mean, which is as long. */
static int place_of(const struct folding *folding, const char *name, int norm)
{
    int held = graph_find_param(folding->store->graph, name);
    if (held >= 0) return held;
    const struct node *node = &folding->whole->nodes[norm];
    int mean = node->param_first + batchnorm_statistics(node->settings).mean;
    held = graph_find_param(folding->store->graph, folding->whole->params[mean].name);
    memset(store_held(folding->store, held), 0, (size_t)node->shape.c * sizeof(float));
    return held;
}

void folded_store_fold(struct store *store, const struct graph *whole, const int *norms,
                       const struct graph *folded)
{
    struct folding folding = {whole, store};
    struct store_slot *slots = memory_new((size_t)folded->param_count, sizeof *slots);
    for (int i = 0; i < folded->count; i++) {
        const struct node *node = &folded->nodes[i];
        int norm = norms[graph_find(whole, node->name)];
        struct affine affine = {0};
        if (norm > 0) affine = batchnorm_fold_affine(&whole->nodes[norm], read_param, &folding);
        for (int p = node->param_first; p < node->param_first + node->param_count; p++) {
            const struct parameter *at = &folded->params[p];
            int held = place_of(&folding, at->name, norm);
            float *values = store_held(store, held);
            slots[p] = store->layout.params[held];
            if (norm <= 0) continue;          /* a batch norm's counter has no dimensions */
            int64_t filters = at->spec.shape.dim[0], each = shape_count(at->spec.shape) / filters;
            batchnorm_fold_apply(&affine, filters, each, p > node->param_first, values, values);
        }
        free(affine.scale);
        free(affine.shift);
    }
    free(store->layout.params);
    store->layout.params = slots;
    store->layout.count = folded->param_count;
    store->graph = folded;
}
