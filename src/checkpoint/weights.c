#include "checkpoint/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "graph/names.h"
#include "graph/norm_eps.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_card.h"
#include "checkpoint/position_embedding.h"
#include "checkpoint/weights_names.h"

#define LISTED 8             /* number of names that an error lists */
#define CLASSES_MAX 1000000  /* as model.classes */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static char *checkpoint_of(const char *folder)
{
    /* The last three are Hugging Face's. */
    static const char *const names[] = {CHECKPOINT_BEST, CHECKPOINT_LAST, CHECKPOINT_PREVIOUS,
                                        "model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = text_format("%s/%s", folder, names[i]);
        if (access(path, F_OK) == 0) return path;
        free(path);
    }
    return NULL;
}

/* A run that was validated had a best checkpoint, which may have been deleted since. */
static void warn_of_missing_best(const char *folder, const char *found)
{
    struct safetensors file;
    struct reason unsaid;
    if (text_ends_in(found, CHECKPOINT_BEST) || !safetensors_open(found, &file, &unsaid)) return;
    const char *epoch = safetensors_value(&file, "position.best_epoch");
    if (epoch && strcmp(epoch, "0") != 0)
        log_warning("%s/" CHECKPOINT_BEST " is missing (of epoch %s): %s is used, which is not the best one",
                    folder, epoch, found);
    safetensors_close(&file);
}

enum status weights_path(const char *named, char **path)
{
    bool folder = directory_is(named);
    char *found = folder ? checkpoint_of(named) : text_copy(named);
    if (!found) return fail(BAD_CHECKPOINT, "%s: there is no checkpoint in this folder", named);
    if (folder) warn_of_missing_best(named, found);
    const char *what = strstr(found, "/checkpoint-") ? "run" : "folder";
    if (folder) log_info("%s: the weights of this %s", found, what);
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

/* A number that an integer can hold; half-precision counters end at infinity. */
static double whole_number(double value) { return fabs(value) < 1e18 ? value : 0; }

static bool read_as(const struct weights_file *file, int entry, enum dtype to, void *values,
                    struct reason *reason)
{
    const struct weights_entry *from = &file->entries[entry];
    int64_t count = shape_count(from->shape);
    if (from->dtype == to) return weights_file_read(file, entry, values, reason);
    void *raw = memory_try((size_t)count, dtype_bytes(from->dtype));
    if (!raw) return because(reason, "needs more memory than is available");
    bool good = weights_file_read(file, entry, raw, reason);
    if (good && to == F32 && dtype_is_float(from->dtype))
        dtype_convert(F32, values, from->dtype, raw, (size_t)count);
    for (int64_t i = 0; good && !(to == F32 && dtype_is_float(from->dtype)) && i < count; i++) {
        double value = dtype_get(from->dtype, raw, i);
        dtype_set(to, values, i, to == F32 ? value : whole_number(value));
    }
    free(raw);
    return good;
}

bool weights_read(const struct weights_file *file, int entry, float *values, struct reason *reason)
{
    return read_as(file, entry, F32, values, reason);
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

static enum status listed_report(const char *path, const char *what, bool lenient, struct weight_list *listed)
{
    enum status status = OK;
    if (listed->count > LISTED) text_add(&listed->text, ", and %d more", listed->count - LISTED);
    if (listed->count > 0 && lenient) log_warning("%s: %s: %s", path, what, listed->text.data);
    else if (listed->count > 0) status = fail(BAD_CHECKPOINT, "%s: %s: %s", path, what, listed->text.data);
    text_free(&listed->text);
    return status;
}

struct problems {
    struct weight_list missing, unexpected, misshapen;
    struct weight_list heads;    /* those are none */
};

static enum status problems_report(const char *path, bool lenient, struct problems *problems)
{
    if (problems->heads.count > 0)
        log_info("%s: of another head, and left out: %s", path, problems->heads.text.data);
    text_free(&problems->heads.text);
    enum status missing = listed_report(path, "missing tensors", lenient, &problems->missing);
    enum status unexpected =
        listed_report(path, "tensors that are not in this model", lenient, &problems->unexpected);
    enum status misshapen =
        listed_report(path, "tensors of another shape or type", lenient, &problems->misshapen);
    return missing ? missing : unexpected ? unexpected : misshapen;
}

/* Counters may be written as a single number or as a vector of one. */
static bool shapes_agree(const struct shape *a, const struct shape *b)
{
    return shape_equal(*a, *b) ||
           (a->rank <= 1 && b->rank <= 1 && shape_count(*a) == 1 && shape_count(*b) == 1);
}

/* Counters become floating-point numbers where a whole network was converted. */
static bool types_agree(enum dtype file, enum dtype master)
{
    return file == master || dtype_is_float(file) || file == F64;
}

/* A parameter's name in the file, and its shape there. */
struct wanted {
    char *name;
    struct shape shape;
    enum dtype dtype;            /* of ours */
};

static void add_misshapen(struct weight_list *listed, const struct weights_entry *found,
                          const struct wanted *wanted)
{
    char there[SHAPE_TEXT], here[SHAPE_TEXT];
    char *words = types_agree(found->dtype, wanted->dtype)
                      ? text_format("%s (%s, not %s)", wanted->name, shape_text(found->shape, there),
                                    shape_text(wanted->shape, here))
                      : text_format("%s (%s, not %s)", wanted->name, dtype_table[found->dtype].name,
                                    dtype_table[wanted->dtype].name);
    listed_add(listed, words);
    free(words);
}

static void add_other_grid(struct weight_list *listed, const struct position_embedding *found,
                           const struct wanted *wanted)
{
    char *words = text_format("%s (of %lldx%lld patches, not %lldx%lld)", wanted->name,
                              (long long)found->from_h, (long long)found->from_w, (long long)found->to_h,
                              (long long)found->to_w);
    listed_add(listed, words);
    free(words);
}

/* The shapes differ in the number of classes alone. */
static bool other_classes(const struct shape *found, const struct shape *wanted)
{
    if (found->rank != wanted->rank || found->dim[0] == wanted->dim[0]) return false;
    if (found->dim[0] > CLASSES_MAX) return false;
    for (int i = 1; i < found->rank; i++)
        if (found->dim[i] != wanted->dim[i]) return false;
    return true;
}

/* The shapes differ in the number of input channels alone. */
static bool other_channels(const struct shape *a, const struct shape *b)
{
    return a->rank == 4 && b->rank == 4 && a->dim[0] == b->dim[0] && a->dim[2] == b->dim[2] &&
           a->dim[3] == b->dim[3] && a->dim[1] > 0;
}

struct loading {
    struct weights_file *file;
    const struct graph *graph;
    struct store *store;         /* of it; NULL: the file is only checked */
    const struct weights_options *options;
    struct wanted *wanted;       /* by parameter */
    const char *library;         /* whose names the file has; NULL: ours */
    double norm_eps;             /* of its networks; 0: as ours */
    int prefix;                  /* letters before every name of the file, which are no part of it */
    struct weights_names second; /* of the network: further names of tensors */
    struct weights_names encoder;        /* of the network; closed: it has none, or may not begin with it */
    bool encoder_alone;          /* the file has nothing of the layers behind it */
    bool *further;               /* by parameter: it leads to further outputs alone ... */
    bool further_fresh;          /* ... of which the file has nothing */
    struct model_card card;      /* of the file */
    bool *used;                  /* by entry of the file: a parameter has its name */
    int classifier;              /* node that may be initialised instead; -1: none */
    bool fresh, headless;        /* it does; because the file has no weights for it */
    bool averages;
    int64_t classes;             /* of the file's classifier, if that is initialised */
    int64_t channels;            /* of the file's images, if the first convolution is adapted; 0: it is not */
    struct position_embedding resized;   /* the last position embedding that is; channels is 0: none is */
    int *rows;                   /* the file's row for each class, -1: the class is new; NULL: as they are */
};

/* Transformers' backbones lack the first part of names, which is their network's; also in "A.b+A.c". NULL:
 * the name has no such part. The caller frees it. */
static char *backbone_name(const struct loading *loading, const char *name)
{
    const char *dot = strchr(name, '.'), *plus = strchr(name, '+'), *second = plus ? strchr(plus, '.') : NULL;
    if (!loading->library || strcmp(loading->library, "hf") != 0 || !dot || (plus && !second)) return NULL;
    return plus ? text_format("%.*s+%s", (int)(plus - dot - 1), dot + 1, second + 1) : text_copy(dot + 1);
}

/* The file's own name for one without its prefix; also for "A+B". The caller frees it. */
static char *prefixed(const struct loading *loading, const char *name)
{
    const char *before = loading->file->entries[0].name, *plus = strchr(name, '+');
    if (!plus) return text_format("%.*s%s", loading->prefix, before, name);
    return text_format("%.*s%.*s+%.*s%s", loading->prefix, before, (int)(plus - name), name, loading->prefix,
                       before, plus + 1);
}

static int find_prefixed(const struct loading *loading, const char *name)
{
    char *whole = loading->prefix > 0 && name ? prefixed(loading, name) : NULL;
    int entry = name ? weights_find(loading->file, whole ? whole : name) : -1;
    free(whole);
    return entry;
}

/* The file's entries of a tensor's further names, into `entries`; returns how many. */
static int second_entries(const struct loading *loading, const char *name, int entries[WEIGHTS_SOURCES_MAX])
{
    char *names[WEIGHTS_SOURCES_MAX];
    int count = loading->library ? 0 : weights_names_second(&loading->second, name, names), found = 0;
    for (int i = 0; i < count; i++) {
        entries[found] = find_prefixed(loading, names[i]);
        found += entries[found] >= 0;
        free(names[i]);
    }
    return found;
}

static int entry_of(const struct loading *loading, const char *name)
{
    int second[WEIGHTS_SOURCES_MAX], entry = find_prefixed(loading, name);
    if (entry >= 0 || !name) return entry;
    char *backbone = backbone_name(loading, name);
    entry = find_prefixed(loading, backbone);
    free(backbone);
    return entry < 0 && second_entries(loading, name, second) > 0 ? second[0] : entry;
}

/* True if the encoder, which the network has, contains the parameter, and its name in the encoder's network,
 * for the caller to free. */
static bool in_encoder(const struct loading *loading, int param, char **name)
{
    const struct op_param *spec = &loading->graph->params[param].spec;
    const char *ours = loading->graph->params[param].name;
    struct shape shape = spec->shape;
    *name = weights_names_apply(&loading->encoder, ours, &shape);
    return strcmp(*name, ours) != 0;
}

/* Finds out which layers the file has nothing of. */
static void find_fresh(struct loading *loading)
{
    int inside = 0, outside = 0, further = 0, all = 0;
    bool *leads = memory_new((size_t)loading->graph->count, sizeof *leads);
    graph_leads_to_output(loading->graph, leads);
    loading->further = memory_new((size_t)loading->graph->param_count + 1, sizeof *loading->further);
    for (int p = 0; p < loading->graph->param_count; p++) {
        char *unused = NULL;
        bool found = entry_of(loading, loading->wanted[p].name) >= 0;
        bool encoder = loading->encoder.encoder && in_encoder(loading, p, &unused);
        free(unused);
        loading->further[p] = loading->options->fine_tuned && !leads[loading->graph->params[p].node];
        inside += found && encoder;
        outside += found && !encoder;
        further += found && loading->further[p];
        all += loading->further[p];
    }
    free(leads);
    loading->encoder_alone = loading->encoder.encoder && inside > 0 && outside == 0;
    loading->further_fresh = all > 0 && further == 0;
}

/* True if a parameter keeps its initial value, as all of its part of the network. */
static bool is_fresh(const struct loading *loading, int param)
{
    char *unused = NULL;
    bool behind = loading->encoder_alone && !in_encoder(loading, param, &unused);
    free(unused);
    return behind || (loading->further_fresh && loading->further[param]);
}

static bool is_first_conv(const struct graph *graph, const struct parameter *parameter)
{
    const struct node *node = &graph->nodes[parameter->node];
    return strcmp(node->op->name, "conv") == 0 && node->inputs[0] == 0;
}

/* True if an entry is a position embedding of the parameter's kind; files of ours say for which images. */
static bool has_positions(const struct loading *loading, const struct parameter *parameter,
                          const struct weights_entry *found, struct position_embedding *embedding)
{
    struct position_tensor tensor = {.shape = &found->shape};
    struct reason unsaid;
    int channels;
    checkpoint_input(&loading->file->described, &tensor.images.h, &tensor.images.w, &channels, &unsaid);
    return position_embedding_fits(loading->graph, parameter, &tensor, embedding);
}

/* True if equally many positions have another grid: 4x4 and 2x8. */
static bool has_other_grid(const struct loading *loading, const struct parameter *parameter,
                           const struct weights_entry *found, struct position_embedding *embedding)
{
    return has_positions(loading, parameter, found, embedding) && position_embedding_moves(embedding);
}

static bool is_classifier(const struct loading *loading, const struct parameter *parameter)
{
    return loading->classifier >= 0 && graph_is_classifier(loading->graph, parameter->node);
}

/* Parts that may differ in a file to be fine-tuned: the classifier, the images' channels and size. */
static bool may_differ(struct loading *loading, const struct parameter *parameter,
                       const struct wanted *wanted, const struct weights_entry *found, int *entry)
{
    if (is_classifier(loading, parameter) && other_classes(&found->shape, &wanted->shape)) {
        loading->fresh = true;
        loading->classes = found->shape.dim[0];
        *entry = -1;
        return true;
    }
    const struct weights_options *options = loading->options;
    if (!options->fine_tuned && !options->resized) return false;
    if (has_positions(loading, parameter, found, &loading->resized)) return true;
    if (!options->fine_tuned || !is_first_conv(loading->graph, parameter) ||
        !other_channels(&found->shape, &wanted->shape))
        return false;
    loading->channels = found->shape.dim[1];
    return true;
}

/* The file's entry for a parameter; -1: it keeps its initial value; -2: a problem was noted. */
static int entry_for(struct loading *loading, int param, struct problems *problems)
{
    const struct parameter *parameter = &loading->graph->params[param];
    const struct wanted *wanted = &loading->wanted[param];
    int entry = entry_of(loading, wanted->name);
    if (entry < 0) {
        if (text_ends_in(parameter->name, ".num_batches_tracked") || is_fresh(loading, param)) return -1;
        if (is_classifier(loading, parameter)) {
            loading->fresh = loading->headless = true;
            return -1;
        }
        listed_add(&problems->missing, wanted->name);
        return -2;
    }
    const struct weights_entry *found = &loading->file->entries[entry];
    loading->used[entry] = true;
    for (int i = 0; i < found->source_count; i++) loading->used[found->sources[i]] = true;
    int second[WEIGHTS_SOURCES_MAX], seconds = second_entries(loading, wanted->name, second);
    for (int i = 0; i < seconds; i++) loading->used[second[i]] = true;
    struct position_embedding other;
    bool same = shapes_agree(&found->shape, &wanted->shape);
    bool moves = same && has_other_grid(loading, parameter, found, &other);
    if (types_agree(found->dtype, wanted->dtype) &&
        ((same && !moves) || may_differ(loading, parameter, wanted, found, &entry)))
        return entry;
    if (moves) add_other_grid(&problems->misshapen, &other, wanted);
    else add_misshapen(&problems->misshapen, found, wanted);
    return -2;
}

/* Usual names of the last layers, which a file may have in the place of this network's. */
static bool is_head(const char *name)
{
    static const char *const heads[] = {"fc.", "head.", "heads.", "head_dist.", "classifier.", "last_linear.",
                                        "cls_classifier.", "distillation_classifier.", "pooler.",
                                        "conv_head."};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (begins(name, heads[i])) return true;
    return false;
}

/* Extras that other libraries store with a transformer's weights: numbers that follow from its shape, and
 * the token that stands for hidden patches in pretraining. */
static bool is_left_out(const char *name)
{
    return text_ends_in(name, ".relative_position_index") || text_ends_in(name, ".attn_mask") ||
           text_ends_in(name, ".mask_token") || strcmp(name, "mask_token") == 0;
}

static void find_unexpected(const struct loading *loading, struct problems *problems)
{
    const struct weights_file *file = loading->file;
    for (int i = 0; i < file->count; i++) {
        const char *name = file->entries[i].name + loading->prefix;
        if (loading->used[i] || !weights_plain(&file->entries[i]) || is_left_out(name)) continue;
        if (graph_find_param(loading->graph, name) >= 0 && !loading->library) continue;
        if ((loading->headless || loading->encoder_alone) && is_head(name))
            listed_add(&problems->heads, name);
        else
            listed_add(&problems->unexpected, name);
    }
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
    return loading->rows && is_classifier(loading, parameter) && parameter->spec.shape.rank > 0 &&
           parameter->spec.shape.dim[0] == loading->graph->classes;
}

/* A first convolution for images of other channels: for one, filters are summed over the channels; for more
 * they are repeated, scaled so that outputs stay as large. timm's adapt_input_conv. */
static bool read_adapted(const struct weights_file *file, int entry, const struct shape *shape, float *values,
                         struct reason *reason)
{
    const struct shape *from = &file->entries[entry].shape;
    int64_t pixels = shape->dim[2] * shape->dim[3], there = from->dim[1], here = shape->dim[1];
    float *read = memory_try((size_t)shape_count(*from), sizeof *read);
    if (!read) return because(reason, "needs more memory than is available");
    bool good = weights_read(file, entry, read, reason);
    for (int64_t k = 0; good && k < shape->dim[0]; k++)
        for (int64_t c = 0; c < (here > 1 ? here : there); c++)
            for (int64_t p = 0; p < pixels; p++) {
                float value = read[(k * there + c % there) * pixels + p];
                if (here > 1) values[(k * here + c) * pixels + p] = value * (float)there / (float)here;
                else values[k * pixels + p] = value + (c > 0 ? values[k * pixels + p] : 0);
            }
    free(read);
    return good;
}

static bool read_resized(const struct weights_file *file, int entry, const struct position_embedding *resized,
                         float *values, struct reason *reason)
{
    float *read = memory_try((size_t)shape_count(file->entries[entry].shape), sizeof *read);
    if (!read) return because(reason, "needs more memory than is available");
    bool good = weights_read(file, entry, read, reason);
    if (good) position_embedding_resize(resized, read, values);
    free(read);
    return good;
}

static bool read_values(const struct loading *loading, int param, int entry, void *values,
                        struct reason *reason)
{
    const struct parameter *parameter = &loading->graph->params[param];
    const struct op_param *spec = &parameter->spec;
    struct position_embedding resized;
    const struct weights_file *file = loading->file;
    if (spec->dtype != F32) return read_as(file, entry, spec->dtype, values, reason);
    bool same = shape_count(file->entries[entry].shape) == shape_count(spec->shape);
    if (has_other_grid(loading, parameter, &file->entries[entry], &resized))
        return read_resized(file, entry, &resized, values, reason);
    if (!same)
        return read_adapted(file, entry, &spec->shape, values, reason);
    return weights_read(file, entry, values, reason);
}

/* The tensors that the file has under a tensor's further names must be the same. */
static enum status check_second(const struct loading *loading, int param, int entry, const void *values,
                                size_t bytes)
{
    const struct weights_entry *entries = loading->file->entries;
    int second[WEIGHTS_SOURCES_MAX];
    int count = second_entries(loading, loading->wanted[param].name, second);
    void *other = count > 0 ? memory_try(bytes, 1) : NULL;
    enum status status = count == 0 || other ? OK : fail(FAILED, "%s: not enough host memory to read it",
                                                         loading->file->path);
    for (int i = 0; status == OK && i < count; i++) {
        struct reason reason;
        bool same = shape_equal(entries[second[i]].shape, entries[entry].shape);
        bool good = !same || read_values(loading, param, second[i], other, &reason);
        if (!good) status = fail(BAD_CHECKPOINT, "%s: %s", loading->file->path, reason.text);
        else if (!same || memcmp(values, other, bytes) != 0)
            status = fail(BAD_CHECKPOINT, "%s: '%s' and '%s' differ, which are one tensor in this network",
                          loading->file->path, entries[entry].name, entries[second[i]].name);
    }
    free(other);
    return status;
}

static enum status load_param(const struct loading *loading, int param, int entry)
{
    const struct parameter *parameter = &loading->graph->params[param];
    size_t bytes = (size_t)shape_count(parameter->spec.shape) * dtype_bytes(parameter->spec.dtype);
    void *buffer = memory_try(bytes, 1);
    if (!buffer) return fail(FAILED, "%s: not enough host memory to read it", loading->file->path);
    struct reason reason;
    bool good = read_values(loading, param, entry, buffer, &reason);
    enum status status = good ? OK : fail(BAD_CHECKPOINT, "%s: %s", loading->file->path, reason.text);
    if (status == OK) status = check_second(loading, param, entry, buffer, bytes);
    if (status == OK && has_rows(loading, parameter)) status = move_rows(loading, param, buffer, bytes);
    if (status == OK) status = store_write(loading->store, param, STORE_MASTER, buffer);
    if (status == OK && store_has(loading->store, param, STORE_AVERAGE))
        status = store_write(loading->store, param, STORE_AVERAGE, buffer);
    free(buffer);
    return status;
}

/* The file's entry for each parameter, as entry_for has it. The caller frees them. */
static int *find_entries(struct loading *loading, struct problems *problems)
{
    int count = loading->graph->param_count;
    int *entries = memory_new((size_t)count, sizeof *entries);
    for (int i = 0; i < count; i++) {
        entries[i] = entry_for(loading, i, problems);
        if (entries[i] >= 0 && begins(loading->file->entries[entries[i]].name, CHECKPOINT_AVERAGE))
            loading->averages = true;
    }
    find_unexpected(loading, problems);
    return entries;
}

/* Statistics alone are no network: all that is trained would begin at random. */
static enum status check_loaded(const struct loading *loading, int tensors, bool nothing)
{
    const struct graph *graph = loading->graph;
    const char *path = loading->file->path;
    if (nothing)
        return fail(BAD_CHECKPOINT, "%s: %d of %d tensors of the network would be loaded, no weights among "
                    "them: the file is of another network, or has other names",
                    path, tensors, graph->param_count);
    if (loading->options->fine_tuned || tensors < graph->param_count)
        log_info("%s: %d of %d tensors of the network are loaded", path, tensors, graph->param_count);
    return OK;
}

static enum status load_all(struct loading *loading)
{
    int count = loading->graph->param_count, tensors = 0, weights = 0, trained = 0;
    struct problems problems = {0};
    int *entries = find_entries(loading, &problems);
    enum status status = problems_report(loading->file->path, loading->options->lenient, &problems);
    for (int i = 0; i < count; i++) {
        bool weight = loading->graph->params[i].spec.role != ROLE_STATISTIC;
        bool fresh = loading->fresh && is_classifier(loading, &loading->graph->params[i]);
        if (fresh) entries[i] = -1;
        tensors += entries[i] >= 0;
        weights += weight && !fresh;
        trained += weight && entries[i] >= 0;
    }
    if (status == OK) status = check_loaded(loading, tensors, weights > 0 && trained == 0);
    for (int i = 0; loading->store && status == OK && i < count; i++)
        if (entries[i] >= 0) status = load_param(loading, i, entries[i]);
    free(entries);
    return status;
}

/* Rows of the file's classifier; 0: it has none. */
static int64_t file_classes(const struct loading *loading)
{
    const struct graph *graph = loading->graph;
    for (int i = 0; i < graph->param_count; i++) {
        int entry = -1;
        if (graph->params[i].node == loading->classifier) entry = entry_of(loading, loading->wanted[i].name);
        if (entry >= 0 && loading->file->entries[entry].shape.rank > 0)
            return loading->file->entries[entry].shape.dim[0];
    }
    return 0;
}

/* The file's own, or those of its card. */
static void class_names(struct loading *loading, char ***names, int *count)
{
    struct model_card *card = &loading->card;
    checkpoint_class_names(&loading->file->described, names, count);
    if (*count > 0) return;
    model_card_limit_classes(card, file_classes(loading), true);
    *names = card->class_names;
    *count = card->classes;
    card->class_names = NULL;
    card->classes = 0;
}

/* The file's row of each class; the file may have other classes as well. */
static void match_rows(struct loading *loading, const struct weights_options *options)
{
    char **names;
    int count, classes = loading->graph->classes, same = 0, found = 0, missing = -1;
    if (!options->fine_tuned || options->classes != classes || loading->encoder_alone) return;
    class_names(loading, &names, &count);
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

/* The file beside the weights, or their library, may have another eps than the network: results are then not
 * quite those that the weights were trained for. */
static void say_norm_eps(const struct loading *loading)
{
    const struct model_card *card = &loading->card;
    bool ours = safetensors_value(&loading->file->described, "graph");
    double eps = norm_eps_of(loading->graph);
    if (eps == 0) return;
    double theirs = card->norm_eps > 0 || ours ? card->norm_eps : loading->norm_eps;
    if (norm_eps_differs(eps, theirs))
        log_warning("%s: norms of these weights have eps %g, this model's %g: model.norm_eps = %g",
                    card->norm_eps > 0 ? card->path : loading->file->path, theirs, eps, theirs);
}

/* A number for each channel, or one for all; `none`: there is no list. */
static double channel_of(const struct field_reals *list, int64_t channel, double none)
{
    if (list->count == 0) return none;
    return list->value[channel < list->count ? channel : 0];
}

static void add_numbers(struct text *text, const char *name, const double *numbers)
{
    text_add(text, "%s%.4g, %.4g, %.4g", name, numbers[0], numbers[1], numbers[2]);
}

/* Files of ours record how images were normalised, and are compared by network_identity.h. Cards know of
 * those of others, or else their libraries. */
static enum status say_normalisation(const struct loading *loading)
{
    const struct weights_options *options = loading->options;
    struct model_card wanted = loading->card;
    double mean[MODEL_CARD_CHANNELS], std[MODEL_CARD_CHANNELS];
    bool same = true;
    if (!options->mean || loading->graph->nodes[0].shape.c != MODEL_CARD_CHANNELS) return OK;
    if (safetensors_value(&loading->file->described, "config")) return OK;
    struct weights_names names;
    const char *arch = loading->encoder_alone ? loading->encoder.encoder : loading->graph->arch;
    TRY(weights_names_open_any(loading->library, arch, &names));
    if (!wanted.normalised && names.known) {
        memcpy(wanted.mean, names.usual.mean, sizeof wanted.mean);
        memcpy(wanted.std, names.usual.std, sizeof wanted.std);
        wanted.normalised = true;
    }
    weights_names_close(&names);
    for (int k = 0; k < MODEL_CARD_CHANNELS && wanted.normalised; k++) {
        mean[k] = channel_of(options->mean, k, 0);
        std[k] = channel_of(options->std, k, 1);
        same = same && fabs(mean[k] - wanted.mean[k]) < 1e-3 && fabs(std[k] - wanted.std[k]) < 1e-3;
    }
    struct text wants = {0}, used = {0};
    if (!same) {
        add_numbers(&wants, "augment.mean = ", wanted.mean);
        add_numbers(&wants, " and augment.std = ", wanted.std);
        add_numbers(&used, "", mean);
        add_numbers(&used, " and ", std);
        log_warning("%s: these weights want %s (%s); used are %s", loading->file->path, wants.data,
                    wanted.normalised_by ? wanted.normalised_by : "its library's usually do", used.data);
    } else if (!wanted.normalised && options->mean->count == 0 && options->std->count == 0) {
        log_warning("%s: does not say how its images were normalised; without augment.mean and augment.std, "
                    "pixels are from 0 to 1", loading->file->path);
    }
    text_free(&wants);
    text_free(&used);
    if (options->interpolation && wanted.interpolation &&
        strcmp(options->interpolation, wanted.interpolation) != 0)
        log_warning("%s: these weights want augment.interpolation = %s (%s); used is %s",
                    loading->file->path, wanted.interpolation, wanted.path, options->interpolation);
    return OK;
}

static void say(const struct loading *loading)
{
    const struct graph *graph = loading->graph;
    const char *path = loading->file->path;
    if (loading->averages) log_info("%s: using the averaged weights (train.ema, train.swa)", path);
    if (loading->encoder_alone)
        log_info("%s: has weights of the encoder alone (%s): all other layers are initialised", path,
                 loading->encoder.encoder);
    for (int i = 1; i < graph->output_count && loading->further_fresh && !loading->encoder_alone; i++)
        log_info("%s: has no weights for the output '%s', whose layers are initialised", path,
                 graph->outputs[i].name);
    if (loading->headless)
        log_info("%s: has no weights for the classifier '%s', which is initialised", path,
                 graph->nodes[loading->classifier].name);
    else if (loading->fresh)
        log_info("%s: has %lld classes, this model %d: the classifier '%s' is initialised", path,
                 (long long)loading->classes, graph->classes, graph->nodes[loading->classifier].name);
    if (loading->resized.channels)
        log_info("%s: position embeddings of %lldx%lld patches are resized to %lldx%lld", path,
                 (long long)loading->resized.from_h, (long long)loading->resized.from_w,
                 (long long)loading->resized.to_h, (long long)loading->resized.to_w);
    if (loading->channels)
        log_info("%s: is for images of %lld channels: filters of the first convolution are %s", path,
                 (long long)loading->channels,
                 graph->nodes[0].shape.c == 1 ? "summed over them" : "repeated for this model's");
}

/* ---- Names of other libraries ---- */

/* Prefixes that torch.nn.DataParallel, torch.compile, and classes containing a network put before names. */
static const char *const prefixes[] = {"module.", "_orig_mod.", "model.", "timm_model."};

static bool all_begin(const struct weights_file *file, const char *with)
{
    for (int i = 0; i < file->count; i++)
        if (!begins(file->entries[i].name, with)) return false;
    return file->count > 0;
}

/* Removes a prefix that all names have, which leaves their order as it is. There may be several. */
static bool strip_prefix(struct weights_file *file)
{
    const char *prefix = NULL;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !prefix; i++)
        if (all_begin(file, prefixes[i])) prefix = prefixes[i];
    for (int i = 0; prefix && i < file->count; i++) {
        char *name = file->entries[i].name, *rest = name + strlen(prefix);
        memmove(name, rest, strlen(rest) + 1);
    }
    if (prefix) log_info("%s: '%s' before every name is removed", file->path, prefix);
    return prefix;
}

static struct wanted *wanted_make(const struct graph *graph, const struct weights_names *names)
{
    struct wanted *wanted = memory_new((size_t)graph->param_count + 1, sizeof *wanted);
    for (int i = 0; i < graph->param_count; i++) {
        const struct parameter *parameter = &graph->params[i];
        wanted[i] = (struct wanted){.shape = parameter->spec.shape, .dtype = parameter->spec.dtype};
        wanted[i].name = names ? weights_names_apply(names, parameter->name, &wanted[i].shape)
                               : text_copy(parameter->name);
    }
    return wanted;
}

static void wanted_free(struct wanted *wanted, int count)
{
    for (int i = 0; wanted && i < count; i++) free(wanted[i].name);
    free(wanted);
}

/* Some of the library's tensors are parts of ours. */
static void make_entries(struct loading *loading)
{
    for (int i = 0; i < loading->graph->param_count; i++) {
        const char *name = loading->wanted[i].name;
        if (!name || !weights_file_is_expression(name)) continue;
        char *whole = prefixed(loading, name), *backbone = backbone_name(loading, name);
        if (!weights_file_make(loading->file, whole) && backbone) {
            free(whole);
            whole = prefixed(loading, backbone);
            weights_file_make(loading->file, whole);
        }
        free(whole);
        free(backbone);
    }
}

/* Takes the names in `other`, with or without what is in front of all names, if the file has more of them. */
static void try_prefixes(struct loading *loading, struct loading *other, int *found)
{
    const struct weights_file *file = loading->file;
    const char *first = file->entries[0].name, *last = file->entries[file->count - 1].name;
    for (int i = 0; first[i] && (i == 0 || first[i - 1] == last[i - 1]); i++) {
        int count = 0;
        if (i > 0 && first[i - 1] != '.') continue;
        other->prefix = i;
        make_entries(other);
        for (int p = 0; p < other->graph->param_count; p++)
            count += entry_of(other, other->wanted[p].name) >= 0;
        if (count <= *found) continue;
        struct wanted *before = other->wanted == loading->wanted ? NULL : loading->wanted;
        wanted_free(before, other->graph->param_count);
        *loading = *other;
        *found = count;
    }
}

/* Takes these names, if the file has more of them; owns them. */
static void try_names(const char *library, const struct weights_names *names, struct wanted *wanted,
                      struct loading *loading, int *found)
{
    struct loading other = *loading;
    other.library = library;
    other.norm_eps = names->usual.norm_eps;
    other.wanted = wanted;
    try_prefixes(loading, &other, found);
    if (loading->wanted != wanted) wanted_free(wanted, loading->graph->param_count);
}

static enum status try_library(const char *library, struct loading *loading, int *found)
{
    struct weights_names names;
    TRY(weights_names_open(library, loading->graph->arch, &names));
    if (names.known && names.count > 0)
        try_names(library, &names, wanted_make(loading->graph, &names), loading, found);
    weights_names_close(&names);
    return OK;
}

/* Names of the encoder's tensors in its own network; those behind it have none. */
static struct wanted *wanted_of_encoder(const struct loading *loading, const struct weights_names *names)
{
    struct wanted *wanted = wanted_make(loading->graph, NULL);
    for (int i = 0; i < loading->graph->param_count; i++) {
        char *own;
        free(wanted[i].name);
        bool inside = in_encoder(loading, i, &own);
        wanted[i].name = inside ? weights_names_apply(names, own, &wanted[i].shape) : NULL;
        free(own);
    }
    return wanted;
}

/* Tries the names of the network that the encoder is a part of, its own ones and then each library's. */
static enum status try_encoder(struct loading *loading, int *found)
{
    struct weights_names names = {.usual = {.norm_eps = loading->norm_eps}};
    if (!loading->encoder.encoder) return OK;
    try_names(NULL, &names, wanted_of_encoder(loading, &names), loading, found);
    for (int i = 0; weights_libraries[i]; i++) {
        const char *library = weights_libraries[i];
        TRY(weights_names_open(library, loading->encoder.encoder, &names));
        if (names.known && names.count > 0)
            try_names(library, &names, wanted_of_encoder(loading, &names), loading, found);
        weights_names_close(&names);
    }
    return OK;
}

static enum status choose_names(struct loading *loading)
{
    struct loading own = *loading;
    int found = -1;
    own.wanted = wanted_make(loading->graph, NULL);
    *loading = own;
    if (loading->file->count == 0) return OK;
    try_prefixes(loading, &own, &found);
    for (int i = 0; weights_libraries[i] && found < loading->graph->param_count; i++)
        TRY(try_library(weights_libraries[i], loading, &found));
    return found < loading->graph->param_count ? try_encoder(loading, &found) : OK;
}

static enum status loading_open(struct weights_file *file, const struct weights_options *options,
                                struct loading *loading)
{
    loading->file = file;
    loading->options = options;
    loading->classifier = options->fine_tuned ? graph_classifier(loading->graph) : -1;
    TRY(weights_names_open_second(loading->graph->arch, &loading->second));
    if (options->encoder) TRY(weights_names_open("encoders", loading->graph->arch, &loading->encoder));
    TRY(choose_names(loading));
    find_fresh(loading);
    loading->used = memory_new((size_t)(file->count + file->made) + 1, sizeof *loading->used);
    return OK;
}

static void loading_close(struct loading *loading)
{
    model_card_free(&loading->card);
    weights_names_close(&loading->second);
    weights_names_close(&loading->encoder);
    free(loading->further);
    wanted_free(loading->wanted, loading->graph->param_count);
    free(loading->used);
    free(loading->rows);
}

enum status weights_open(const char *path, struct weights_file *file)
{
    struct reason reason;
    if (!weights_file_open(path, file, &reason)) return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    if (file->torch.wrapper) log_info("%s: the weights under '%s' are used", path, file->torch.wrapper);
    while (strip_prefix(file)) continue;
    return OK;
}

void weights_say_prefix(const struct weights_file *file, int prefix)
{
    if (prefix > 0)
        log_info("%s: '%.*s' before every name is removed", file->path, prefix, file->entries[0].name);
}

const char *weights_library_title(const char *library)
{
    return strcmp(library, "hf") == 0 ? "Hugging Face transformers" : library;
}

static enum status open_and_load(const char *path, const struct weights_options *options,
                                 struct loading *loading)
{
    struct weights_file file;
    TRY(weights_open(path, &file));
    enum status status = loading_open(&file, options, loading);
    model_card_read(path, options->fine_tuned, &loading->card);
    if (status == OK) weights_say_prefix(&file, loading->prefix);
    if (status == OK && loading->library)
        log_info("%s: its names are those of %s", path, weights_library_title(loading->library));
    if (status == OK) {
        match_rows(loading, options);
        status = load_all(loading);
    }
    if (status == OK) say(loading);
    if (status == OK) say_norm_eps(loading);
    if (status == OK) status = say_normalisation(loading);
    loading_close(loading);
    weights_file_close(&file);
    return status;
}

/* ---- Whether a file fits ---- */

/* The first kind of mistakes; NULL: there is none. */
static char *first_problem(const struct problems *problems)
{
    if (problems->missing.count > 0) return text_format("it lacks %s", problems->missing.text.data);
    if (problems->misshapen.count > 0)
        return text_format("these tensors have another shape: %s", problems->misshapen.text.data);
    if (problems->unexpected.count > 0)
        return text_format("the network does not have %s", problems->unexpected.text.data);
    return NULL;
}

void weights_match_free(struct weights_match *match)
{
    free(match->first);
    free(match->entries);
    *match = (struct weights_match){0};
}

enum status weights_match(struct weights_file *file, const struct graph *graph, struct weights_match *match)
{
    const struct weights_options options = {.fine_tuned = true};
    struct loading loading = {.graph = graph};
    struct problems problems = {0};
    *match = (struct weights_match){0};
    enum status status = loading_open(file, &options, &loading);
    if (status == OK) {
        int *entries = find_entries(&loading, &problems);
        *match = (struct weights_match){
            .entries = entries,
            .library = loading.library,
            .prefix = loading.prefix,
            .problems = problems.missing.count + problems.unexpected.count + problems.misshapen.count,
            .first = first_problem(&problems),
            .classes = (int)file_classes(&loading),
            .channels = loading.channels ? (int)loading.channels : (int)graph->nodes[0].shape.c,
        };
    }
    text_free(&problems.missing.text);
    text_free(&problems.unexpected.text);
    text_free(&problems.misshapen.text);
    text_free(&problems.heads.text);
    loading_close(&loading);
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
