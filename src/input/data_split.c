#include "input/data_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset/split.h"

bool data_holds_out(const struct settings *settings)
{
    return settings->data.val_fraction > 0 || settings->data.fold;
}

/* "K/N". */
static bool parse_fold(const char *text, struct split_holdout *holdout)
{
    char *end;
    errno = 0;
    long fold = strtol(text, &end, 10);
    if (end == text || *end != '/') return false;
    const char *rest = end + 1;
    long folds = strtol(rest, &end, 10);
    if (end == rest || *end != '\0' || errno != 0) return false;
    if (folds < 2 || folds > SPLIT_FOLDS_MAX || fold < 1 || fold > folds) return false;
    holdout->fold = (int)fold;
    holdout->folds = (int)folds;
    return true;
}

static enum status read_holdout(const struct settings *settings, struct split_holdout *holdout)
{
    *holdout = (struct split_holdout){
        .seed = (uint64_t)settings->data.split_seed, .fraction = settings->data.val_fraction,
    };
    if (!settings->data.fold) return OK;
    if (settings->data.val_fraction > 0)
        return settings_refuse(settings, "data", "fold", "cannot be combined with data.val_fraction");
    if (parse_fold(settings->data.fold, holdout)) return OK;
    return settings_refuse(settings, "data", "fold", "must be K/N, fold K from 1 to N of 2 to %d, not '%s'",
                           SPLIT_FOLDS_MAX, settings->data.fold);
}

/* Marks the images that are not held out, or data.limit of them. */
static void select_training(const struct dataset *dataset, const struct settings *settings,
                            struct data_selection *selection)
{
    int64_t limit = settings->data.limit, count = 0;
    int64_t *rest = memory_new((size_t)dataset->count, sizeof *rest);
    for (int64_t i = 0; i < dataset->count; i++)
        if (!selection->held[i]) rest[count++] = i;
    bool all = limit == 0 || limit >= count, *drawn = memory_new((size_t)count + 1, sizeof *drawn);
    if (all || !settings->data.shuffle) memset(drawn, true, (size_t)(all ? count : limit));
    else split_draw(dataset, rest, count, limit, (uint64_t)settings->run.seed, drawn);
    for (int64_t i = 0; i < count; i++) selection->trained[rest[i]] = drawn[i];
    selection->trained_count = all ? count : limit;
    free(drawn);
    free(rest);
}

enum status data_select(const struct dataset *dataset, const struct settings *settings,
                        struct data_selection *selection)
{
    struct split_holdout holdout;
    TRY(read_holdout(settings, &holdout));
    struct data_selection made = {
        .held = memory_new((size_t)dataset->count, sizeof(bool)),
        .trained = memory_new((size_t)dataset->count, sizeof(bool)),
    };
    if (data_holds_out(settings)) made.held_count = split_hold_out(dataset, &holdout, made.held);
    select_training(dataset, settings, &made);
    *selection = made;
    return OK;
}

void data_selection_free(struct data_selection *selection)
{
    free(selection->held);
    free(selection->trained);
}

/* The images that are marked, in file order. */
static struct images part_of(const struct images *images, const bool *chosen, int64_t count)
{
    struct images part = *images;
    part.subset = memory_new((size_t)count, sizeof(int64_t));
    part.count = 0;
    for (int64_t i = 0; i < images->count; i++)
        if (chosen[i]) part.subset[part.count++] = i;
    return part;
}

enum status data_split(const struct data_opening *o)
{
    const struct settings *settings = o->settings;
    struct images *train = &o->data->train, all = *train;
    struct data_selection selection;
    bool holds_out = data_holds_out(settings);
    const char *key = settings->data.fold ? "fold" : "val_fraction";
    TRY(data_select(all.dataset, settings, &selection));
    if (selection.trained_count < all.count)
        *train = part_of(&all, selection.trained, selection.trained_count);
    if (selection.held_count > 0) o->data->val = part_of(&all, selection.held, selection.held_count);
    if (selection.held_count > 0) bad_images_hold_out(o->data->bad, selection.held, all.count);
    bool none = holds_out && selection.held_count == 0;
    data_selection_free(&selection);
    if (none)
        return settings_refuse(settings, "data", key,
                               "there are too few images to split, or all are of one group");
    return OK;
}
