#include "session/weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "graph/names.h"
#include "session/checkpoint.h"

#define LISTED 8   /* number of names that an error lists */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static char *checkpoint_of(const char *folder)
{
    static const char *const names[] = {CHECKPOINT_BEST, CHECKPOINT_LAST, CHECKPOINT_PREVIOUS};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = text_format("%s/%s", folder, names[i]);
        if (access(path, F_OK) == 0) return path;
        free(path);
    }
    return NULL;
}

enum status weights_path(const char *named, char **path)
{
    bool folder = directory_is(named);
    char *found = folder ? checkpoint_of(named) : text_copy(named);
    if (!found) return fail(BAD_CHECKPOINT, "%s: there is no checkpoint in this folder", named);
    if (folder) log_info("%s: the weights of this run", found);
    *path = found;
    return OK;
}

bool weights_plain(const struct weights_entry *entry)
{
    return !begins(entry->name, CHECKPOINT_AVERAGE) && !begins(entry->name, CHECKPOINT_OPTIMIZER);
}

int weights_find(const struct weights_file *file, const char *name)
{
    char *average = text_format(CHECKPOINT_AVERAGE "%s", name);
    int entry = weights_file_find(file, average);
    free(average);
    return entry >= 0 ? entry : weights_file_find(file, name);
}

bool weights_read(const struct weights_file *file, int entry, float *values, struct reason *reason)
{
    const struct weights_entry *from = &file->entries[entry];
    int64_t count = shape_count(from->shape);
    if (from->dtype == F32) return weights_file_read(file, entry, values, reason);
    void *raw = memory_try((size_t)count, dtype_bytes(from->dtype));
    if (!raw) return because(reason, "needs more memory than is available");
    bool good = weights_file_read(file, entry, raw, reason);
    if (good && (from->dtype == F16 || from->dtype == BF16))
        dtype_convert(F32, values, from->dtype, raw, (size_t)count);
    else if (good)
        for (int64_t i = 0; i < count; i++) values[i] = (float)dtype_get(from->dtype, raw, i);
    free(raw);
    return good;
}

/* The names of tensors with one kind of error, as the end of a sentence. */
struct weight_list {
    struct text text;
    int count;
};

static void listed_add(struct weight_list *listed, const char *name)
{
    if (listed->count++ < LISTED) text_add(&listed->text, "%s%s", listed->count > 1 ? ", " : "", name);
}

static enum status listed_report(const char *path, const char *what, struct weight_list *listed)
{
    enum status status = OK;
    if (listed->count > LISTED)
        status = fail(BAD_CHECKPOINT, "%s: %s: %s, and %d more", path, what, listed->text.data,
                      listed->count - LISTED);
    else if (listed->count > 0)
        status = fail(BAD_CHECKPOINT, "%s: %s: %s", path, what, listed->text.data);
    text_free(&listed->text);
    return status;
}

struct problems {
    struct weight_list missing, unexpected, misshapen;
};

static enum status problems_report(const char *path, struct problems *problems)
{
    enum status missing = listed_report(path, "missing tensors", &problems->missing);
    enum status unexpected = listed_report(path, "tensors that are not in this model", &problems->unexpected);
    enum status misshapen = listed_report(path, "tensors of another shape or type", &problems->misshapen);
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

static void add_misshapen(struct weight_list *listed, const struct weights_entry *found,
                          const struct parameter *wanted)
{
    char there[SHAPE_TEXT], here[SHAPE_TEXT];
    char *words = types_agree(found->dtype, wanted->spec.dtype)
                      ? text_format("%s (%s, not %s)", wanted->name, shape_text(found->shape, there),
                                    shape_text(wanted->spec.shape, here))
                      : text_format("%s (%s, not %s)", wanted->name, dtype_table[found->dtype].name,
                                    dtype_table[wanted->spec.dtype].name);
    listed_add(listed, words);
    free(words);
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
    const struct weights_file *file;
    const struct graph *graph;
    struct store *store;         /* of it; NULL: the file is only checked */
    int classifier;              /* node that may be initialised instead; -1: none */
    bool fresh;                  /* it does */
    bool averages;
    int64_t classes;             /* of the file's classifier, if that is initialised */
    int *rows;                   /* the file's row for each class, -1: the class is new; NULL: as they are */
};

/* The file's entry for a parameter; -1: it keeps its initial value; -2: a problem was noted. */
static int entry_for(struct loading *loading, int param, struct problems *problems)
{
    const struct parameter *parameter = &loading->graph->params[param];
    int entry = weights_find(loading->file, parameter->name);
    if (entry < 0) {
        if (text_ends_in(parameter->name, ".num_batches_tracked")) return -1;
        listed_add(&problems->missing, parameter->name);
        return -2;
    }
    const struct weights_entry *found = &loading->file->entries[entry];
    if (!types_agree(found->dtype, parameter->spec.dtype)) {
        add_misshapen(&problems->misshapen, found, parameter);
        return -2;
    }
    if (shapes_agree(&found->shape, &parameter->spec.shape)) return entry;
    if (parameter->node == loading->classifier && other_classes(&found->shape, &parameter->spec.shape)) {
        loading->fresh = true;
        loading->classes = found->shape.dim[0];
        return -1;
    }
    add_misshapen(&problems->misshapen, found, parameter);
    return -2;
}

static void find_unexpected(const struct loading *loading, struct problems *problems)
{
    const struct weights_file *file = loading->file;
    for (int i = 0; i < file->count; i++)
        if (weights_plain(&file->entries[i]) &&
            graph_find_param(loading->graph, file->entries[i].name) < 0)
            listed_add(&problems->unexpected, file->entries[i].name);
}

/* Moves the file's rows of the classifier to the new numbers of their classes; other rows are unchanged. */
static enum status move_rows(const struct loading *loading, int param, void *buffer, size_t bytes)
{
    size_t row = bytes / (size_t)loading->graph->classes;
    char *moved = memory_try(bytes, 1);
    if (!moved) return fail(FAILED, "%s: not enough host memory to read it", loading->file->path);
    enum status status = store_read(loading->store, param, STORE_MASTER, moved);
    for (int i = 0; i < loading->graph->classes; i++)
        if (loading->rows[i] >= 0)
            memcpy(moved + (size_t)i * row, (char *)buffer + (size_t)loading->rows[i] * row, row);
    memcpy(buffer, moved, bytes);
    free(moved);
    return status;
}

static bool has_rows(const struct loading *loading, const struct parameter *parameter)
{
    return loading->rows && parameter->node == loading->classifier && parameter->spec.shape.rank > 0 &&
           parameter->spec.shape.dim[0] == loading->graph->classes;
}

static enum status load_param(const struct loading *loading, int param, int entry)
{
    const struct parameter *parameter = &loading->graph->params[param];
    size_t bytes = (size_t)shape_count(parameter->spec.shape) * dtype_bytes(parameter->spec.dtype);
    void *buffer = memory_try(bytes, 1);
    if (!buffer) return fail(FAILED, "%s: not enough host memory to read it", loading->file->path);
    struct reason reason;
    bool good = parameter->spec.dtype == F32 ? weights_read(loading->file, entry, buffer, &reason)
                                             : weights_file_read(loading->file, entry, buffer, &reason);
    enum status status = good ? OK : fail(BAD_CHECKPOINT, "%s: %s", loading->file->path, reason.text);
    if (status == OK && has_rows(loading, parameter)) status = move_rows(loading, param, buffer, bytes);
    if (status == OK) status = store_write(loading->store, param, STORE_MASTER, buffer);
    if (status == OK && store_has(loading->store, param, STORE_AVERAGE))
        status = store_write(loading->store, param, STORE_AVERAGE, buffer);
    free(buffer);
    return status;
}

static enum status load_all(struct loading *loading)
{
    int count = loading->graph->param_count;
    int *entries = memory_new((size_t)count, sizeof *entries);
    struct problems problems = {0};
    for (int i = 0; i < count; i++) {
        entries[i] = entry_for(loading, i, &problems);
        if (entries[i] >= 0 && begins(loading->file->entries[entries[i]].name, CHECKPOINT_AVERAGE))
            loading->averages = true;
    }
    find_unexpected(loading, &problems);
    enum status status = problems_report(loading->file->path, &problems);
    for (int i = 0; loading->store && status == OK && i < count; i++) {
        bool fresh = loading->fresh && loading->graph->params[i].node == loading->classifier;
        if (entries[i] >= 0 && !fresh) status = load_param(loading, i, entries[i]);
    }
    free(entries);
    return status;
}

/* The file's row of each class; the file may have other classes as well. */
static void match_rows(struct loading *loading, const struct weights_options *options)
{
    char **names;
    int count, classes = loading->graph->classes, same = 0, found = 0, missing = -1;
    if (!options->fine_tuned || options->classes != classes) return;
    checkpoint_class_names(&loading->file->described, &names, &count);
    int *rows = memory_new((size_t)classes, sizeof *rows);
    struct names index = {0};
    for (int i = 0; i < count; i++) names_add(&index, names[i], i);
    for (int i = 0; i < classes; i++) {
        int at = names_find(&index, options->class_names[i]);
        rows[i] = at >= 0 ? index.value[at] : -1;
        same += rows[i] == i;
        found += rows[i] >= 0;
        if (rows[i] < 0 && missing < 0) missing = i;
    }
    if (count == classes && same < classes) loading->rows = rows;
    else free(rows);
    names_free(&index);
    text_list_free(names, (size_t)count);
    if (!loading->rows) return;
    const char *name = loading->graph->nodes[loading->classifier].name;
    if (missing < 0)
        log_info("%s: has the same classes in a different order: rows of the classifier '%s' are matched "
                 "by name",
                 loading->file->path, name);
    else
        log_info("%s: has %d of the %d classes, but not '%s': the other rows of the classifier '%s' are "
                 "initialised",
                 loading->file->path, found, classes, options->class_names[missing], name);
}

static void say(const struct loading *loading)
{
    const struct graph *graph = loading->graph;
    if (loading->averages) log_info("%s: using the averaged weights (ema)", loading->file->path);
    if (loading->fresh)
        log_info("%s: has %lld classes, this model %d: the classifier '%s' is initialised",
                 loading->file->path,
                 (long long)loading->classes, graph->classes, graph->nodes[loading->classifier].name);
}

/* The prefix that torch.nn.DataParallel adds to every name. */
static void strip_wrapper(struct weights_file *file)
{
    static const char wrapper[] = "module.";
    for (int i = 0; i < file->count; i++)
        if (!begins(file->entries[i].name, wrapper)) return;
    for (int i = 0; i < file->count; i++) {
        char *name = file->entries[i].name;
        memmove(name, name + strlen(wrapper), strlen(name + strlen(wrapper)) + 1);
    }
}

static enum status open_and_load(const char *path, const struct weights_options *options,
                                 struct loading *loading)
{
    struct weights_file file;
    struct reason reason;
    if (!weights_file_open(path, &file, &reason)) return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    loading->file = &file;
    loading->classifier = options->fine_tuned ? classifier_of(loading->graph) : -1;
    strip_wrapper(&file);
    match_rows(loading, options);
    enum status status = load_all(loading);
    free(loading->rows);
    if (status == OK) say(loading);
    weights_file_close(&file);
    return status;
}

enum status weights_load(const char *path, const struct weights_options *options, struct store *store)
{
    struct loading loading = {.graph = store->graph, .store = store};
    TRY(open_and_load(path, options, &loading));
    return store_refresh(store);
}

enum status weights_check(const char *path, const struct weights_options *options, const struct graph *graph)
{
    struct loading loading = {.graph = graph};
    return open_and_load(path, options, &loading);
}
