/* checkpoint_match.c: whether a run that goes on is the one that wrote the checkpoint. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/graph_text.h"
#include "session/checkpoint.h"

enum status checkpoint_settings(const struct safetensors *file, struct settings *then)
{
    const char *text = safetensors_value(file, "config");
    if (!text) return fail(BAD_CHECKPOINT, "%s: has no configuration", file->path);
    char *config = text_copy(text);
    text_unescape(config);
    enum status status = settings_load_text(file->path, config, then);
    free(config);
    return status == OK ? OK : fail(BAD_CHECKPOINT, "%s: its configuration cannot be used", file->path);
}

static void derive_number(struct settings *settings, const char *section, const char *key, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    settings_derive(settings, section, key, text);
}

/* What may differ in the words alone. Where the graph is known, the name of the model's file says nothing;
 * where it is not, the checkpoint is of before augment.val_resize could be auto, for which 0 stood. */
static void forgive(const struct safetensors *file, struct settings *then, const struct settings *now)
{
    bool asked = settings_given(now, "augment", "val_resize");
    if (safetensors_value(file, "graph")) {
        settings_derive(then, "model", "arch", now->model.arch ? now->model.arch : "");
        settings_derive(then, "model", "file", now->model.file ? now->model.file : "");
    } else if (!asked && then->augment.val_resize == 0) {
        derive_number(then, "augment", "val_resize", now->augment.val_resize);
    }
}

enum status checkpoint_match_settings(const struct safetensors *file, const struct settings *now)
{
    struct settings then;
    struct text differences = {0};
    TRY(checkpoint_settings(file, &then));
    forgive(file, &then, now);
    if (settings_differ(&then, now, &differences))
        fail(USAGE, "%s: the run was configured differently; amptrain.ini(5) says which keys may change when a "
             "run is resumed:\n%s", file->path, differences.data);
    bool differ = differences.data;
    text_free(&differences);
    settings_free(&then);
    return differ ? USAGE : OK;
}

void checkpoint_recall_batch(const struct safetensors *file, struct settings *now)
{
    struct settings then;
    if (checkpoint_settings(file, &then) != OK) return;
    if (then.train.batch > 0) derive_number(now, "train", "batch", then.train.batch);
    if (then.train.batch > 0 && then.memory.limit > 0 && now->memory.limit == 0)
        derive_number(now, "memory", "limit", then.memory.limit);
    settings_free(&then);
}

void checkpoint_recall_threads(const struct safetensors *file, int most, struct settings *now)
{
    int threads = checkpoint_threads(file);
    if (threads > 0 && threads <= most) derive_number(now, "run", "threads", threads);
}

enum status checkpoint_match_best(const struct safetensors *file, const struct settings *now, bool *same)
{
    struct settings then;
    TRY(checkpoint_settings(file, &then));
    *same = then.checkpoint.best == now->checkpoint.best;
    settings_free(&then);
    return OK;
}

enum status checkpoint_match_graph(const struct safetensors *file, const struct graph *graph)
{
    const char *then = safetensors_value(file, "graph");
    struct reason difference;
    struct text now = {0};
    graph_text(graph, &now);
    bool same = !then || graph_text_same(then, now.data, &difference);
    text_free(&now);
    if (same) return OK;
    return fail(USAGE, "%s: the network is another than when the run began: %s", file->path, difference.text);
}

static enum status match_count(const struct safetensors *file, const char *key, int64_t then, int64_t now)
{
    if (then == now) return OK;
    return fail(BAD_DATA, "%s: the run began with %" PRId64 " images of data.%s, where there are %" PRId64
                " now; it goes on only with the same", file->path, then, key, now);
}

/* Checkpoints that do not say of what data they are leave the question open. */
enum status checkpoint_match_data(const struct safetensors *file, const struct checkpoint_source *now)
{
    const char *images = safetensors_value(file, "images");
    int64_t train, val;
    if (images && sscanf(images, "%" SCNd64 " %" SCNd64, &train, &val) == 2) {
        TRY(match_count(file, "train", train, now->train_images));
        TRY(match_count(file, "val", val, now->val_images));
    }
    char **names;
    int count;
    enum status status = OK;
    checkpoint_class_names(file, &names, &count);
    for (int i = 0; status == OK && i < count && i < now->classes; i++)
        if (strcmp(names[i], now->class_names[i]) != 0)
            status = fail(BAD_DATA, "%s: class %d was '%s' when the run began, and is '%s' now; it goes on "
                          "only with the same", file->path, i, names[i], now->class_names[i]);
    checkpoint_free_names(names, count);
    return status;
}
