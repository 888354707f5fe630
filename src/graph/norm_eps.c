#include "graph/norm_eps.h"

#include <math.h>
#include <string.h>

#include "kernels/norm/layernorm.h"

static struct layernorm *layernorm_of(const struct node *node)
{
    return node->op && strcmp(node->op->name, "layernorm") == 0 ? node->settings : NULL;
}

double norm_eps_of(const struct graph *graph)
{
    double eps = 0;
    for (int i = 0; i < graph->count; i++) {
        const struct layernorm *s = layernorm_of(&graph->nodes[i]);
        if (s && eps > 0 && s->eps != eps) return 0;
        if (s) eps = s->eps;
    }
    return eps;
}

bool norm_eps_differs(double eps, double other)
{
    return eps > 0 && other > 0 && fabs(eps - other) > 1e-3 * eps;
}

enum status norm_eps_set(double eps, struct graph *graph)
{
    int set = 0;
    for (int i = 0; i < graph->count; i++) {
        struct layernorm *s = layernorm_of(&graph->nodes[i]);
        if (s) s->eps = eps, set++;
    }
    return set > 0 ? OK : fail(USAGE, "model.norm_eps: the network '%s' has no layer norm", graph->arch);
}
