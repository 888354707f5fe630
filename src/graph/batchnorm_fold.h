/* batchnorm_fold.h: batch norms by their running statistics become part of the convolutions in front of
 * them. */
#pragma once

#include "graph/graph.h"

/* Sets norms[graph->count]: for each convolution whose output nobody but a batch norm reads, that one's node,
 * otherwise 0. */
void batchnorm_fold_find(const struct graph *graph, int *norms);

/* A copy without these batch norms: their convolutions have biases. Names of layers and parameters that stay
 * do not change, their numbers do. */
struct graph batchnorm_fold(const struct graph *graph, const int *norms);

/* A batch norm's effect: y = scale * x + shift, by channel; the caller frees both. `read` returns a new
 * array with the values of a parameter of the graph. */
struct affine {
    float *scale, *shift;
};
struct affine batchnorm_fold_affine(const struct node *norm, float *(*read)(void *context, int param),
                                    void *context);

/* Weights `from`, of so many filters with `each` numbers, get the filter's factor; biases (`each` is 1) the
 * summand, too. `to` may be `from`. */
void batchnorm_fold_apply(const struct affine *affine, int64_t filters, int64_t each, bool bias,
                          const float *from, float *to);
