/* checkpoint_match.c: checks that a run may be resumed from a checkpoint: that it is the same run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/sum_tree.h"
#include "checkpoint/checkpoint.h"
#include "conf/ini.h"
#include "conf/settings.h"
#include "checkpoint/network_identity.h"

char *checkpoint_config(const struct safetensors *file)
{
    const char *text = safetensors_value(file, "config");
    if (!text) return NULL;
    char *escaped = text_copy(text);
    text_unescape(escaped);
    char *config = ini_fold(escaped);
    free(escaped);
    return config;
}

enum status checkpoint_settings(const struct safetensors *file, struct settings *then)
{
    char *config = checkpoint_config(file);
    if (!config) return fail(BAD_CHECKPOINT, "%s: has no configuration", file->path);
    enum status status = settings_load_text(file->path, config, then);
    free(config);
    /* Runs of versions that knew one loss; others have the one that `auto` was. */
    if (status == OK && then->train.loss == TRAIN_LOSS_AUTO) then->train.loss = TRAIN_LOSS_CE;
    if (status == OK && then->data.task == TASK_AUTO) then->data.task = TASK_CLASSIFY;
    return status == OK ? OK : fail(BAD_CHECKPOINT, "%s: its configuration is invalid", file->path);
}

/* True if as many micro-batches are added up in the same order, on however many GPUs. */
static bool same_sums(int64_t micro_batches, int64_t gpus, int64_t other_gpus)
{
    return gpus == other_gpus || (sum_tree_divides((int)micro_batches, (int)gpus) &&
                                  sum_tree_divides((int)micro_batches, (int)other_gpus));
}

/* Ranks, or pipelines of them, that share a step's images. */
static int64_t replicas_of(const struct settings *settings)
{
    return settings->parallel.gpus / settings->parallel.stages;
}

/* Warns if a step has another number of micro-batches, or adds them in another order: otherwise the bits are
 * the same on any number of GPUs. */
static void match_micro_batches(const char *path, struct settings *then, const struct settings *now)
{
    int64_t before = replicas_of(then) * settings_micro_batches(then);
    int64_t after = replicas_of(now) * settings_micro_batches(now);
    if (before == after && !same_sums(after, replicas_of(then), replicas_of(now)))
        log_warning("%s: %" PRId64 " GPUs add the gradients of %" PRId64 " micro-batches in a different "
                    "order than %" PRId64 ": from here on the numbers differ, by rounding, from those of a "
                    "run that was not interrupted", path, replicas_of(now), after, replicas_of(then));
    if (before != after && then->train.accumulate == now->train.accumulate)
        log_warning("%s: a step had %" PRId64 " micro-batch%s and now has %" PRId64 ": from "
                    "here on the numbers differ from those of a run that was not interrupted", path, before,
                    before == 1 ? "" : "es", after);
    if (before == after) then->train.accumulate = now->train.accumulate;
}

/* Images that are normalised together, by all ranks. */
static void match_sync_bn(const char *path, const struct settings *then, const struct settings *now)
{
    int64_t before = settings_micro_batches(then), after = settings_micro_batches(now);
    if (!then->train.sync_bn || before == after) return;
    log_warning("%s: batch norm normalised a step's images in %" PRId64 " part%s (train.sync_bn), and now "
                "does in %" PRId64 ": from here on the numbers differ from those of a run that was not "
                "interrupted", path, before, before == 1 ? "" : "s", after);
}

static void match_wire(const char *path, const struct settings *then, const struct settings *now)
{
    if (then->parallel.wire == now->parallel.wire) return;
    log_warning("%s: parallel.wire was %s: from here on gradients are rounded differently, and the numbers "
                "differ from those of a run that was not interrupted", path,
                then->parallel.wire == WIRE_STORAGE ? "storage" : "fp32");
}

/* Averages may begin when a run is resumed, without its history. */
static void match_averages(const char *path, struct settings *then, const struct settings *now)
{
    if (then->train.ema > 0 || now->train.ema == 0) return;
    log_info("%s: has no averaged weights: they begin with its weights (train.ema)", path);
    then->train.ema = now->train.ema;
}

/* A teacher whose weights are known by their checksum may lie elsewhere (match_teacher compares that), and a
 * run that is finished needs none. */
static void match_teacher_path(const struct safetensors *file, struct settings *then,
                               const struct settings *now)
{
    const char *epoch = safetensors_value(file, "position.epoch");
    bool finished = epoch && strtoll(epoch, NULL, 10) >= now->train.epochs;
    if (!settings_has_teacher(then) || !safetensors_value(file, "teacher")) return;
    if (settings_has_teacher(now) || finished)
        settings_derive(then, "train", "teacher", settings_has_teacher(now) ? now->train.teacher : "");
}

enum status checkpoint_match_settings(const struct safetensors *file, const struct settings *now)
{
    struct settings then;
    struct text differences = {0};
    TRY(checkpoint_settings(file, &then));
    match_sync_bn(file->path, &then, now);
    match_micro_batches(file->path, &then, now);
    match_wire(file->path, &then, now);
    match_averages(file->path, &then, now);
    match_teacher_path(file, &then, now);
    if (network_identity_same_scale(&then.data.value_scale, &now->data.value_scale))
        then.data.value_scale = now->data.value_scale;
    if (settings_differ(&then, now, &differences))
        fail(USAGE, "%s: the configuration differs from that of the run; amptrain.ini(5) lists the keys "
             "that may change when a run is resumed:\n%s", file->path, differences.data);
    bool differ = differences.data;
    text_free(&differences);
    settings_free(&then);
    return differ ? USAGE : OK;
}

void checkpoint_recall_batch(const struct safetensors *file, struct settings *now)
{
    struct settings then;
    if (checkpoint_settings(file, &then) != OK) return;
    if (then.train.batch > 0) settings_derive_number(now, "train", "batch", then.train.batch);
    if (then.train.batch > 0 && then.memory.limit > 0 && now->memory.limit == 0)
        settings_derive_number(now, "memory", "limit", then.memory.limit);
    settings_free(&then);
}

void checkpoint_recall_micro_batches(const struct safetensors *file, struct settings *now)
{
    struct settings then;
    if (checkpoint_settings(file, &then) != OK) return;
    int64_t count = then.parallel.microbatches;
    if (count > 0) settings_derive_number(now, "parallel", "microbatches", count);
    settings_free(&then);
}

void checkpoint_recall_threads(const struct safetensors *file, int most, struct settings *now)
{
    int threads = checkpoint_threads(file);
    if (threads > 0 && threads <= most) settings_derive_number(now, "run", "threads", threads);
}

enum status checkpoint_match_best(const struct safetensors *file, const struct settings *now, bool *same)
{
    struct settings then;
    TRY(checkpoint_settings(file, &then));
    *same = then.checkpoint.best == now->checkpoint.best;
    settings_free(&then);
    return OK;
}

/* A run that goes on learns from the same weights. */
static enum status match_teacher(const struct safetensors *file, const struct checkpoint_source *now)
{
    const char *then = safetensors_value(file, "teacher");
    if (!then || !now->teacher || strcmp(then, now->teacher) == 0) return OK;
    return fail(USAGE, "%s: the teacher's weights (train.teacher) are others than when the run was saved; a "
                "run goes on with the same ones", file->path);
}

/* Settings name differences of the normalisation, and the data those of the classes. */
enum status checkpoint_match_network(const struct safetensors *file, const struct checkpoint_source *now)
{
    struct network_identity then, is;
    struct text differences = {0};
    if (!safetensors_value(file, "graph"))
        return fail(BAD_CHECKPOINT, "%s: records no network", file->path);
    TRY(network_identity_read(file, &then));
    network_identity_make(now->graph, now->settings, now->class_names, now->classes, &is);
    enum status status = OK;
    if (!network_identity_same(&then, &is, GRAPH_SAME_TRAINING, &differences))
        status = fail(USAGE, "%s: the network differs from that of the run: %s", file->path,
                      differences.data);
    text_free(&differences);
    network_identity_free(&then);
    network_identity_free(&is);
    return status == OK ? match_teacher(file, now) : status;
}

static enum status match_count(const struct safetensors *file, const char *key, int64_t then, int64_t now)
{
    if (then == now) return OK;
    return fail(BAD_DATA, "%s: the run started with %" PRId64 " images in data.%s, but there are %" PRId64
                " now; resuming needs the same data", file->path, then, key, now);
}

static enum status match_classes(const struct safetensors *file, const struct checkpoint_source *now)
{
    char **names;
    int count;
    enum status status = OK;
    checkpoint_class_names(file, &names, &count);
    if (count != now->classes)
        status = fail(BAD_DATA, "%s: there were %d classes when the run started, but are %d now; resuming "
                      "needs the same data", file->path, count, now->classes);
    for (int i = 0; status == OK && i < count; i++)
        if (strcmp(names[i], now->class_names[i]) != 0)
            status = fail(BAD_DATA, "%s: class %d was '%s' when the run started, but is '%s' now; resuming "
                          "needs the same data", file->path, i, names[i], now->class_names[i]);
    text_list_free(names, (size_t)count);
    return status;
}

enum status checkpoint_identity(const struct safetensors *file, enum split split,
                                struct dataset_identity *identity, bool *known)
{
    const char *key = split == SPLIT_TRAIN ? CHECKPOINT_TRAIN_IDENTITY : CHECKPOINT_VAL_IDENTITY;
    const char *text = safetensors_value(file, key);
    struct reason reason;
    *known = text != NULL;
    if (text && !dataset_identity_parse(text, identity, &reason))
        return fail(BAD_CHECKPOINT, "%s: '%s' %s", file->path, key, reason.text);
    return OK;
}

static bool has_identities(const struct safetensors *file)
{
    return safetensors_value(file, CHECKPOINT_TRAIN_IDENTITY) ||
           safetensors_value(file, CHECKPOINT_VAL_IDENTITY);
}

bool checkpoint_old_split(const struct safetensors *file, const struct settings *then)
{
    bool selected = then->data.limit > 0 && then->data.shuffle;
    return !has_identities(file) && (then->data.val_fraction > 0 || selected);
}

/* The images of older versions are not known, only their numbers. */
static enum status match_older(const struct safetensors *file)
{
    struct settings then;
    TRY(checkpoint_settings(file, &then));
    bool other = checkpoint_old_split(file, &then);
    settings_free(&then);
    if (other)
        return fail(BAD_DATA, "%s: was written by an older version, which divided the images in another way "
                    "(data.val_fraction, data.limit): a new run can begin with its weights (model.weights)",
                    file->path);
    log_warning("%s: was written by an older version: whether the images are still the same is not known",
                file->path);
    return OK;
}

static enum status match_identity(const struct safetensors *file, enum split split,
                                  const struct checkpoint_source *now, char **class_names, int classes)
{
    struct dataset_identity then = {0};
    struct text differences = {0};
    bool known;
    TRY(checkpoint_identity(file, split, &then, &known));
    then.class_names = class_names;
    then.classes = classes;
    const struct dataset_identity *is = now->identities[split];
    enum status status = OK;
    if (known && is && dataset_identity_compare(&then, is, &differences) != IDENTITY_SAME)
        status = fail(BAD_DATA, "%s: the images of data.%s differ from those of the run: %s; resuming needs "
                      "the same data", file->path, split == SPLIT_TRAIN ? "train" : "val", differences.data);
    text_free(&differences);
    dataset_identity_free(&then);
    return status;
}

enum status checkpoint_match_data(const struct safetensors *file, const struct checkpoint_source *now)
{
    const char *images = safetensors_value(file, "images");
    char **names;
    int64_t train, val;
    int classes;
    if (!images || sscanf(images, "%" SCNd64 " %" SCNd64, &train, &val) != 2)
        return fail(BAD_CHECKPOINT, "%s: does not identify its images", file->path);
    checkpoint_class_names(file, &names, &classes);
    enum status status = match_classes(file, now);
    if (status == OK && !has_identities(file)) status = match_older(file);
    for (int i = 0; status == OK && i < 2; i++)
        status = match_identity(file, (enum split)i, now, names, classes);
    text_list_free(names, (size_t)classes);
    TRY(status);
    TRY(match_count(file, "train", train, now->train_images));
    return match_count(file, "val", val, now->val_images);
}
