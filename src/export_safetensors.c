#include "export_safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "conf/options.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/network_identity.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_identify.h"
#include "checkpoint/weights_names.h"
#include "graph/model.h"

/* The weights of one file, or the mean of several, chosen for another. */
struct export {
    struct weights_file *from;           /* [files]; names, shapes and metadata are the first one's */
    int files;
    enum dtype dtype;                    /* values other than counters */
    struct weights_names names;          /* of the library whose names are written; empty: ours */
    struct safetensors_item *items;
    int *entries;                        /* by item and file, in `from`; -1: a window's index */
    int count;
    bool averages;
    const struct export_values *values;  /* that replace those of the files; NULL: none */
};

static bool is_number(enum dtype dtype)
{
    return dtype == F32 || dtype == F16 || dtype == BF16 || dtype == F64;
}

static enum status choose_entries(struct export *export, const struct weights_entry *wanted, int *entries)
{
    for (int i = 0; i < export->files; i++) {
        const struct weights_file *from = &export->from[i];
        entries[i] = weights_find(from, wanted->name);
        if (entries[i] < 0 || !shape_equal(from->entries[entries[i]].shape, wanted->shape))
            return fail(BAD_CHECKPOINT, "%s: has no tensor '%s' of the shape that it has in %s", from->path,
                        wanted->name, export->from[0].path);
        export->averages = export->averages || strcmp(from->entries[entries[i]].name, wanted->name) != 0;
    }
    return OK;
}

static enum status choose(struct export *export)
{
    const struct weights_file *first = &export->from[0];
    export->items = memory_new((size_t)first->count, sizeof *export->items);
    export->entries = memory_new((size_t)first->count * (size_t)export->files, sizeof *export->entries);
    for (int i = 0; i < first->count; i++) {
        const struct weights_entry *entry = &first->entries[i];
        if (!weights_plain(entry)) continue;
        TRY(choose_entries(export, entry, export->entries + export->count * export->files));
        struct safetensors_item *item = &export->items[export->count++];
        item->dtype = is_number(entry->dtype) ? export->dtype : entry->dtype;
        item->shape = entry->shape;
        item->name = weights_names_apply(&export->names, entry->name, &item->shape);
    }
    return OK;
}

/* ---- Windows ---- */

/* torchvision also stores which row of the table of position biases each two tokens of a window have. */
#define BIAS_TABLE ".relative_position_bias_table"
#define BIAS_INDEX ".relative_position_index"

static int64_t window_of(int64_t rows)
{
    return ((int64_t)llround(sqrt((double)rows)) + 1) / 2;
}

static void add_indices(struct export *export)
{
    int tables = export->count;
    export->items = memory_resize(export->items, 2 * (size_t)tables, sizeof *export->items);
    export->entries = memory_resize(export->entries, 2 * (size_t)(tables * export->files),
                                    sizeof *export->entries);
    for (int i = 0; i < tables; i++) {
        const struct safetensors_item *table = &export->items[i];
        if (!text_ends_in(table->name, BIAS_TABLE)) continue;
        int64_t tokens = window_of(table->shape.dim[0]) * window_of(table->shape.dim[0]);
        int stem = (int)(strlen(table->name) - strlen(BIAS_TABLE));
        export->entries[export->count * export->files] = -1;
        export->items[export->count++] = (struct safetensors_item){
            text_format("%.*s" BIAS_INDEX, stem, table->name), I64, shape_vector(tokens * tokens)};
    }
}

static void fill_index(int64_t count, int64_t *index)
{
    int64_t tokens = (int64_t)llround(sqrt((double)count)), window = (int64_t)llround(sqrt((double)tokens));
    for (int64_t k = 0; k < count; k++) {
        int64_t i = k / tokens, j = k % tokens;
        int64_t h = i / window - j / window + window - 1, w = i % window - j % window + window - 1;
        index[k] = h * (2 * window - 1) + w;
    }
}

/* ---- Values ---- */

/* The mean over the files, in fp32. */
static bool read_mean(const struct export *export, const int *entries, size_t count, float *mean,
                      struct reason *reason)
{
    double *sum = memory_try(count, sizeof *sum);
    bool good = sum || because(reason, "not enough host memory to read it");
    for (int i = 0; good && i < export->files; i++) {
        good = weights_read(&export->from[i], entries[i], mean, reason);
        for (size_t k = 0; good && k < count; k++) sum[k] += mean[k];
    }
    for (size_t k = 0; good && k < count; k++) mean[k] = (float)(sum[k] / export->files);
    free(sum);
    return good;
}

/* The value that replaces an item's; NULL: none does. */
static const void *replacement(const struct export *export, const char *name)
{
    for (int i = 0; export->values && i < export->values->count; i++)
        if (strcmp(export->values->list[i].name, name) == 0) return export->values->list[i].data;
    return NULL;
}

static enum status read_item(void *context, int item, void *data)
{
    const struct export *export = context;
    const int *entries = export->entries + item * export->files;
    if (entries[0] < 0) {
        fill_index(shape_count(export->items[item].shape), data);
        return OK;
    }
    enum dtype to = export->items[item].dtype, from = export->from[0].entries[entries[0]].dtype;
    size_t count = (size_t)shape_count(export->items[item].shape);
    const void *replaced = replacement(export, export->items[item].name);
    if (replaced) {
        memcpy(data, replaced, count * dtype_bytes(to));
        return OK;
    }
    struct reason reason;
    bool good;
    if (!is_number(to) || (to == from && export->files == 1)) {
        good = weights_file_read(&export->from[0], entries[0], data, &reason);
    } else {
        float *values = to == F32 ? data : memory_try(count, sizeof *values);
        good = values ? read_mean(export, entries, count, values, &reason)
                      : because(&reason, "not enough host memory to read it");
        if (good && to != F32) dtype_convert(to, data, F32, values, count);
        if (to != F32) free(values);
    }
    return good ? OK : fail(BAD_CHECKPOINT, "%s: %s", export->from[0].path, reason.text);
}

/* The preprocessing, as a base configuration; NULL if the file has none. */
static enum status preprocessing_of(const struct weights_file *from, char **config)
{
    static const char *const keys[][2] = {
        {"data", "orientation"}, {"data", "task"}, {"data", "value_scale"}, {"augment", "fit"},
        {"augment", "val_resize"}, {"augment", "val_crop"}, {"augment", "mean"}, {"augment", "std"},
    };
    struct settings then;
    struct text plain = {0}, escaped = {0};
    *config = NULL;
    if (!safetensors_value(&from->described, "config")) return OK;
    TRY(checkpoint_settings(&from->described, &then));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (i == 0 || strcmp(keys[i][0], keys[i - 1][0]) != 0) text_add(&plain, "[%s]\n", keys[i][0]);
        text_add(&plain, "%s = ", keys[i][1]);
        field_print(&option_find(keys[i][0], keys[i][1])->field, &then, &plain);
        text_add(&plain, "\n");
    }
    text_escape(&escaped, plain.data);
    text_free(&plain);
    settings_free(&then);
    *config = escaped.data;
    return OK;
}

#define PAIRS_MAX 7

/* Metadata that eval and predict need. PyTorch's readers need the format. */
static int describe(const struct weights_file *from, char *config, struct safetensors_pair pairs[PAIRS_MAX])
{
    static char *const kept[] = {"arch", "classes", "input", "graph", "thresholds"};
    int count = 0;
    pairs[count++] = (struct safetensors_pair){"format", "pt"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char *value = (char *)safetensors_value(&from->described, kept[i]);
        if (value) pairs[count++] = (struct safetensors_pair){kept[i], value};
    }
    if (config) pairs[count++] = (struct safetensors_pair){"config", config};
    return count;
}

static enum status write_file(struct export *export, const char *path)
{
    struct safetensors_pair pairs[PAIRS_MAX];
    char *config;
    TRY(preprocessing_of(&export->from[0], &config));
    struct safetensors_content content = {export->items, export->count, pairs,
                                          describe(&export->from[0], config, pairs), read_item, export};
    struct atomic_file file;
    enum status status = atomic_file_begin(&directory_working, path, &file);
    if (status == OK) {
        status = safetensors_write(file.temporary, &content);
        enum status ended = atomic_file_end(&file, status == OK);
        status = status == OK ? ended : status;
    }
    free(config);
    return status;
}

static enum status open_names(struct export *export, const char *library, const char *arch)
{
    if (!library) return OK;
    TRY(weights_names_open(library, arch, &export->names));
    if (!export->names.file) return fail(USAGE, "the installed file models/%s.names is missing", library);
    return export->names.known ? OK : fail(USAGE, "%s: %s does not have the network '%s'",
                                           export->from[0].path, library, arch);
}

/* ---- Files of other libraries ---- */

static void add_recognised(struct export *export, const struct graph *graph, const int *entries)
{
    export->items = memory_new((size_t)graph->param_count, sizeof *export->items);
    export->entries = memory_new((size_t)graph->param_count, sizeof *export->entries);
    for (int i = 0; i < graph->param_count; i++) {
        if (entries[i] < 0) continue;
        enum dtype dtype = export->from[0].entries[entries[i]].dtype;
        struct safetensors_item *item = &export->items[export->count];
        item->dtype = is_number(dtype) ? export->dtype : dtype;
        item->shape = graph->params[i].spec.shape;
        item->name = weights_names_apply(&export->names, graph->params[i].name, &item->shape);
        export->entries[export->count++] = entries[i];
    }
}

static enum status choose_in_graph(struct export *export, const char *library, const char *arch, int classes)
{
    struct search_paths paths = search_paths_find();
    const struct model_options model = {.arch = arch, .folders = (const char *const *)paths.models,
                                        .classes = classes, .dropout = -1};
    struct weights_match match = {0};
    struct graph graph;
    enum status status = model_load(&model, &graph);
    search_paths_free(&paths);
    TRY(status);
    status = open_names(export, library, arch);
    if (status == OK) status = weights_match(&export->from[0], &graph, &match);
    if (status == OK) add_recognised(export, &graph, match.entries);
    weights_match_free(&match);
    graph_free(&graph);
    return status;
}

/* The parameters of the network that the file is found to be of. */
static enum status choose_recognised(struct export *export, const char *library)
{
    struct weights_identity identity;
    TRY(weights_identify(export->from[0].path, &identity));
    enum status status = choose_in_graph(export, library, identity.arch, identity.classes);
    weights_identity_free(&identity);
    return status;
}

/* The mean of weights that mean different things means nothing. */
static enum status match_network(const struct weights_file *from, const struct network_identity *first,
                                 const char *first_path)
{
    struct network_identity other;
    struct text differences = {0};
    enum status status = OK;
    TRY(network_identity_read(&from->described, &other));
    if (!network_identity_same(first, &other, GRAPH_SAME_WEIGHTS, &differences))
        status = fail(BAD_CHECKPOINT, "%s: cannot be averaged with %s: %s", from->path, first_path,
                      differences.data);
    text_free(&differences);
    network_identity_free(&other);
    return status;
}

static enum status match_networks(const struct export *export)
{
    struct network_identity first;
    enum status status = OK;
    if (export->files == 1) return OK;
    TRY(network_identity_read(&export->from[0].described, &first));
    for (int i = 1; status == OK && i < export->files; i++)
        status = match_network(&export->from[i], &first, export->from[0].path);
    network_identity_free(&first);
    return status;
}

static enum status export_all(struct export *export, const char *library, const char *output)
{
    TRY(match_networks(export));
    const char *arch = safetensors_value(&export->from[0].described, "arch");
    if (library && !arch) {
        TRY(choose_recognised(export, library));
    } else {
        TRY(open_names(export, library, arch));
        TRY(choose(export));
    }
    if (library && strcmp(library, "torchvision") == 0) add_indices(export);
    if (export->averages) log_info("%s: using the averaged weights (ema)", export->from[0].path);
    TRY(write_file(export, output));
    log_info("%s: %d tensors in %s", output, export->count, dtype_table[export->dtype].name);
    return OK;
}

enum status export_safetensors(const char *const *paths, int count, enum dtype dtype, const char *library,
                               const char *output, const struct export_values *values)
{
    struct export export = {.from = memory_new((size_t)count, sizeof *export.from), .dtype = dtype,
                            .values = values};
    enum status status = OK;
    for (; export.files < count && status == OK; export.files += status == OK)
        status = weights_open(paths[export.files], &export.from[export.files]);
    if (status == OK) status = export_all(&export, library, output);
    for (int i = 0; i < export.count; i++) free((char *)export.items[i].name);
    weights_names_close(&export.names);
    for (int i = 0; i < export.files; i++) weights_file_close(&export.from[i]);
    free(export.from);
    free(export.items);
    free(export.entries);
    return status;
}
