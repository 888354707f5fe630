/* cuda_dnn.h: small cuDNN operation graphs, the engines that support them, and plans that run them.
 *
 * A graph is described tensor by tensor and operation by operation, finalised, and then queried for engines.
 * A graph that cuDNN rejects is no error here: it has other engines, and callers have alternatives. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "device/cuda.h"

#define DNN_TENSORS 32

/* Dimensions are n, c, h, w (k, c / groups, r, s of weights), wherever they lie in memory. */
struct dnn_tensor {
    enum dtype dtype;
    int64_t dim[4];
    int64_t stride[4];/* in elements; all 0: n outermost, and c innermost */
    bool planar;      /* then w innermost */
    bool on_chip;     /* between two operations, never in memory */
    bool by_value;    /* one float in host memory, which is read when the plan is run */
};

/* [0] is along h, [1] along w. Groups follow from the channels of x and of the weights. */
struct dnn_convolution {
    int64_t pad[2], stride[2], dilation[2];
};

struct dnn_graph;
struct dnn_graph *dnn_graph_new(void);
void dnn_graph_free(struct dnn_graph *graph);

/* The tensor's number: its place in the data of dnn_plan_run. */
int dnn_graph_tensor(struct dnn_graph *graph, struct dnn_tensor tensor);

/* Operations, in running order. Arithmetic is fp32 (tf32 where dnn_rules say so). */
void dnn_graph_forward(struct dnn_graph *graph, const struct dnn_convolution *convolution, int x, int weight,
                       int y);
void dnn_graph_backward_data(struct dnn_graph *graph, const struct dnn_convolution *convolution, int d_y,
                             int weight, int d_x);
void dnn_graph_backward_weight(struct dnn_graph *graph, const struct dnn_convolution *convolution, int x,
                               int d_y, int d_weight);
/* max(0, x), which a NaN passes. */
void dnn_graph_relu(struct dnn_graph *graph, int x, int y);
/* Per channel: the sum of x and of its squares, fp32 of dimensions 1, c, 1, 1. */
void dnn_graph_statistics(struct dnn_graph *graph, int x, int sum, int squares);

/* c = a b, of the matrices h x w of each n and c. */
void dnn_graph_matmul(struct dnn_graph *graph, int a, int b, int c);
/* y = a op b, where b may have a single column, or be a single number. */
enum dnn_binary { DNN_SUBTRACT, DNN_MULTIPLY, DNN_DIVIDE, DNN_ADD };
void dnn_graph_binary(struct dnn_graph *graph, enum dnn_binary op, int a, int b, int y);
enum dnn_unary { DNN_EXP, DNN_LOG, DNN_COPY };
void dnn_graph_unary(struct dnn_graph *graph, enum dnn_unary op, int x, int y);
/* y is one column: the rows' maxima or sums. */
enum dnn_reduction { DNN_MAXIMUM, DNN_SUM };
void dnn_graph_reduce(struct dnn_graph *graph, enum dnn_reduction op, int x, int y);
/* y is x with other dimensions or strides, as they were described. */
void dnn_graph_reshape(struct dnn_graph *graph, int x, int y);

/* False if the library does not know what was described. */
bool dnn_graph_finish(struct dnn_graph *graph, cudnnHandle_t handle);

/* The use of engines that are compiled at run time, in 50 ms and more. */
enum dnn_compiled { DNN_COMPILED_FOR_WANT_OF_OTHERS, DNN_COMPILED_NEVER, DNN_COMPILED_TOO };

struct dnn_rules {
    bool tensor_cores;     /* for fp32 data that means: factors rounded to tf32 */
    bool deterministic;    /* the same bits every time: no sums in the order of arrival */
    enum dnn_compiled compiled;
};

/* An engine and its settings as text: "37 2=5 12=0". */
#define DNN_ENGINE_TEXT 192

/* Engines that keep the rules, in the library's order of preference; how many. */
int dnn_graph_engines(struct dnn_graph *graph, const struct dnn_rules *rules, int most,
                      char engines[][DNN_ENGINE_TEXT]);

/* NULL if the text names no engine that takes the graph. A plan outlives its graph, and may be run by
 * another handle of the same device. */
struct dnn_plan;
struct dnn_plan *dnn_plan_make(struct dnn_graph *graph, cudnnHandle_t handle, const char *engine);
void dnn_plan_free(struct dnn_plan *plan);
size_t dnn_plan_workspace(const struct dnn_plan *plan);
/* Queues it. data[i] is where tensor i lies; what is on chip lies nowhere. */
cudnnStatus_t dnn_plan_run(const struct dnn_plan *plan, cudnnHandle_t handle, void *const data[DNN_TENSORS],
                           void *workspace);
