#include "session/gradcam.h"

#include <stdlib.h>

#include "base/memory.h"

static bool has_pixels(const struct graph *graph, int node)
{
    return graph->nodes[node].shape.h * graph->nodes[node].shape.w > 1;
}

int gradcam_layer(const struct graph *graph)
{
    for (int node = graph_classifier(graph) - 1; node > 0; node--)
        if (has_pixels(graph, node) && tail_can_begin(graph, node)) return node;
    return -1;
}

enum status gradcam_find(const struct graph *graph, const char *layer, int *node)
{
    if (layer) {
        TRY(layer_output_find(graph, layer, node));
        if (has_pixels(graph, *node) && tail_can_begin(graph, *node)) return OK;
        return fail(USAGE, "layer '%s' of %s has one pixel, or is not on every way to the output", layer,
                    graph->arch);
    }
    *node = gradcam_layer(graph);
    if (*node > 0) return OK;
    return fail(USAGE, "%s has no layer with pixels in front of its classifier", graph->arch);
}

enum status gradcam_open(const struct session *session, struct store *store, int node,
                         const struct exec *lender, struct gradcam *gradcam)
{
    const struct graph *graph = &session->graphs.evaluation;
    *gradcam = (struct gradcam){.node = node, .classes = graph->classes};
    enum status status = tail_open(graph, node, store, &gradcam->tail);
    if (status == OK) status = layer_output_open(session, store, node, false, lender, &gradcam->output);
    if (status != OK) gradcam_close(gradcam);
    return status;
}

void gradcam_close(struct gradcam *gradcam)
{
    tail_close(gradcam->tail);
    layer_output_close(&gradcam->output);
    *gradcam = (struct gradcam){0};
}

enum status gradcam_logits(struct gradcam *gradcam, const float *outputs, const float **logits)
{
    return tail_forward(gradcam->tail, outputs, logits);
}

enum status gradcam_map(struct gradcam *gradcam, const float *outputs, int class, float *map)
{
    const struct shape *shape = &gradcam->output.shape;
    int64_t pixels = shape->h * shape->w, channels = shape->c;
    const float *gradient;
    float largest = 0;
    TRY(tail_backward(gradcam->tail, class, &gradient));
    double *weights = memory_new((size_t)channels, sizeof *weights);
    for (int64_t i = 0; i < pixels * channels; i++) weights[i % channels] += gradient[i] / (double)pixels;
    for (int64_t p = 0; p < pixels; p++) {
        double sum = 0;
        for (int64_t c = 0; c < channels; c++) sum += weights[c] * outputs[p * channels + c];
        map[p] = sum > 0 ? (float)sum : 0;
        if (map[p] > largest) largest = map[p];
    }
    for (int64_t p = 0; p < pixels && largest > 0; p++) map[p] /= largest;
    free(weights);
    return OK;
}
