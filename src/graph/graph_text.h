/* graph_text.h: a graph as a model file with all blocks expanded, for comparing networks. */
#pragma once

#include "graph/graph.h"

/* [input], [layers] with one line per node: its full name, its op, its inputs, and the settings that differ
 * from the op's defaults; and [outputs], if there are several. Names of blocks and files, comments and values
 * of parameters are not included. The graph must not be fused. model_load_text builds the same graph from
 * it. */
void graph_text(const struct graph *graph, struct text *out);

/* Lines on the outputs of a network that has several, for people. */
void graph_text_outputs(const struct graph *graph, struct text *out);

/* Appends the member "outputs" of a JSON object, for this batch; one that [outputs] does not name has its
 * layer's name, and weight 1. */
void graph_text_outputs_json(const struct graph *graph, int64_t batch, struct text *out);

/* How networks are compared: for the numbers of training, everything counts; for what weights mean, the
 * settings of layers that act in training alone, the number of classes, and which outputs there are do
 * not. */
enum graph_same { GRAPH_SAME_TRAINING, GRAPH_SAME_WEIGHTS };

/* True if two such texts describe the same network, for any image size; if not, `difference` is the first
 * layer that differs: "layer 'relu1' is 'relu6 conv1', not 'relu conv1'", as the second text has it and the
 * first. */
bool graph_text_same(const char *one, const char *other, enum graph_same how, struct reason *difference);
