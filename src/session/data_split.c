#include "session/data_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"

/* All are of one class where labels are not known before images are read. */
static int label_of(const struct images *images, int64_t position)
{
    const struct dataset *dataset = images->dataset;
    return dataset->format->label ? dataset->format->label(dataset, images_index(images, position)) : 0;
}

/* The positions of the images by class, in file order in each; those of class k begin at begins[k]. */
static int64_t *sort_by_class(const struct images *images, int64_t *begins)
{
    int classes = images->dataset->classes;
    int64_t *order = memory_new((size_t)images->count, sizeof *order);
    int64_t *next = memory_new((size_t)classes + 1, sizeof *next);
    for (int64_t i = 0; i < images->count; i++) begins[label_of(images, i) + 1]++;
    for (int k = 0; k < classes; k++) next[k + 1] = begins[k + 1] += begins[k];
    for (int64_t i = 0; i < images->count; i++) order[next[label_of(images, i)]++] = i;
    free(next);
    return order;
}

/* Marks `wanted` of the images: of each class its share, give or take one, each set of them equally likely
 * (Floyd's choice of so many numbers below another). */
static void choose(const struct images *images, int64_t wanted, struct random *random, bool *chosen)
{
    int classes = images->dataset->classes;
    int64_t *begins = memory_new((size_t)classes + 1, sizeof *begins), *order = sort_by_class(images, begins);
    double share = (double)wanted / (double)images->count;
    for (int k = 0; k < classes; k++) {
        const int64_t *members = order + begins[k];
        int64_t count = begins[k + 1] - begins[k];
        int64_t some = llround((double)begins[k + 1] * share) - llround((double)begins[k] * share);
        for (int64_t top = count - some; top < count; top++) {
            int64_t drawn = members[random_below(random, (uint32_t)top + 1)];
            chosen[chosen[drawn] ? members[top] : drawn] = true;
        }
    }
    free(order);
    free(begins);
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
