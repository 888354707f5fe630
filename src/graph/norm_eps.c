#include "graph/norm_eps.h"

#include <math.h>
#include <string.h>

#include "kernels/norm/batchnorm.h"
#include "kernels/norm/layernorm.h"

/* NULL: the node is none of these norms. */
static double *eps_in(const struct node *node, bool layer_norms)
{
    if (!node->op || strcmp(node->op->name, layer_norms ? "layernorm" : "batchnorm") != 0) return NULL;
    return layer_norms ? &((struct layernorm *)node->settings)->eps
                       : &((struct batchnorm *)node->settings)->eps;
}

double norm_eps_of(const struct graph *graph)
{
    bool layer_norms = graph_has(graph, "layernorm");
    double eps = 0;
    for (int i = 0; i < graph->count; i++) {
        const double *here = eps_in(&graph->nodes[i], layer_norms);
        if (here && eps > 0 && *here != eps) return 0;
        if (here) eps = *here;
    }
    return eps;
}

bool norm_eps_differs(double eps, double other)
{
    return eps > 0 && other > 0 && fabs(eps - other) > 1e-3 * eps;
}

enum status norm_eps_set(double eps, struct graph *graph)
{
    bool layer_norms = graph_has(graph, "layernorm");
    int set = 0;
    for (int i = 0; i < graph->count; i++) {
        double *here = eps_in(&graph->nodes[i], layer_norms);
        if (here) *here = eps, set++;
    }
    if (set > 0) return OK;
    return fail(USAGE, "model.norm_eps: the network '%s' has neither layer norms nor batch norms",
                graph->arch);
}
