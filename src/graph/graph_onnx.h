/* graph_onnx.h: writes a network for evaluation, with its weights, as an ONNX graph. */
#pragma once

#include "format/onnx.h"
#include "graph/graph.h"

struct graph_onnx_options {
    enum dtype dtype;            /* of weights and activations: F32 or F16 */
    bool softmax;                /* the output is probabilities, not logits */
    bool sigmoid;                /* ... of each label */
    bool scales;                 /* the output is a number: the network's times `scale`, plus `offset` */
    double scale, offset;
    bool keep_batchnorm;         /* do not fold batch norm into the convolution before it */
    /* A parameter's values, in torch's shape and order. */
    enum status (*read)(void *context, int param, float *values);
    void *context;
};

/* Writes nodes, weights and values between onnx_open and onnx_end. The input, "input", is batch x c x h x w
 * as the network gets it; the output, "logits", "probabilities" or "value", batch x classes; both are fp32.
 * USAGE, with the layer, for what ONNX cannot express or fp16 cannot represent. */
enum status graph_onnx(const struct graph *graph, const struct graph_onnx_options *options,
                       struct onnx *onnx);

/* Whether the table has a row for the op. */
bool graph_onnx_has(const struct op *op);
