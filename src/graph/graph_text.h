/* graph_text.h: a graph as a model file with all blocks expanded, for comparing networks. */
#pragma once

#include "graph/graph.h"

/* [input] and [layers], a line a node: its full name, its op, its inputs, and the settings that are not the
 * op's defaults. Names of blocks and files, comments and values of parameters do not show in it. The graph
 * must not be fused. model_load_text makes the same graph of it. */
void graph_text(const struct graph *graph, struct text *out);

/* Whether two such texts are of one network, whatever the size of its images; if not, `difference` is the
 * first layer that differs: "layer 'relu1' was 'relu conv1', and is 'relu6 conv1' now". */
bool graph_text_same(const char *then, const char *now, struct reason *difference);
