#include "data/dataset/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/dataset/by_class.h"
#include "data/dataset/dataset_identity.h"
#include "data/dataset/split_groups.h"

/* Something to be sorted by hash: an image, or a class by what is left of its share. */
struct ranked {
    uint64_t first, hash;      /* larger values of `first` come first */
    int64_t index;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->first != y->first) return x->first > y->first ? -1 : 1;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

struct drawing {
    const struct dataset *dataset;
    const int64_t *subset;
    uint64_t seed;
    struct by_class by;
    int64_t count;
    int64_t total;             /* images of classes that may be drawn from */
    bool spare;                /* every class keeps an image */
};

static int64_t class_size(const struct drawing *drawing, int class)
{
    return drawing->by.begins[class + 1] - drawing->by.begins[class];
}

/* How many of a class may be drawn. */
static int64_t class_room(const struct drawing *drawing, int class)
{
    return class_size(drawing, class) - drawing->spare;
}

static int64_t index_of(const struct drawing *drawing, int64_t position)
{
    return drawing->subset ? drawing->subset[position] : position;
}

/* Positions of a class's images in the order in which they are drawn. */
static void rank_class(const struct drawing *drawing, int class, struct ranked *ranked)
{
    const int64_t *members = drawing->by.images + drawing->by.begins[class];
    int64_t count = class_size(drawing, class);
    for (int64_t i = 0; i < count; i++) {
        uint64_t hash = dataset_identity_key(drawing->dataset, index_of(drawing, members[i]), drawing->seed);
        ranked[i] = (struct ranked){0, hash, members[i]};
    }
    qsort(ranked, (size_t)count, sizeof *ranked, by_rank);
}

/* Ties between classes are broken by their names, not their order, which would prefer the first ones. */
static struct ranked *rank_classes(const struct drawing *drawing, int64_t wanted)
{
    const struct dataset *dataset = drawing->dataset;
    struct ranked *ranked = memory_new((size_t)drawing->by.classes + 1, sizeof *ranked);
    for (int k = 0; k < drawing->by.classes; k++) {
        int64_t any = index_of(drawing, drawing->by.images[drawing->by.begins[k]]);
        const char *name = dataset->class_names[dataset->format->label(dataset, any)];
        uint64_t share = (uint64_t)class_size(drawing, k) * (uint64_t)wanted;
        ranked[k] = (struct ranked){share % (uint64_t)drawing->total,
                                    hash_bytes(drawing->seed, name, strlen(name)), k};
    }
    qsort(ranked, (size_t)drawing->by.classes, sizeof *ranked, by_rank);
    return ranked;
}

/* How many of each class are drawn (Hamilton's method): what the shares' whole parts leave are fewer than the
 * classes that have some room. */
static int64_t *divide(const struct drawing *drawing, int64_t wanted)
{
    int classes = drawing->by.classes;
    int64_t *shares = memory_new((size_t)classes + 1, sizeof *shares), left = wanted;
    struct ranked *ranked = rank_classes(drawing, wanted);
    for (int k = 0; k < classes; k++) {
        uint64_t share = (uint64_t)class_size(drawing, k) * (uint64_t)wanted / (uint64_t)drawing->total;
        int64_t room = class_room(drawing, k);
        shares[k] = room < (int64_t)share ? room : (int64_t)share;
        left -= room > 0 ? (int64_t)share : 0;
    }
    for (int i = 0; i < classes; i++) {
        int class = (int)ranked[i].index;
        if (left <= 0 || shares[class] == class_room(drawing, class)) continue;
        shares[class]++;
        left--;
    }
    free(ranked);
    return shares;
}

static int64_t draw(const struct drawing *drawing, int64_t wanted, bool *drawn)
{
    int64_t *shares = divide(drawing, wanted), count = 0;
    struct ranked *ranked = memory_new((size_t)drawing->count, sizeof *ranked);
    for (int k = 0; k < drawing->by.classes; k++) {
        rank_class(drawing, k, ranked);
        for (int64_t i = 0; i < shares[k]; i++) drawn[ranked[i].index] = true;
        count += shares[k];
    }
    free(ranked);
    free(shares);
    return count;
}

/* Images are dealt to the folds in turn, class by class. */
static int64_t deal(const struct drawing *drawing, int fold, int folds, bool *drawn)
{
    struct ranked *ranked = memory_new((size_t)drawing->count, sizeof *ranked);
    int64_t dealt = 0, count = 0;
    for (int k = 0; k < drawing->by.classes; k++) {
        if (class_size(drawing, k) < 2) continue;
        rank_class(drawing, k, ranked);
        for (int64_t i = 0; i < class_size(drawing, k); i++) {
            if (dealt++ % folds != fold - 1) continue;
            drawn[ranked[i].index] = true;
            count++;
        }
    }
    free(ranked);
    return count;
}

static struct drawing drawing_of(const struct dataset *dataset, const int64_t *subset, int64_t count,
                                 uint64_t seed, bool spare)
{
    struct drawing drawing = {dataset, subset, seed, by_class_make(dataset, subset, count), count, 0, spare};
    for (int k = 0; k < drawing.by.classes; k++)
        if (class_room(&drawing, k) > 0) drawing.total += class_size(&drawing, k);
    return drawing;
}

int64_t split_hold_out(const struct dataset *dataset, const struct split_holdout *holdout, bool *held)
{
    if (split_groups_any(dataset)) return split_groups_hold_out(dataset, holdout, held);
    struct drawing drawing = drawing_of(dataset, NULL, dataset->count, holdout->seed, true);
    int64_t wanted = llround((double)drawing.total * holdout->fraction), count = 0;
    if (holdout->folds > 0) count = deal(&drawing, holdout->fold, holdout->folds, held);
    else if (drawing.total > 0) count = draw(&drawing, wanted < 1 ? 1 : wanted, held);
    by_class_free(&drawing.by);
    return count;
}

void split_draw(const struct dataset *dataset, const int64_t *subset, int64_t count, int64_t wanted,
                uint64_t seed, bool *drawn)
{
    struct drawing drawing = drawing_of(dataset, subset, count, seed, false);
    draw(&drawing, wanted, drawn);
    by_class_free(&drawing.by);
}
