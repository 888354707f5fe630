/* tail.h: the layers of a network behind one of them, computed for one image on the host, in fp32: their
 * output, and the gradient of a class's logit in their input, in evaluation. */
#pragma once

#include "exec/store.h"

struct tail;

/* Reads the weights of the layers behind `node`, through which every way from the input to the output must
 * lead: USAGE otherwise. The graph must outlive the tail. */
enum status tail_open(const struct graph *graph, int node, const struct store *store, struct tail **tail);
void tail_close(struct tail *tail);                  /* accepts NULL */

/* The logits for the node's output; both are of one image. */
enum status tail_forward(struct tail *tail, const float *outputs, const float **logits);

/* After that: the gradient of the class's logit. */
enum status tail_backward(struct tail *tail, int class, const float **gradient);

/* True if a tail can begin behind a node. */
bool tail_can_begin(const struct graph *graph, int node);
