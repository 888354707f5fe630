/* gradcam.h: where in an image a network sees a class: Grad-CAM (Selvaraju et al. 2017), the outputs of a
 * layer weighted by the mean over its pixels of the gradient of the class's logit; negative sums are 0. In
 * vision transformers, attention rollout (rollout.h), which is the same for all classes. */
#pragma once

#include "explain/layer_output.h"
#include "explain/rollout.h"
#include "explain/tail.h"

struct gradcam {
    int node;                        /* the layer */
    struct layer_output output;      /* of it, and with rollout also the inputs of all attention layers */
    const struct graph *graph;
    struct rollout rollout;          /* layers NULL: Grad-CAM */
    struct tail *tail;
    int h, w;                        /* of a map */
    int prefix;                      /* tokens of the layer that are not in it, but in front */
    int64_t channels;                /* of the layer */
    float *own;                      /* [pixels][channels] the layer's outputs alone */
    int classes;
};

/* The last layer with more than one pixel that all ways to the classifier lead through; or `layer`. USAGE if
 * there is none, or that is not such a layer. */
enum status gradcam_find(const struct graph *graph, const char *layer, int *node);

/* The layer that is taken without a name; -1: there is none. */
int gradcam_layer(const struct graph *graph);

/* `step` of its output computes what is needed on the session's device. `own`: Grad-CAM of the layer, also in
 * a transformer. */
enum status gradcam_open(const struct session *session, struct store *store, int node, bool own,
                         const struct exec_memory *memory, struct gradcam *gradcam);
void gradcam_close(struct gradcam *gradcam);         /* accepts a zeroed struct */

/* The logits of an image, from the step's outputs for it. */
enum status gradcam_logits(struct gradcam *gradcam, const float *outputs, const float **logits);

/* After that: the map for a class, [h][w], from 0 to 1. */
enum status gradcam_map(struct gradcam *gradcam, const float *outputs, int class, float *map);
