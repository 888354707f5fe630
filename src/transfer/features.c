#include "transfer/features.h"

#include <stdlib.h>

void features_close(struct features *features)
{
    for (int i = 0; i < 2; i++) {
        free(features->splits[i].rows);
        free(features->splits[i].row);
        free(features->splits[i].labels);
    }
    if (features->head.nodes) graph_free(&features->head);
    *features = (struct features){0};
}
