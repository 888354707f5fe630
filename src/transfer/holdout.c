#include "transfer/holdout.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"

/* The run of a weights file. */
struct former_run {
    const char *path;
    struct safetensors file;
    bool is_run;                 /* a checkpoint: `then` is how it was configured */
    struct settings then;
    bool known;                  /* `identity` is that of its training data */
    struct dataset_identity identity;
    char **class_names;
    int classes;
};

static void former_close(struct former_run *run)
{
    if (run->is_run) settings_free(&run->then);
    dataset_identity_free(&run->identity);
    text_list_free(run->class_names, (size_t)run->classes);
    safetensors_close(&run->file);
}

static enum status read_run(struct former_run *run)
{
    if (!safetensors_value(&run->file, "images")) return OK;
    TRY(checkpoint_settings(&run->file, &run->then));
    run->is_run = true;
    TRY(checkpoint_identity(&run->file, SPLIT_TRAIN, &run->identity, &run->known));
    run->identity.class_names = run->class_names;
    run->identity.classes = run->classes;
    return OK;
}

/* Weights of other formats say nothing of a run. */
static enum status former_open(const char *path, struct former_run *run)
{
    struct reason unsaid;
    *run = (struct former_run){.path = path};
    if (!safetensors_open(path, &run->file, &unsaid)) return OK;
    checkpoint_class_names(&run->file, &run->class_names, &run->classes);
    enum status status = read_run(run);
    if (status != OK) former_close(run);
    return status;
}

/* The number of validation images that the run was trained on; both have the same data, but may have divided
 * them in different ways. */
static enum status count_trained(const struct former_run *run, const struct data *data, int64_t *count)
{
    struct data_selection then;
    *count = 0;
    TRY(data_select(&data->opened[SPLIT_TRAIN], &run->then, &then));
    for (int64_t i = 0; i < data->val.count; i++) *count += then.trained[images_index(&data->val, i)];
    data_selection_free(&then);
    return OK;
}

static void warn_of_trained(const struct former_run *run, const struct data *data, int64_t count)
{
    if (count == 0) return;
    log_warning("%s: %" PRId64 " of the %" PRId64 " validation images are among those that these weights "
                "were trained on: the holdout is not their run's (data.val_fraction, data.fold, "
                "data.split_seed)", run->path, count, data->val.count);
}

static enum status refuse(const struct former_run *run, const char *differences)
{
    return fail(BAD_DATA, "%s: the images of data.train differ from those of the run: %s; other images would "
                "be held out than the run's; --val PATH names others", run->path, differences);
}

static enum status check_known(const struct former_run *run, bool named, struct data *data)
{
    struct text differences = {0};
    int64_t trained = 0;
    data_identify(data);
    enum identity_change change =
        dataset_identity_compare(&run->identity, data->identities[SPLIT_TRAIN], &differences);
    enum status status = OK;
    if (change == IDENTITY_SAME) status = count_trained(run, data, &trained);
    else if (change != IDENTITY_OTHER || !named) status = refuse(run, differences.data);
    warn_of_trained(run, data, trained);
    text_free(&differences);
    return status;
}

static enum status check_run(const struct former_run *run, bool named, struct data *data)
{
    if (run->known) return check_known(run, named, data);
    if (run->is_run && checkpoint_old_split(&run->file, &run->then))
        return fail(BAD_DATA, "%s: was written by an older version, which held out other images; --val PATH "
                    "names others", run->path);
    log_warning("%s: does not say which images the weights were trained on: some of the %" PRId64
                " validation images may be among them", run->path, data->val.count);
    return OK;
}

enum status holdout_check(const char *weights, bool named, const struct settings *settings,
                          struct data *data)
{
    struct former_run run;
    if (!data_holds_out(settings)) return OK;
    TRY(former_open(weights, &run));
    enum status status = check_run(&run, named, data);
    former_close(&run);
    return status;
}

/* For data sets that are not the same as the run's. */
static void warn_of_change(const struct former_run *run, const char *key, const char *differences)
{
    log_warning("%s: data.%s has images that these weights were trained on, besides others (%s): some of the "
                "validation images may be among them", run->path, key, differences);
}

static void compare(const struct former_run *run, const struct data *data)
{
    bool own = data->val.dataset == &data->opened[SPLIT_VAL];
    const struct dataset_identity *now = data->identities[own ? SPLIT_VAL : SPLIT_TRAIN];
    struct text differences = {0};
    int64_t trained = 0;
    enum identity_change change = dataset_identity_compare(&run->identity, now, &differences);
    /* Files of training and of validation data may well have the same names. */
    if (change == IDENTITY_CHANGED || (change == IDENTITY_REPLACED && !own))
        warn_of_change(run, own ? "val" : "train", differences.data);
    if (change == IDENTITY_SAME && own)
        log_warning("%s: data.val are the images that these weights were trained on", run->path);
    if (change == IDENTITY_SAME && !own && count_trained(run, data, &trained) == OK)
        warn_of_trained(run, data, trained);
    text_free(&differences);
}

void holdout_warn(const char *weights, const struct data *data)
{
    struct former_run run;
    bool identified = data->val.dataset && data->identities[SPLIT_TRAIN];
    if (!identified || former_open(weights, &run) != OK) return;
    if (run.known) compare(&run, data);
    former_close(&run);
}
