/* graphs.h: the network of a run, for training images and for evaluation images. */
#pragma once

#include "graph/graph.h"
#include "session/data.h"

struct graphs {
    struct graph training;            /* as the model file has it, with what train.freeze names frozen,
                                       * and each parameter's part of the learning rate */
    struct graph evaluation;          /* its own when evaluation images are of another size */
    bool own_evaluation;
};

struct graphs_options {
    const struct settings *settings;
    const char *file;                 /* the configuration's path; NULL: none */
    const struct data *data;          /* sizes, channels; classes: 0 for as many as the model file has */
    const struct data_hint *hint;     /* its network stands in for the model file; NULL: none does */
};

/* Refused with key and place, USAGE. */
enum status graphs_open(const struct graphs_options *options, struct graphs *graphs);
/* Freezes what train.freeze names for the first epochs alone, or does so no longer; programs are to be made
 * anew. Until it is called they are those of all parameters, which need most. */
void graphs_freeze_first(struct graphs *graphs, bool frozen);
void graphs_close(struct graphs *graphs);     /* accepts a zeroed or half-built struct */
