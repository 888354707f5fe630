/* gradcam.h: where in an image a class's logit comes from: Grad-CAM (Selvaraju et al. 2017), the outputs of a
 * layer weighted by the mean over its pixels of the logit's gradient; negative sums are 0. */
#pragma once

#include "session/layer_output.h"
#include "session/tail.h"

struct gradcam {
    int node;                        /* the layer */
    struct layer_output output;
    struct tail *tail;
    int classes;
};

/* The last layer with more than one pixel that all ways to the classifier lead through; or `layer`. USAGE if
 * there is none, or that is not such a layer. */
enum status gradcam_find(const struct graph *graph, const char *layer, int *node);

/* The layer that is taken without a name; -1: there is none. */
int gradcam_layer(const struct graph *graph);

/* `step` of its output computes the layer on the session's device. `lender`: as in struct exec_memory. */
enum status gradcam_open(const struct session *session, struct store *store, int node,
                         const struct exec *lender, struct gradcam *gradcam);
void gradcam_close(struct gradcam *gradcam);         /* accepts a zeroed struct */

/* The logits of an image, from the layer's outputs for it. */
enum status gradcam_logits(struct gradcam *gradcam, const float *outputs, const float **logits);

/* After that: the map for a class, [h][w] of the layer, from 0 to 1. */
enum status gradcam_map(struct gradcam *gradcam, const float *outputs, int class, float *map);
