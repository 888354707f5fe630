#include "checkpoint/position_embedding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/tokens/tokens.h"

/* The grid of patches: of the first layer above that adds neither tokens nor positions. */
static struct shape grid_of(const struct graph *graph, int node)
{
    const struct node *at = &graph->nodes[node];
    while (at->op && (strcmp(at->op->name, "position") == 0 || strcmp(at->op->name, "prepend") == 0))
        at = &graph->nodes[at->inputs[0]];
    return at->shape;
}

bool position_embedding_fits(const struct graph *graph, const struct parameter *parameter,
                             const struct shape *found, struct position_embedding *embedding)
{
    const struct node *node = &graph->nodes[parameter->node];
    const struct shape *shape = &parameter->spec.shape;
    if (strcmp(node->op->name, "position") != 0) return false;
    if (found->rank != 3 || found->dim[0] != 1 || found->dim[2] != shape->dim[2]) return false;
    int64_t prefix = ((const struct position *)node->settings)->prefix, patches = found->dim[1] - prefix;
    int64_t side = patches > 0 ? (int64_t)llround(sqrt((double)patches)) : 0;
    struct shape grid = grid_of(graph, parameter->node);
    if (side < 1 || side * side != patches || prefix + grid.h * grid.w != shape->dim[1]) return false;
    *embedding = (struct position_embedding){
        .prefix = prefix, .channels = shape->dim[2],
        .from_h = side, .from_w = side, .to_h = grid.h, .to_w = grid.w,
    };
    return true;
}

/* Keys (1981) with a = -1/2, as PyTorch has it with antialiasing. */
static double cubic(double x)
{
    x = fabs(x);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

/* The weights of all source positions for target position i, which sum to one. */
static void axis_weights(int64_t size, int64_t target, int64_t i, double *weight)
{
    double scale = (double)size / (double)target, width = scale > 1 ? scale : 1, sum = 0;
    for (int64_t k = 0; k < size; k++) {
        weight[k] = cubic(((double)k + 0.5 - scale * ((double)i + 0.5)) / width);
        sum += weight[k];
    }
    for (int64_t k = 0; k < size; k++) weight[k] /= sum;
}

/* Brings one axis from `size` to `target`: arrays of [outer, axis, inner]. */
static void resize_axis(const double *from, double *to, int64_t outer, int64_t size, int64_t target,
                        int64_t inner)
{
    double *weight = memory_new((size_t)size, sizeof *weight);
    for (int64_t i = 0; i < target; i++) {
        axis_weights(size, target, i, weight);
        for (int64_t o = 0; o < outer; o++) {
            double *row = to + (o * target + i) * inner;
            for (int64_t k = 0; k < size; k++)
                for (int64_t c = 0; weight[k] != 0 && c < inner; c++)
                    row[c] += weight[k] * from[(o * size + k) * inner + c];
        }
    }
    free(weight);
}

void position_embedding_resize(const struct position_embedding *e, const float *from, float *to)
{
    int64_t kept = e->prefix * e->channels, sources = e->from_h * e->from_w * e->channels;
    double *source = memory_new((size_t)sources, sizeof *source);
    double *wide = memory_new((size_t)(e->from_h * e->to_w * e->channels), sizeof *wide);
    double *grid = memory_new((size_t)(e->to_h * e->to_w * e->channels), sizeof *grid);
    memcpy(to, from, (size_t)kept * sizeof *to);
    for (int64_t i = 0; i < sources; i++) source[i] = from[kept + i];
    resize_axis(source, wide, e->from_h, e->from_w, e->to_w, e->channels);
    resize_axis(wide, grid, 1, e->from_h, e->to_h, e->to_w * e->channels);
    for (int64_t i = 0; i < e->to_h * e->to_w * e->channels; i++) to[kept + i] = (float)grid[i];
    free(source);
    free(wide);
    free(grid);
}
