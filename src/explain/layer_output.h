/* layer_output.h: the outputs of a layer inside of a network, in evaluation: features of images. */
#pragma once

#include "session/step.h"

struct layer_output {
    struct graph graph;              /* the network up to the layer */
    struct step step;                /* its outputs are those of the layer; exec_logits has them */
    struct shape shape;              /* of an image's */
    int64_t count;                   /* of its numbers */
};

/* The input of the last layer with weights, which is the classifier; or the output of `layer`, a layer or
 * block. USAGE if the network has no such layer. */
enum status layer_output_find(const struct graph *graph, const char *layer, int *node);

/* Plans and allocates an evaluation of the session's network up to a node, or of the mean over its pixels.
 * The store is the network's. */
enum status layer_output_open(const struct session *session, struct store *store, int node, bool mean,
                              const struct exec_memory *memory, struct layer_output *output);
/* Opens the outputs of several nodes with equally many pixels, one beside the other in each pixel's channels.
 * */
enum status layer_output_open_joined(const struct session *session, struct store *store, const int *nodes,
                                     int count, const struct exec_memory *memory,
                                     struct layer_output *output);
void layer_output_close(struct layer_output *output);        /* accepts a zeroed struct */
