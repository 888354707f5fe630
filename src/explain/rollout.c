#include "explain/rollout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/attention/attention.h"
#include "kernels/shape/slice.h"

static bool is_op(const struct node *node, const char *name)
{
    return node->op && strcmp(node->op->name, name) == 0;
}

static int pixels_of(const struct shape *shape)
{
    return (int)(shape->h * shape->w);
}

/* The patches are what learned tokens are prepended to. */
static struct shape patches_of(const struct graph *graph, int attention)
{
    for (int i = 1; i < graph->count; i++)
        if (is_op(&graph->nodes[i], "prepend")) return graph->nodes[graph->nodes[i].inputs[0]].shape;
    return graph->nodes[attention].shape;
}

/* The class token is read, or those that are cut off behind the last attention. */
static void find_read(const struct graph *graph, struct rollout *rollout)
{
    rollout->read = rollout->prefix > 0 ? 1 : rollout->tokens;
    for (int i = rollout->layers[rollout->count - 1] + 1; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        const struct token_slice *slice = node->settings;
        if (!is_op(node, "token_slice")) continue;
        if (pixels_of(&graph->nodes[node->inputs[0]].shape) != rollout->tokens) continue;
        rollout->first = (int)slice->first;
        rollout->read = (int)slice->count;
        return;
    }
}

bool rollout_open(const struct graph *graph, struct rollout *rollout)
{
    *rollout = (struct rollout){0};
    bool good = true;
    for (int i = 1; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        if (!is_op(node, "attention")) continue;
        const struct attention *settings = node->settings;
        int tokens = pixels_of(&graph->nodes[node->inputs[0]].shape);
        good = good && settings->window == 0 && (rollout->count == 0 || tokens == rollout->tokens);
        rollout->tokens = tokens;
        *array_push(rollout->layers, rollout->count) = i;
    }
    if (good && rollout->count > 0) {
        const struct shape patches = patches_of(graph, rollout->layers[0]);
        rollout->h = (int)patches.h;
        rollout->w = (int)patches.w;
        rollout->prefix = rollout->tokens - rollout->h * rollout->w;
        find_read(graph, rollout);
        if (rollout->prefix >= 0 && rollout->h * rollout->w > 1) return true;
    }
    rollout_close(rollout);
    return false;
}

void rollout_close(struct rollout *rollout)
{
    free(rollout->layers);
    *rollout = (struct rollout){0};
}

/* One layer's input: queries, keys and values of each token. */
struct layer {
    const float *first;              /* of the first token */
    int64_t channels;                /* from token to token */
    int tokens, heads, size;
};

/* The attention of a token's query in one head, which sums to 1. */
static void attend(const struct layer *layer, int head, int token, float *weights)
{
    const float *query = layer->first + token * layer->channels + head * layer->size;
    float largest = -INFINITY, sum = 0;
    for (int t = 0; t < layer->tokens; t++) {
        const float *key = layer->first + t * layer->channels + (layer->heads + head) * layer->size;
        float score = 0;
#pragma omp simd reduction(+ : score)
        for (int i = 0; i < layer->size; i++) score += query[i] * key[i];
        weights[t] = score / sqrtf((float)layer->size);
        if (weights[t] > largest) largest = weights[t];
    }
    for (int t = 0; t < layer->tokens; t++) sum += weights[t] = expf(weights[t] - largest);
    for (int t = 0; t < layer->tokens; t++) weights[t] /= sum;
}

/* Takes `made` back through this layer: half of each token comes from itself. */
static void go_back(const struct layer *layer, double *made)
{
    double *before = memory_new((size_t)layer->tokens, sizeof *before);
    float *weights = memory_new((size_t)layer->tokens, sizeof *weights);
    for (int token = 0; token < layer->tokens; token++) {
        before[token] += made[token] / 2;
        for (int head = 0; head < layer->heads && made[token] > 0; head++) {
            attend(layer, head, token, weights);
            for (int t = 0; t < layer->tokens; t++) before[t] += made[token] / 2 * weights[t] / layer->heads;
        }
    }
    memcpy(made, before, (size_t)layer->tokens * sizeof *made);
    free(before);
    free(weights);
}

/* From the least to the greatest. */
static void scale(const double *values, int count, float *map)
{
    double least = values[0], most = values[0];
    for (int i = 1; i < count; i++) {
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
    }
    for (int i = 0; i < count; i++) map[i] = most > least ? (float)((values[i] - least) / (most - least)) : 0;
}

void rollout_map(const struct rollout *rollout, const struct graph *graph, const float *inputs,
                 int64_t channels, float *map)
{
    double *made = memory_new((size_t)rollout->tokens, sizeof *made);
    int64_t at = 0;
    for (int i = 0; i < rollout->count; i++) at += 3 * graph->nodes[rollout->layers[i]].shape.c;
    for (int t = 0; t < rollout->read; t++) made[rollout->first + t] = 1.0 / rollout->read;
    for (int i = rollout->count - 1; i >= 0; i--) {
        const struct node *node = &graph->nodes[rollout->layers[i]];
        const struct attention *settings = node->settings;
        int64_t width = node->shape.c;
        at -= 3 * width;
        const struct layer layer = {inputs + at, channels, rollout->tokens, (int)settings->heads,
                                    (int)(width / settings->heads)};
        go_back(&layer, made);
    }
    scale(made + rollout->prefix, rollout->h * rollout->w, map);
    free(made);
}
