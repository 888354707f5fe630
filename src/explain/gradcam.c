#include "explain/gradcam.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static bool has_pixels(const struct graph *graph, int node)
{
    return graph->nodes[node].shape.h * graph->nodes[node].shape.w > 1;
}

/* The last one with more pixels than that. */
static int last_layer(const struct graph *graph, int pixels)
{
    for (int node = graph_classifier(graph) - 1; node > 0; node--) {
        const struct shape *shape = &graph->nodes[node].shape;
        if (shape->h * shape->w > pixels && tail_can_begin(graph, node)) return node;
    }
    return -1;
}

/* The tokens that several classifiers of a transformer read are no pixels. */
int gradcam_layer(const struct graph *graph)
{
    struct rollout rollout;
    int node = rollout_open(graph, &rollout) ? last_layer(graph, rollout.tokens - 1) : -1;
    rollout_close(&rollout);
    return node > 0 ? node : last_layer(graph, 1);
}

enum status gradcam_find(const struct graph *graph, const char *layer, int *node)
{
    if (layer) {
        TRY(layer_output_find(graph, layer, node));
        if (has_pixels(graph, *node) && tail_can_begin(graph, *node)) return OK;
        return fail(USAGE, "layer '%s' of %s has one pixel, or is bypassed by another path", layer,
                    graph->arch);
    }
    *node = gradcam_layer(graph);
    if (*node > 0) return OK;
    return fail(USAGE, "%s has no layer with pixels in front of its classifier", graph->arch);
}

/* Nodes in the order of their outputs: what attention layers read, then the layer. */
static enum status open_joined(const struct session *session, struct store *store,
                               const struct exec_memory *memory, struct gradcam *gradcam)
{
    const struct rollout *rollout = &gradcam->rollout;
    int *nodes = memory_new((size_t)rollout->count + 1, sizeof *nodes);
    for (int i = 0; i < rollout->count; i++)
        nodes[i] = gradcam->graph->nodes[rollout->layers[i]].inputs[0];
    nodes[rollout->count] = gradcam->node;
    enum status status =
        layer_output_open_joined(session, store, nodes, rollout->count + 1, memory, &gradcam->output);
    free(nodes);
    return status;
}

/* Tokens are a map of patches with some in front. */
static void find_map(struct gradcam *gradcam, const struct rollout *rollout)
{
    const struct shape *shape = &gradcam->graph->nodes[gradcam->node].shape;
    bool tokens = rollout->count > 0 && shape->h * shape->w == rollout->tokens;
    gradcam->h = tokens ? rollout->h : (int)shape->h;
    gradcam->w = tokens ? rollout->w : (int)shape->w;
    gradcam->prefix = tokens ? rollout->prefix : 0;
    gradcam->channels = shape->c;
    gradcam->own = memory_new((size_t)shape_count(*shape), sizeof *gradcam->own);
}

/* True if the inputs of all attention layers are known where the layer is, with as many tokens. */
static bool can_roll(const struct gradcam *gradcam, const struct rollout *rollout)
{
    const struct shape *shape = &gradcam->graph->nodes[gradcam->node].shape;
    return rollout->count > 0 && rollout->count < OP_MAX_INPUTS && shape->h * shape->w == rollout->tokens;
}

enum status gradcam_open(const struct session *session, struct store *store, int node, bool own,
                         const struct exec_memory *memory, struct gradcam *gradcam)
{
    const struct graph *graph = &session->graphs.evaluation;
    struct rollout rollout;
    *gradcam = (struct gradcam){.node = node, .graph = graph, .classes = graph->classes};
    rollout_open(graph, &rollout);
    find_map(gradcam, &rollout);
    if (!own && can_roll(gradcam, &rollout)) gradcam->rollout = rollout;
    else rollout_close(&rollout);
    enum status status = tail_open(graph, node, store, &gradcam->tail);
    if (status == OK && gradcam->rollout.layers) status = open_joined(session, store, memory, gradcam);
    else if (status == OK) status = layer_output_open(session, store, node, false, memory, &gradcam->output);
    if (status != OK) gradcam_close(gradcam);
    return status;
}

void gradcam_close(struct gradcam *gradcam)
{
    tail_close(gradcam->tail);
    layer_output_close(&gradcam->output);
    rollout_close(&gradcam->rollout);
    free(gradcam->own);
    *gradcam = (struct gradcam){0};
}

/* The layer's channels are the last ones. */
static void take_own(struct gradcam *gradcam, const float *outputs)
{
    int64_t all = gradcam->output.shape.c, own = gradcam->channels;
    for (int64_t p = 0; p < gradcam->output.count / all; p++)
        memcpy(gradcam->own + p * own, outputs + p * all + all - own, (size_t)own * sizeof *outputs);
}

enum status gradcam_logits(struct gradcam *gradcam, const float *outputs, const float **logits)
{
    take_own(gradcam, outputs);
    return tail_forward(gradcam->tail, gradcam->own, logits);
}

static enum status map_gradient(struct gradcam *gradcam, int class, float *map)
{
    int64_t channels = gradcam->channels, pixels = (int64_t)gradcam->h * gradcam->w;
    const float *gradient, *own = gradcam->own + gradcam->prefix * channels;
    float largest = 0;
    TRY(tail_backward(gradcam->tail, class, &gradient));
    gradient += gradcam->prefix * channels;
    double *weights = memory_new((size_t)channels, sizeof *weights);
    for (int64_t i = 0; i < pixels * channels; i++) weights[i % channels] += gradient[i] / (double)pixels;
    for (int64_t p = 0; p < pixels; p++) {
        double sum = 0;
        for (int64_t c = 0; c < channels; c++) sum += weights[c] * own[p * channels + c];
        map[p] = sum > 0 ? (float)sum : 0;
        if (map[p] > largest) largest = map[p];
    }
    for (int64_t p = 0; p < pixels && largest > 0; p++) map[p] /= largest;
    free(weights);
    return OK;
}

enum status gradcam_map(struct gradcam *gradcam, const float *outputs, int class, float *map)
{
    if (!gradcam->rollout.layers) return map_gradient(gradcam, class, map);
    rollout_map(&gradcam->rollout, gradcam->graph, outputs, gradcam->output.shape.c, map);
    return OK;
}
