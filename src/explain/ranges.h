/* ranges.h: the numbers that each layer of a network puts out for training images, for export in 8 bits. */
#pragma once

#include "explain/trained_network.h"
#include "graph/graph_onnx.h"

/* Runs `images` of the training images (fewer, if there are fewer), chosen evenly and preprocessed as in an
 * evaluation. ranges[i] becomes that of node i of the evaluation's graph, node 0 being the image: the one,
 * not larger than that of all numbers seen, for which 255 equal steps have the least squared error. Layers
 * that compute nothing have none. */
enum status ranges_find(struct trained *trained, int images, struct graph_onnx_range *ranges);
