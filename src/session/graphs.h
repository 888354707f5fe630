/* graphs.h: the network of a run, for training images and for evaluation images. */
#pragma once

#include "graph/graph.h"
#include "input/data.h"

struct graphs {
    struct graph training;            /* as in the model file, with the parameters of train.freeze frozen, and
                                       * each parameter's learning rate factor */
    struct graph evaluation;          /* a separate graph if evaluation images have another size */
    bool own_evaluation;
    struct graph folded;              /* `evaluation` as steps to the outputs are compiled: batch norms are
                                       * part of convolutions, and the store has its parameters; no nodes: it
                                       * is compiled as it is */
    struct graph step;                /* `training` as steps are compiled, where that differs: for images of
                                       * another size (graphs_resize), or with a teacher; no nodes: it does
                                       * not */
    int64_t *pixels;                  /* [training.count] of each layer, with the smallest training images */
};

/* The graph of training steps. */
static inline const struct graph *graphs_step(const struct graphs *graphs)
{
    return graphs->step.nodes ? &graphs->step : &graphs->training;
}

struct graphs_options {
    const struct settings *settings;
    const char *file;                 /* the configuration's path; NULL: none */
    const struct data *data;          /* sizes, channels; classes: 0 for as many as the model file has */
    const struct data_hint *hint;     /* its network replaces the model file; NULL: none */
    bool any_outputs;                 /* whatever is learned; otherwise those that data->target needs */
};

/* Refused with key and place, USAGE. */
enum status graphs_open(const struct graphs_options *options, struct graphs *graphs);
/* Freezes the parameters of train.freeze for the first epochs only, or ends that; programs must be compiled
 * again. Until it is called, nothing is frozen, which needs the most memory. */
void graphs_freeze_first(struct graphs *graphs, bool frozen);
/* Freezes all parameters but statistics, or ends that; likewise. */
void graphs_freeze_weights(struct graphs *graphs, bool frozen);
/* Steps are compiled for training images of this size from now on, with the same parameters. What was
 * compiled before must be closed. */
enum status graphs_resize(struct graphs *graphs, const struct graphs_options *options,
                          struct image_size size);
/* Multiplies the learning rates of parameters that are no matrices of hidden layers. */
void graphs_scale_others(struct graphs *graphs, double factor);
void graphs_close(struct graphs *graphs);     /* accepts a zeroed or half-built struct */
