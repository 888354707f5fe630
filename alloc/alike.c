#include "alike.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* A life as shares of all the time that there is, so that models may be faster or slower. */
struct extent {
    int64_t begin, length;
};

static struct extent extent_of(const struct part_item *items, int count)
{
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (int i = 0; i < count; i++) {
        if (items[i].born < begin) begin = items[i].born;
        if (items[i].dies > end) end = items[i].dies;
    }
    return (struct extent){begin, end - begin};
}

static double share(struct extent extent, int64_t time)
{
    return (double)(time - extent.begin) / (double)extent.length;
}

/* A block, with what makes it like another. */
struct feature {
    double born, dies, size;
};

static struct feature *features_make(const struct part_item *items, int count, bool backwards)
{
    struct extent extent = extent_of(items, count);
    struct feature *features = memory_new((size_t)count, sizeof *features);
    for (int i = 0; i < count; i++) {
        double born = share(extent, items[i].born), dies = share(extent, items[i].dies);
        features[i] = (struct feature){backwards ? 1 - dies : born, backwards ? 1 - born : dies,
                                       (double)items[i].size};
    }
    return features;
}

/* A tenth of the size is as much as a hundredth of all the time. */
static double distance(const struct feature *a, const struct feature *b)
{
    double larger = a->size > b->size ? a->size : b->size;
    return fabs(a->born - b->born) + fabs(a->dies - b->dies) + 0.1 * fabs(a->size - b->size) / larger;
}

/* How far away a model may be, pass by pass. */
static const double passes[] = {0.001, 0.01, 0.1, INFINITY};
#define PASSES (int)(sizeof passes / sizeof *passes)

struct pair {
    int64_t offset;            /* of the model's block; INT64_MAX: it has none */
    int32_t index;
};

/* The block of the model that is the most like it, nearer than `least`, and that no other has taken; -1:
 * none. */
static int32_t nearest(const struct feature *feature, const struct feature *models, const bool *taken,
                       int count, double least)
{
    int32_t best = -1;
    for (int32_t i = 0; i < count; i++) {
        double away = taken[i] ? INFINITY : distance(feature, &models[i]);
        if (away >= least) continue;
        least = away;
        best = i;
    }
    return best;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *left = a, *right = b;
    if (left->offset != right->offset) return left->offset < right->offset ? -1 : 1;
    return (left->index > right->index) - (left->index < right->index);
}

/* Each as low as those placed before it allow. */
static int64_t place(const struct pair *pairs, const struct part_item *items, int count, int64_t *offsets)
{
    int64_t peak = 0;
    for (int i = 0; i < count; i++) {
        const struct part_item *item = &items[pairs[i].index];
        int64_t rest = 0;
        for (int j = 0; j < i; j++) {
            const struct part_item *other = &items[pairs[j].index];
            int64_t top = offsets[pairs[j].index] + other->size;
            if (other->lower < item->upper && item->lower < other->upper && top > rest) rest = top;
        }
        offsets[pairs[i].index] = rest;
        if (rest + item->size > peak) peak = rest + item->size;
    }
    return peak;
}

int64_t alike_place(const struct alike_model *model, const struct part_item *items, int count,
                    int64_t *offsets, int64_t *visits)
{
    struct feature *models = features_make(model->items, model->count, model->backwards);
    struct feature *features = features_make(items, count, false);
    struct pair *pairs = memory_new((size_t)count, sizeof *pairs);
    bool *taken = memory_new((size_t)model->count, sizeof *taken);
    for (int32_t i = 0; i < count; i++) pairs[i] = (struct pair){INT64_MAX, i};
    /* Those that have one of their own kind are to get it. */
    for (int pass = 0; pass < PASSES; pass++)
        for (int32_t i = 0; i < count; i++) {
            if (pairs[i].offset < INT64_MAX) continue;
            int32_t which = nearest(&features[i], models, taken, model->count, passes[pass]);
            *visits += model->count;
            if (which < 0) continue;
            pairs[i].offset = model->offsets[which];
            taken[which] = true;
        }
    qsort(pairs, (size_t)count, sizeof *pairs, compare_pairs);
    int64_t peak = place(pairs, items, count, offsets);
    *visits += (int64_t)count * count;
    free(taken);
    free(pairs);
    free(features);
    free(models);
    return peak;
}
