/* features.h: the input of the last layers, of all images of a run that trains nothing else (probe.h). */
#pragma once

#include "data/loader/loader.h"
#include "graph/graph.h"

struct features {
    struct graph head;                      /* of which steps are compiled (graph_behind); no nodes: steps
                                             * begin with images */
    struct loader_features splits[2];       /* by enum split; rows NULL: there are no such images */
};

void features_close(struct features *features);      /* accepts a zeroed struct */
