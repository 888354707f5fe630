/* rollout.h: where in an image a vision transformer looks: attention rollout (Abnar, Zuidema 2020). Each
 * block's attention, the mean of its heads, is mixed half and half with the token itself; the product of all
 * blocks is what the class token (without one, the mean token; with a distillation token, their mean) is made
 * of. */
#pragma once

#include "graph/graph.h"

struct rollout {
    int *layers;                     /* [count] the attention layers, in order */
    int count;
    int tokens, prefix;              /* of an image; of these, those in front of the patches' */
    int first, read;                 /* the tokens that classifiers read */
    int h, w;                        /* the map of patches */
};

/* False: the network has no attention over all of an image's tokens. */
bool rollout_open(const struct graph *graph, struct rollout *rollout);
void rollout_close(struct rollout *rollout);         /* accepts a zeroed struct */

/* The map, [h][w], from 0 to 1. `inputs` has the inputs of the attention layers of one image beside each
 * other in each token's channels, of which there are `channels`. */
void rollout_map(const struct rollout *rollout, const struct graph *graph, const float *inputs,
                 int64_t channels, float *map);
