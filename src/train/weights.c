#include "train/weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/checkpoint.h"

#define LISTED 8   /* names that an error lists before it only counts */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool weights_plain(const struct safetensors_entry *entry)
{
    return !begins(entry->name, CHECKPOINT_AVERAGE) && !begins(entry->name, CHECKPOINT_OPTIMIZER);
}

int weights_find(const struct safetensors *file, const char *name)
{
    char *average = text_format(CHECKPOINT_AVERAGE "%s", name);
    int entry = safetensors_find(file, average);
    free(average);
    return entry >= 0 ? entry : safetensors_find(file, name);
}

bool weights_read(const struct safetensors *file, int entry, float *values, struct reason *reason)
{
    const struct safetensors_entry *from = &file->entries[entry];
    int64_t count = shape_count(from->shape);
    if (from->dtype == F32) return safetensors_read(file, entry, values, reason);
    void *raw = memory_try((size_t)(from->end - from->begin), 1);
    if (!raw) return because(reason, "needs more memory than there is");
    bool good = safetensors_read(file, entry, raw, reason);
    if (good && (from->dtype == F16 || from->dtype == BF16))
        dtype_convert(F32, values, from->dtype, raw, (size_t)count);
    else if (good)
        for (int64_t i = 0; i < count; i++) values[i] = (float)dtype_get(from->dtype, raw, i);
    free(raw);
    return good;
}

/* Names of tensors that are wrong in one way, as a sentence's end. */
struct names {
    struct text text;
    int count;
};

static void names_add(struct names *names, const char *name)
{
    if (names->count++ < LISTED) text_add(&names->text, "%s%s", names->count > 1 ? ", " : "", name);
}

static enum status names_report(const char *path, const char *what, struct names *names)
{
    enum status status = OK;
    if (names->count > LISTED)
        status = fail(BAD_CHECKPOINT, "%s: %d %s: %s, and %d more", path, names->count, what,
                      names->text.data, names->count - LISTED);
    else if (names->count > 0)
        status = fail(BAD_CHECKPOINT, "%s: %d %s: %s", path, names->count, what, names->text.data);
    text_free(&names->text);
    return status;
}

struct problems {
    struct names missing, unexpected, misshapen;
};

static enum status problems_report(const char *path, struct problems *problems)
{
    enum status missing = names_report(path, "tensors are missing", &problems->missing);
    enum status unexpected = names_report(path, "tensors are not in this model", &problems->unexpected);
    enum status misshapen = names_report(path, "tensors have another shape or type", &problems->misshapen);
    return missing ? missing : unexpected ? unexpected : misshapen;
}

/* The last layer with parameters before the logits. */
static int classifier_of(const struct graph *graph)
{
    int node = graph->output;
    while (graph->nodes[node].param_count == 0 && graph->nodes[node].input_count > 0)
        node = graph->nodes[node].inputs[0];
    return node;
}

static bool ends(const char *text, const char *with)
{
    size_t length = strlen(text), tail = strlen(with);
    return length >= tail && strcmp(text + length - tail, with) == 0;
}

/* Counters may be written as a single number or as a vector of one. */
static bool shapes_agree(const struct shape *a, const struct shape *b)
{
    return shape_equal(*a, *b) ||
           (a->rank <= 1 && b->rank <= 1 && shape_count(*a) == 1 && shape_count(*b) == 1);
}

static bool types_agree(enum dtype file, enum dtype master)
{
    return master == F32 ? file == F32 || file == F16 || file == BF16 || file == F64 : file == master;
}

/* The shapes differ in the number of classes alone. */
static bool other_classes(const struct shape *a, const struct shape *b)
{
    if (a->rank != b->rank || a->rank == 0 || a->dim[0] == b->dim[0]) return false;
    for (int i = 1; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

struct loading {
    const struct safetensors *file;
    struct store *store;
    int classifier;              /* node that may start fresh; -1: none may */
    bool fresh;                  /* it does */
    bool averages;
    int64_t classes;             /* of the file's classifier, when fresh */
};

/* The file's entry for a parameter; -1: it keeps its initial value; -2: a problem was noted. */
static int entry_for(struct loading *loading, int param, struct problems *problems)
{
    const struct parameter *parameter = &loading->store->graph->params[param];
    int entry = weights_find(loading->file, parameter->name);
    if (entry < 0) {
        if (ends(parameter->name, "num_batches_tracked")) return -1;
        names_add(&problems->missing, parameter->name);
        return -2;
    }
    const struct safetensors_entry *found = &loading->file->entries[entry];
    if (!types_agree(found->dtype, parameter->spec.dtype)) {
        names_add(&problems->misshapen, parameter->name);
        return -2;
    }
    if (shapes_agree(&found->shape, &parameter->spec.shape)) return entry;
    if (parameter->node == loading->classifier && other_classes(&found->shape, &parameter->spec.shape)) {
        loading->fresh = true;
        loading->classes = found->shape.dim[0];
        return -1;
    }
    names_add(&problems->misshapen, parameter->name);
    return -2;
}

static void find_unexpected(const struct loading *loading, struct problems *problems)
{
    const struct safetensors *file = loading->file;
    for (int i = 0; i < file->count; i++)
        if (weights_plain(&file->entries[i]) &&
            graph_find_param(loading->store->graph, file->entries[i].name) < 0)
            names_add(&problems->unexpected, file->entries[i].name);
}

static enum status load_param(const struct loading *loading, int param, int entry)
{
    const struct parameter *parameter = &loading->store->graph->params[param];
    size_t bytes = (size_t)shape_count(parameter->spec.shape) * dtype_bytes(parameter->spec.dtype);
    void *buffer = memory_try(bytes, 1);
    if (!buffer) return fail(FAILED, "%s: no host memory to read it", loading->file->path);
    struct reason reason;
    bool good = parameter->spec.dtype == F32 ? weights_read(loading->file, entry, buffer, &reason)
                                             : safetensors_read(loading->file, entry, buffer, &reason);
    enum status status = good ? OK : fail(BAD_CHECKPOINT, "%s: %s", loading->file->path, reason.text);
    if (status == OK) status = store_write(loading->store, param, STORE_MASTER, buffer);
    if (status == OK && store_has(loading->store, param, STORE_AVERAGE))
        status = store_write(loading->store, param, STORE_AVERAGE, buffer);
    free(buffer);
    return status;
}

static enum status load_all(struct loading *loading)
{
    int count = loading->store->graph->param_count;
    int *entries = memory_new((size_t)count, sizeof *entries);
    struct problems problems = {0};
    for (int i = 0; i < count; i++) {
        entries[i] = entry_for(loading, i, &problems);
        if (entries[i] >= 0 && begins(loading->file->entries[entries[i]].name, CHECKPOINT_AVERAGE))
            loading->averages = true;
    }
    find_unexpected(loading, &problems);
    enum status status = problems_report(loading->file->path, &problems);
    for (int i = 0; status == OK && i < count; i++) {
        bool fresh = loading->fresh && loading->store->graph->params[i].node == loading->classifier;
        if (entries[i] >= 0 && !fresh) status = load_param(loading, i, entries[i]);
    }
    free(entries);
    return status;
}

static void say(const struct loading *loading)
{
    const struct graph *graph = loading->store->graph;
    if (loading->averages) log_info("%s: using the averaged weights (ema)", loading->file->path);
    if (loading->fresh)
        log_info("%s: has %lld classes, this model %d: the classifier '%s' starts fresh", loading->file->path,
                 (long long)loading->classes, graph->classes, graph->nodes[loading->classifier].name);
}

enum status weights_load(const char *path, bool fresh_classifier, struct store *store)
{
    struct safetensors file;
    struct reason reason;
    if (!safetensors_open(path, &file, &reason)) return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    struct loading loading = {&file, store, fresh_classifier ? classifier_of(store->graph) : -1,
                              false, false, 0};
    enum status status = load_all(&loading);
    if (status == OK) say(&loading);
    safetensors_close(&file);
    TRY(status);
    return store_refresh(store);
}
