/* graph_text.h: a graph as a model file with all blocks expanded, for comparing networks. */
#pragma once

#include "graph/graph.h"

/* [input] and [layers] with one line per node: its full name, its op, its inputs, and the settings that
 * differ from the op's defaults. Names of blocks and files, comments and values of parameters are not
 * included. The graph must not be fused. model_load_text builds the same graph from it. */
void graph_text(const struct graph *graph, struct text *out);

/* Whether two such texts describe the same network, for any image size; if not, `difference` is the first
 * layer that differs: "layer 'relu1' was 'relu conv1', and is 'relu6 conv1' now". */
bool graph_text_same(const char *then, const char *now, struct reason *difference);
