/* graph.h: a network as nodes in topological order: ops, inputs, settings and shapes; no memory, no
 * device. */
#pragma once

#include "base/shape.h"
#include "base/status.h"
#include "kernels/op.h"

struct node {
    char *name;                /* path: "layer1.0.conv1" */
    const struct op *op;       /* NULL for node 0, the input */
    void *settings;
    int *inputs;               /* earlier nodes */
    int input_count;
    struct shape shape;        /* of the output, for a batch of 1 */
    int param_first, param_count;   /* in graph.params */
    char *where;               /* "resnet50.ini:31", for messages */
    char *like;                /* the layer that its setting like= names, whose size it has; NULL: none */
    int block;                 /* number of the outermost block that it belongs to, from 1; 0: none */
};

/* A parameter of the network, by its full name. */
struct parameter {
    char *name;                /* "layer1.0.conv1.weight" */
    int node;
    struct op_param spec;      /* spec.name is the op's own */
    bool frozen;               /* train.freeze: no gradient, no update; a statistic is not updated */
    bool frozen_first;         /* ... in the first epochs only (train.freeze_epochs) */
    bool frozen_before;        /* `frozen`, while only statistics follow (graphs_freeze_weights) */
    double lr_scale;           /* factor of the learning rate (optimizer.layer_decay, optimizer.lr_scale) */
    int64_t rows;              /* of a hidden layer's weight as a matrix (graph_find_matrices); 0: none */
    int alike;                 /* how many matrices of the network have its size */
};

/* An output of a network that has several. */
struct graph_output {
    char *name;
    int node;
    double weight;             /* of its loss in the sum that is trained */
};

struct graph {
    char *arch;                /* "resnet50", or the file's name */
    struct node *nodes;
    int count;
    int output;                /* the node whose output are the logits; with several, that of the first */
    struct graph_output *outputs;   /* of [outputs]: only training programs compute all of them */
    int output_count;          /* 0: there is no such section */
    int classes;               /* the output's channels */
    int teacher;               /* the node of a teacher's logits (graph_with_teacher); 0: none */
    struct parameter *params;
    int param_count;
};

/* Creates a graph with only the input: node 0, "input", of this shape for a batch of 1. */
void graph_begin(struct graph *graph, const char *arch, struct shape input);

/* A node to add; the graph copies everything but `settings`, which it owns from then on. */
struct node_spec {
    const char *name;
    const struct op *op;
    void *settings;
    const int *inputs;
    int input_count;
    const char *where;         /* file and line */
    int block;                 /* 0: none */
};

/* Appends a node, which becomes the output; checks its inputs' shapes with op->shape and creates its
 * parameters. Frees spec->settings on failure. False, with a reason, which does not name file or layer. */
bool graph_add(struct graph *graph, const struct node_spec *spec, struct reason *reason);

/* The shape of every node for a batch of n, into shapes[graph->count]. */
void graph_shapes(const struct graph *graph, int64_t n, struct shape *shapes);

/* For each node, the number of later layers with weights, on the longest path to the output; with `by_block`,
 * an outermost block counts as one layer; into layers[graph->count]. */
void graph_layers_behind(const struct graph *graph, bool by_block, int *layers);

/* The last layer with weights, which is the classifier; that of the first head, if there are two; 0: none. */
int graph_classifier(const struct graph *graph);

/* True if the network ends in the mean of two heads, and the nodes of their outputs. With a teacher, the
 * first learns the labels, and the second from the teacher. */
bool graph_heads(const struct graph *graph, int heads[2]);

/* True if a node has weights and none are behind it, or between it and one of several outputs: the
 * classifier, and those of further heads and outputs. */
bool graph_is_classifier(const struct graph *graph, int node);

/* Sets leads[graph->count]: true for nodes that the network's own output, the first one, depends on. */
void graph_leads_to_output(const struct graph *graph, bool *leads);

/* The part of a network up to a node, whose output it has; with `mean`, the mean over the node's pixels. Its
 * parameters are the first ones of the whole network's. */
struct graph graph_until(const struct graph *graph, int node, bool mean);

/* True if there is a layer of that op. */
bool graph_has(const struct graph *graph, const char *op);

/* A copy whose input is the output of a node, on every way to the output: the layers up to it are without
 * readers, and are not computed. Numbers of nodes and parameters stay. */
struct graph graph_behind(const struct graph *graph, int node);

/* A copy of the student's graph with the teacher's behind it, which has the same input. The teacher's nodes
 * and parameters are called "teacher.NAME"; its parameters, which are frozen, come after the student's. */
struct graph graph_with_teacher(const struct graph *student, const struct graph *teacher);

/* Sets rows and alike of all parameters: a weight of two or four dimensions, rows by all the others, is the
 * matrix of a hidden layer unless only layers without such weights are in front of it, or behind it. */
void graph_find_matrices(struct graph *graph);

/* The part up to the last of several nodes, whose output are theirs, one beside the other in each pixel's
 * channels; they have equally many pixels. */
struct graph graph_join(const struct graph *graph, const int *nodes, int count);

/* A node or parameter by name; -1 if there is none. */
int graph_find(const struct graph *graph, const char *name);
int graph_find_param(const struct graph *graph, const char *name);

/* Elements of all trained parameters. */
int64_t graph_param_elements(const struct graph *graph);
int64_t graph_trained_elements(const struct graph *graph);     /* of those that are not frozen */
void graph_free(struct graph *graph);
struct graph graph_copy(const struct graph *graph);
void graph_free_node(struct node *node);    /* what it owns; not its parameters */

/* Replaces batch norm + activation, and batch norm + add + ReLU, by one fused op (kernels/norm/batchnorm.c),
 * if the intermediate has no other reader. Parameter names do not change. */
enum status fuse(struct graph *graph);
