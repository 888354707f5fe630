#include "cmd/export_safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/network_identity.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_identify.h"
#include "checkpoint/weights_names.h"
#include "conf/options.h"
#include "graph/model.h"
#include "graph/norm_eps.h"

/* The weights of one file, or the mean of several, chosen for another. */
struct export {
    struct weights_file *from;           /* [files]; names, shapes and metadata are the first one's */
    int files;
    enum dtype dtype;                    /* values other than counters */
    struct weights_names names;          /* of the library whose names are written; empty: ours */
    struct safetensors_item *items;
    struct weights_part *parts;          /* by item, without names */
    int *entries;                        /* by item and file, in `from`; below 0: enum constant */
    int count;
    bool averages;
    const struct export_values *values;  /* that replace those of the files; NULL: none */
};

/* Tensors that other libraries store as well. */
enum constant { WINDOW_INDEX = -1, ZEROS = -2 };

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

/* Room for as many parameters: some are divided, some have several names, and some a constant beside them. */
static void open_items(struct export *export, int parameters)
{
    size_t room = (size_t)parameters * (2 * WEIGHTS_SOURCES_MAX + 1);
    export->items = memory_new(room, sizeof *export->items);
    export->parts = memory_new(room, sizeof *export->parts);
    export->entries = memory_new(room * (size_t)export->files, sizeof *export->entries);
}

static void add_item(struct export *export, char *name, enum dtype dtype, struct shape shape,
                     const int *entries)
{
    size_t bytes = (size_t)export->files * sizeof *entries;
    memcpy(export->entries + export->count * export->files, entries, bytes);
    export->items[export->count++] = (struct safetensors_item){name, dtype, shape};
}

/* The last item under the library's further names. */
static void add_second(struct export *export)
{
    char *names[WEIGHTS_SOURCES_MAX];
    int first = export->count - 1;
    int count = weights_names_second(&export->names, export->items[first].name, names);
    for (int i = 0; i < count; i++) {
        const struct safetensors_item *item = &export->items[first];
        export->parts[export->count] = export->parts[first];
        add_item(export, names[i], item->dtype, item->shape, export->entries + first * export->files);
    }
}

/* A parameter of ours, which the library may divide. */
static enum status add_parameter(struct export *export, const char *ours, enum dtype dtype,
                                 struct shape shape, const int *entries)
{
    struct weights_part parts[WEIGHTS_SOURCES_MAX];
    char *name = weights_names_apply(&export->names, ours, &shape);
    int count = weights_names_divide(&export->names, name, shape, parts);
    for (int i = 0; i < count; i++) {
        export->parts[export->count] = parts[i];
        add_item(export, parts[i].name, dtype, parts[i].shape, entries);
    }
    if (count == 1) add_second(export);
    enum status status = count > 0 ? OK : fail(BAD_CHECKPOINT, "%s: '%s' cannot be divided as '%s'",
                                               export->from[0].path, ours, name);
    free(name);
    return status;
}

static enum status choose(struct export *export)
{
    const struct weights_file *first = &export->from[0];
    int *entries = memory_new((size_t)export->files, sizeof *entries);
    enum status status = OK;
    open_items(export, first->count);
    for (int i = 0; i < first->count && status == OK; i++) {
        const struct weights_entry *entry = &first->entries[i];
        if (!weights_plain(entry)) continue;
        status = choose_entries(export, entry, entries);
        enum dtype dtype = is_number(entry->dtype) ? export->dtype : entry->dtype;
        if (status == OK) status = add_parameter(export, entry->name, dtype, entry->shape, entries);
    }
    free(entries);
    return status;
}

/* ---- Constants ---- */

/* torchvision also stores which row of the table of position biases each two tokens of a window have. */
#define BIAS_TABLE ".relative_position_bias_table"
#define BIAS_INDEX ".relative_position_index"

/* And transformers' DINOv2 has a token for hidden patches, which pretraining alone uses. */
#define CLASS_TOKEN ".embeddings.cls_token"
#define MASK_TOKEN ".embeddings.mask_token"

static int64_t window_of(int64_t rows)
{
    return ((int64_t)llround(sqrt((double)rows)) + 1) / 2;
}

static void add_constant(struct export *export, const char *beside, const char *ending, const char *name,
                         enum constant constant, enum dtype dtype, struct shape shape)
{
    int stem = (int)(strlen(beside) - strlen(ending));
    int *entries = memory_new((size_t)export->files, sizeof *entries);
    for (int i = 0; i < export->files; i++) entries[i] = constant;
    add_item(export, text_format("%.*s%s", stem, beside, name), dtype, shape, entries);
    free(entries);
}

static void add_constants(struct export *export, const char *library)
{
    int count = export->count;
    bool torchvision = strcmp(library, "torchvision") == 0, hf = strcmp(library, "hf") == 0;
    for (int i = 0; i < count; i++) {
        const struct safetensors_item *item = &export->items[i];
        int64_t tokens = window_of(item->shape.dim[0]) * window_of(item->shape.dim[0]);
        if (torchvision && text_ends_in(item->name, BIAS_TABLE))
            add_constant(export, item->name, BIAS_TABLE, BIAS_INDEX, WINDOW_INDEX, I64,
                         shape_vector(tokens * tokens));
        if (hf && strncmp(item->name, "dinov2", 6) == 0 && text_ends_in(item->name, CLASS_TOKEN))
            add_constant(export, item->name, CLASS_TOKEN, MASK_TOKEN, ZEROS, item->dtype,
                         (struct shape){.rank = 2, .dim = {1, item->shape.dim[2], 1, 1}});
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
        for (size_t k = 0; good && export->files > 1 && k < count; k++)
            good = isfinite(mean[k]) ||
                   because(reason, "tensor '%s' of %s contains NaN or Inf",
                           export->from[i].entries[entries[i]].name, export->from[i].path);
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

/* `count` numbers: a whole tensor of ours. */
static bool read_tensor(const struct export *export, const int *entries, enum dtype to, size_t count,
                        void *data, struct reason *reason)
{
    enum dtype from = export->from[0].entries[entries[0]].dtype;
    if (!is_number(to) || (to == from && export->files == 1))
        return weights_file_read(&export->from[0], entries[0], data, reason);
    float *values = to == F32 ? data : memory_try(count, sizeof *values);
    bool good = values ? read_mean(export, entries, count, values, reason)
                       : because(reason, "not enough host memory to read it");
    if (good && to != F32) dtype_convert(to, data, F32, values, count);
    if (to != F32) free(values);
    return good;
}

static bool read_part(const struct export *export, int item, size_t whole, void *data, struct reason *reason)
{
    const struct weights_part *part = &export->parts[item];
    enum dtype to = export->items[item].dtype;
    size_t bytes = dtype_bytes(to), zeros = (size_t)part->zeros * bytes;
    char *tensor = memory_try(whole, bytes);
    if (!tensor) return because(reason, "not enough host memory to read it");
    bool good = read_tensor(export, export->entries + item * export->files, to, whole, tensor, reason);
    size_t count = (size_t)(shape_count(export->items[item].shape) - part->zeros);
    size_t row = part->row > 0 ? (size_t)part->row : count;
    memset(data, 0, zeros + count * bytes);
    const char *from = tensor + (size_t)part->first * bytes;
    for (size_t at = 0; good && at < count; at += row + (size_t)part->row, from += row * bytes)
        memcpy((char *)data + zeros + at * bytes, from, row * bytes);
    free(tensor);
    return good;
}

static enum status read_item(void *context, int item, void *data)
{
    const struct export *export = context;
    const int *entries = export->entries + item * export->files;
    const struct safetensors_item *wanted = &export->items[item];
    size_t count = (size_t)shape_count(wanted->shape);
    if (entries[0] == WINDOW_INDEX) fill_index((int64_t)count, data);
    if (entries[0] == ZEROS) memset(data, 0, count * dtype_bytes(wanted->dtype));
    if (entries[0] < 0) return OK;
    const void *replaced = replacement(export, wanted->name);
    if (replaced) {
        memcpy(data, replaced, count * dtype_bytes(wanted->dtype));
        return OK;
    }
    struct reason reason;
    size_t whole = (size_t)shape_count(export->from[0].entries[entries[0]].shape);
    bool good = whole == count ? read_tensor(export, entries, wanted->dtype, count, data, &reason)
                               : read_part(export, item, whole, data, &reason);
    return good ? OK : fail(BAD_CHECKPOINT, "%s: %s", export->from[0].path, reason.text);
}

/* The preprocessing, as a base configuration; NULL if the file has none. */
static enum status preprocessing_of(const struct weights_file *from, char **config)
{
    static const char *const keys[][2] = {
        {"data", "orientation"}, {"data", "task"}, {"data", "value_scale"}, {"augment", "fit"},
        {"augment", "val_resize"}, {"augment", "interpolation"}, {"augment", "val_crop"}, {"augment", "mean"},
        {"augment", "std"}, {"augment", "val_flip"}, {"augment", "val_shift"},
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

/* The thresholds of one network are not those of a mean of several. */
static bool has_thresholds(const struct export *export)
{
    const char *first = safetensors_value(&export->from[0].described, "thresholds");
    for (int i = 1; first && i < export->files; i++) {
        const char *other = safetensors_value(&export->from[i].described, "thresholds");
        if (other && strcmp(first, other) == 0) continue;
        log_warning("the files have different thresholds of labels: the mean has none, and labels are "
                    "predicted from a probability of 0.5 on");
        return false;
    }
    return first != NULL;
}

/* Metadata that eval and predict need. PyTorch's readers need the format. */
static int describe(const struct export *export, char *config, struct safetensors_pair pairs[PAIRS_MAX])
{
    const struct weights_file *from = &export->from[0];
    static char *const kept[] = {"arch", "classes", "input", "graph", "thresholds", "masks"};
    int count = 0;
    pairs[count++] = (struct safetensors_pair){"format", "pt"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        char *value = (char *)safetensors_value(&from->described, kept[i]);
        bool dropped = strcmp(kept[i], "thresholds") == 0 && !has_thresholds(export);
        if (value && !dropped) pairs[count++] = (struct safetensors_pair){kept[i], value};
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
                                          describe(export, config, pairs), read_item, export};
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
    if (!library) return arch ? weights_names_open_second(arch, &export->names) : OK;
    TRY(weights_names_open(library, arch, &export->names));
    if (!export->names.file) return fail(USAGE, "the installed file models/%s.names is missing", library);
    return export->names.known ? OK : fail(USAGE, "%s: %s does not have the network '%s'",
                                           export->from[0].path, library, arch);
}

/* Their network may compute something else of the same weights. */
static void say_norm_eps(const struct export *export, const char *library, double eps)
{
    double theirs = export->names.usual.norm_eps;
    if (norm_eps_differs(eps, theirs))
        log_warning("%s: norms of this network have eps %g, those of %s's %g: its results will differ",
                    export->from[0].path, eps, weights_library_title(library), theirs);
}

static enum status choose_described(struct export *export, const char *library, const char *arch)
{
    double eps;
    TRY(open_names(export, library, arch));
    TRY(weights_norm_eps(&export->from[0], &eps));
    say_norm_eps(export, library, eps);
    return choose(export);
}

/* ---- Files of other libraries ---- */

static enum status add_recognised(struct export *export, const struct graph *graph, const int *entries)
{
    open_items(export, graph->param_count);
    for (int i = 0; i < graph->param_count; i++) {
        if (entries[i] < 0) continue;
        const struct weights_entry *entry = &export->from[0].entries[entries[i]];
        struct shape shape = graph->params[i].spec.shape;
        if (shape_count(shape) != shape_count(entry->shape)) shape = entry->shape;   /* of other images */
        enum dtype dtype = is_number(entry->dtype) ? export->dtype : entry->dtype;
        TRY(add_parameter(export, graph->params[i].name, dtype, shape, &entries[i]));
    }
    return OK;
}

static enum status choose_in_graph(struct export *export, const char *library,
                                   const struct weights_identity *identity)
{
    const char *arch = identity->arch;
    struct search_paths paths = search_paths_find();
    const struct model_options model = {.arch = arch, .folders = (const char *const *)paths.models,
                                        .classes = identity->classes, .outputs = OUTPUTS_ANY,
                                        .dropout = -1};
    struct weights_match match = {0};
    struct graph graph;
    enum status status = model_load(&model, &graph);
    search_paths_free(&paths);
    TRY(status);
    status = open_names(export, library, arch);
    if (status == OK) status = weights_match(&export->from[0], &graph, &match);
    double eps = identity->norm_eps > 0 ? identity->norm_eps : norm_eps_of(&graph);
    if (status == OK) say_norm_eps(export, library, eps);
    if (status == OK) status = add_recognised(export, &graph, match.entries);
    weights_match_free(&match);
    graph_free(&graph);
    return status;
}

/* The parameters of the network that the file is found to be of. */
static enum status choose_recognised(struct export *export, const char *library)
{
    struct weights_identity identity;
    TRY(weights_identify(export->from[0].path, &identity));
    enum status status = choose_in_graph(export, library, &identity);
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
        TRY(library ? choose_described(export, library, arch) : choose(export));
    }
    if (library) add_constants(export, library);
    if (export->averages)
        log_info("%s: using the averaged weights (train.ema, train.swa)", export->from[0].path);
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
    free(export.parts);
    free(export.entries);
    return status;
}
