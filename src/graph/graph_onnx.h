/* graph_onnx.h: writes a network for evaluation, with its weights, as an ONNX graph. */
#pragma once

#include "data/augment/augment.h"
#include "format/onnx.h"
#include "graph/graph.h"

/* The numbers that 8 bits are to represent; it contains 0. Equal ends: there were only zeros, or none. */
struct graph_onnx_range {
    double low, high;
};

struct graph_onnx_options {
    enum dtype dtype;            /* of weights and activations: F32 or F16 */
    bool softmax;                /* the output is probabilities, not logits */
    bool pixels;                 /* ... of each pixel; images have any size, if all layers allow that */
    bool argmax;                 /* ... then: the most probable class */
    bool sigmoid;                /* ... of each label */
    bool scales;                 /* the output is a number: the network's times `scale`, plus `offset` */
    double scale, offset;
    const struct augment *preprocess;   /* the input is bytes of images, which are resized, cropped and
                                  * normalised as an evaluation's; with `pixels` only normalised, in their own
                                  * size. NULL: it is what the network gets */
    const struct graph_onnx_range *ranges;   /* by node: convolutions, linear layers, additions and pooling
                                  * are of 8 bits (QuantizeLinear and DequantizeLinear around fp32 operators,
                                  * which runtimes fuse); NULL: all is of dtype */
    bool keep_batchnorm;         /* do not fold batch norm into the convolution before it */
    /* A parameter's values, in torch's shape and order. */
    enum status (*read)(void *context, int param, float *values);
    void *context;
};

/* Writes nodes, weights and values between onnx_open and onnx_end. The input, "input", is batch x c x h x w
 * as the network gets it, in fp32, or bytes of images, batch x h x w x c; the output, "logits",
 * "probabilities" or "value", batch x classes in fp32; of pixels batch x classes x h x w, or "classes",
 * batch x h x w bytes. USAGE, with the layer, for what ONNX cannot express or fp16 cannot represent. */
enum status graph_onnx(const struct graph *graph, const struct graph_onnx_options *options,
                       struct onnx *onnx);

/* The first layer that works for images of one size only; NULL: there is none. */
const char *graph_onnx_fixed(const struct graph *graph);

/* True if the table has a row for the op. */
bool graph_onnx_has(const struct op *op);
