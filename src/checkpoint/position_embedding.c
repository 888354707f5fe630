#include "checkpoint/position_embedding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/tokens/tokens.h"

/* Returns the grid of the first layer above that adds neither tokens nor positions. */
struct image_size position_embedding_grid(const struct graph *graph, const struct parameter *parameter)
{
    const struct node *at = &graph->nodes[parameter->node];
    if (strcmp(at->op->name, "position") != 0) return (struct image_size){0};
    while (at->op && (strcmp(at->op->name, "position") == 0 || strcmp(at->op->name, "prepend") == 0))
        at = &graph->nodes[at->inputs[0]];
    return (struct image_size){(int)at->shape.h, (int)at->shape.w};
}

/* Patches are as large as in the graph. */
static struct image_size grid_of_images(const struct graph *graph, struct image_size own,
                                        struct image_size images)
{
    const struct shape *input = &graph->nodes[0].shape;
    int h = (int)input->h / own.h, w = (int)input->w / own.w;
    if (images.h == input->h && images.w == input->w) return own;
    return h > 0 && w > 0 ? (struct image_size){images.h / h, images.w / w} : (struct image_size){0};
}

bool position_embedding_fits(const struct graph *graph, const struct parameter *parameter,
                             const struct position_tensor *found, struct position_embedding *embedding)
{
    const struct node *node = &graph->nodes[parameter->node];
    const struct shape *shape = &parameter->spec.shape, *other = found->shape;
    struct image_size to = position_embedding_grid(graph, parameter);
    if (to.h == 0 || other->rank != 3 || other->dim[0] != 1 || other->dim[2] != shape->dim[2]) return false;
    int64_t prefix = ((const struct position *)node->settings)->prefix, patches = other->dim[1] - prefix;
    if (patches < 1 || prefix + to.h * to.w != shape->dim[1]) return false;
    struct image_size from = grid_of_images(graph, to, found->images);
    if ((int64_t)from.h * from.w != patches) from = image_size_square((int)llround(sqrt((double)patches)));
    if ((int64_t)from.h * from.w != patches) return false;
    *embedding = (struct position_embedding){
        .prefix = prefix, .channels = shape->dim[2],
        .from_h = from.h, .from_w = from.w, .to_h = to.h, .to_w = to.w,
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
