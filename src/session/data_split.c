#include "session/data_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/by_class.h"

/* Marks `wanted` of the images: of each class its share, rounded up or down, every subset with equal
 * probability (Floyd's algorithm for sampling). */
static void choose(const struct images *images, int64_t wanted, struct random *random, bool *chosen)
{
    struct by_class by = by_class_make(images->dataset, images->subset, images->count);
    double share = (double)wanted / (double)images->count;
    for (int k = 0; k < by.classes; k++) {
        const int64_t *members = by.images + by.begins[k];
        int64_t count = by.begins[k + 1] - by.begins[k];
        int64_t some = llround((double)by.begins[k + 1] * share) - llround((double)by.begins[k] * share);
        for (int64_t top = count - some; top < count; top++) {
            int64_t drawn = members[random_below(random, (uint32_t)top + 1)];
            chosen[chosen[drawn] ? members[top] : drawn] = true;
        }
    }
    by_class_free(&by);
}

/* The images that are marked, or those that are not, in file order. */
static struct images part_of(const struct images *images, const bool *chosen, bool marked, int64_t count)
{
    struct images part = *images;
    part.subset = memory_new((size_t)count, sizeof(int64_t));
    part.count = 0;
    for (int64_t i = 0; i < images->count; i++)
        if (chosen[i] == marked) part.subset[part.count++] = images_index(images, i);
    return part;
}

void data_split(const struct data_opening *o)
{
    struct images *train = &o->data->train, all = *train;
    int64_t val = llround((double)all.count * o->settings->data.val_fraction);
    if (val < 1) val = 1;
    bool *chosen = memory_new((size_t)all.count, sizeof *chosen);
    struct random random = random_open((uint64_t)o->settings->run.seed, PURPOSE_SPLIT, 0, 0);
    choose(&all, val, &random, chosen);
    *train = part_of(&all, chosen, false, all.count - val);
    o->data->val = part_of(&all, chosen, true, val);
    free(chosen);
}

void data_limit(const struct data_opening *o)
{
    struct images *train = &o->data->train, all = *train;
    int64_t limit = o->settings->data.limit;
    if (limit == 0 || limit >= all.count) return;
    bool *chosen = memory_new((size_t)all.count, sizeof *chosen);
    struct random random = random_open((uint64_t)o->settings->run.seed, PURPOSE_SPLIT, 1, 0);
    if (o->settings->data.shuffle) choose(&all, limit, &random, chosen);
    else memset(chosen, true, (size_t)limit);
    *train = part_of(&all, chosen, true, limit);
    free(all.subset);
    free(chosen);
}
