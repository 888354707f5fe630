#include "data/dataset/split_groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/dataset/dataset_identity.h"

/* Counts of classes in parts that are kept; of more, only the images are counted. */
#define COUNTS_MAX ((int64_t)1 << 26)

struct member {
    uint64_t group;
    int label;
    int64_t index;
};

struct group {
    int64_t begin, count;      /* among the members */
    uint64_t hash;
};

struct grouping {
    const struct dataset *dataset;
    struct member *members;    /* [dataset->count] by group, then class */
    struct group *groups;
    int64_t group_count;
    int parts, classes;
    double *shares;            /* [parts] */
    int64_t *totals;           /* [classes] images */
    int64_t *counts;           /* [parts][classes] images so far */
};

bool split_groups_any(const struct dataset *dataset)
{
    for (int64_t i = 0; dataset->format->group && i < dataset->count; i++)
        if (dataset->format->group(dataset, i)) return true;
    return false;
}

static int by_group(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->label != y->label) return x->label < y->label ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static int by_size(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

/* An image in no group is one by itself. */
static void find_groups(struct grouping *grouping, uint64_t seed)
{
    const struct dataset *dataset = grouping->dataset;
    bool labels = dataset->format->label && grouping->classes == dataset->classes;
    grouping->members = memory_new((size_t)dataset->count, sizeof *grouping->members);
    for (int64_t i = 0; i < dataset->count; i++) {
        uint64_t group = dataset->format->group(dataset, i);
        if (group == 0) group = dataset_identity_key(dataset, i, 1);
        grouping->members[i] = (struct member){group, labels ? dataset->format->label(dataset, i) : 0, i};
        grouping->totals[grouping->members[i].label]++;
    }
    qsort(grouping->members, (size_t)dataset->count, sizeof *grouping->members, by_group);
    for (int64_t i = 0, end; i < dataset->count; i = end) {
        uint64_t group = grouping->members[i].group;
        for (end = i + 1; end < dataset->count && grouping->members[end].group == group;) end++;
        *array_push(grouping->groups, grouping->group_count) =
            (struct group){i, end - i, hash_bytes(seed, &group, sizeof group)};
    }
    qsort(grouping->groups, (size_t)grouping->group_count, sizeof *grouping->groups, by_size);
}

/* How many of a group, from its member `at` on, are of the same class. */
static int64_t run_of(const struct grouping *grouping, const struct group *group, int64_t at)
{
    const struct member *members = grouping->members + group->begin;
    int64_t end = at;
    while (end < group->count && members[end].label == members[at].label) end++;
    return end - at;
}

/* The increase of chi-squared with the group in that part. */
static double growth(const struct grouping *grouping, const struct group *group, int part)
{
    double sum = 0;
    for (int64_t at = 0, run; at < group->count; at += run) {
        int label = grouping->members[group->begin + at].label;
        double wanted = grouping->shares[part] * (double)grouping->totals[label];
        double missing = wanted - (double)grouping->counts[(int64_t)part * grouping->classes + label];
        run = run_of(grouping, group, at);
        sum += (double)run * ((double)run - 2 * missing) / wanted;
    }
    return sum;
}

static int best_part(const struct grouping *grouping, const struct group *group)
{
    int best = 0;
    double least = growth(grouping, group, 0);
    for (int part = 1; part < grouping->parts; part++) {
        double sum = growth(grouping, group, part);
        if (sum < least) best = part, least = sum;
    }
    return best;
}

static void add_group(struct grouping *grouping, const struct group *group, int part)
{
    for (int64_t at = 0; at < group->count; at++) {
        int label = grouping->members[group->begin + at].label;
        grouping->counts[(int64_t)part * grouping->classes + label]++;
    }
}

static int64_t hold(const struct grouping *grouping, const struct group *group, bool *held)
{
    for (int64_t at = 0; at < group->count; at++) held[grouping->members[group->begin + at].index] = true;
    return group->count;
}

/* Holds out a part. */
static int64_t divide(struct grouping *grouping, int part, bool *held)
{
    int64_t count = 0;
    for (int64_t i = 0; i < grouping->group_count; i++) {
        const struct group *group = &grouping->groups[i];
        int best = best_part(grouping, group);
        add_group(grouping, group, best);
        if (best == part) count += hold(grouping, group, held);
    }
    return count;
}

/* Both sides get images: at least the smallest group. */
static int64_t divide_in_two(struct grouping *grouping, bool *held)
{
    int64_t count = divide(grouping, 0, held);
    if (count == grouping->dataset->count) {
        memset(held, 0, (size_t)count * sizeof *held);
        count = 0;
    }
    if (count == 0 && grouping->group_count > 1)
        count = hold(grouping, &grouping->groups[grouping->group_count - 1], held);
    return count;
}

int64_t split_groups_hold_out(const struct dataset *dataset, const struct split_holdout *holdout, bool *held)
{
    bool folds = holdout->folds > 0;
    int parts = folds ? holdout->folds : 2;
    struct grouping grouping = {.dataset = dataset, .parts = parts, .classes = dataset->classes};
    if ((int64_t)parts * dataset->classes > COUNTS_MAX) grouping.classes = 1;
    size_t classes = (size_t)grouping.classes;
    grouping.shares = memory_new((size_t)parts, sizeof *grouping.shares);
    grouping.totals = memory_new(classes, sizeof *grouping.totals);
    grouping.counts = memory_new((size_t)parts * classes, sizeof *grouping.counts);
    for (int i = 0; i < parts; i++) grouping.shares[i] = 1.0 / parts;
    if (!folds) {
        grouping.shares[0] = holdout->fraction;
        grouping.shares[1] = 1 - holdout->fraction;
    }
    find_groups(&grouping, holdout->seed);
    bool few = folds && grouping.group_count < parts;
    int64_t count = few     ? 0
                    : folds ? divide(&grouping, holdout->fold - 1, held)
                            : divide_in_two(&grouping, held);
    free(grouping.members);
    free(grouping.groups);
    free(grouping.shares);
    free(grouping.totals);
    free(grouping.counts);
    return count;
}
