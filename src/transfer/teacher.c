#include "transfer/teacher.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/openmp.h"
#include "checkpoint/network_identity.h"
#include "checkpoint/weights.h"
#include "format/checksum.h"
#include "graph/model.h"
#include "kernels/conv/conv.h"
#include "kernels/norm/batchnorm.h"

/* A node of the graph that runs is made of a node of the whole one, of a convolution and the batch norm
 * behind it, or of a batch norm alone, as a convolution of each channel by itself. */
static bool is_op(const struct node *node, const char *name)
{
    return node->op && strcmp(node->op->name, name) == 0;
}

/* The only reader of a node; -1: there are several, or none. */
static int only_reader(const struct graph *graph, int node)
{
    int reader = -1;
    for (int i = 1; i < graph->count; i++)
        for (int k = 0; k < graph->nodes[i].input_count; k++)
            if (graph->nodes[i].inputs[k] == node) reader = reader < 0 ? i : graph->count;
    return node == graph->output || reader == graph->count ? -1 : reader;
}

/* The convolution that a batch norm becomes a part of; -1: none. */
static int folded_conv(const struct graph *graph, int norm)
{
    int conv = is_op(&graph->nodes[norm], "batchnorm") ? graph->nodes[norm].inputs[0] : -1;
    return conv > 0 && is_op(&graph->nodes[conv], "conv") && only_reader(graph, conv) == norm ? conv : -1;
}

static bool is_folded(const struct graph *graph, int conv)
{
    int reader = only_reader(graph, conv);
    return reader > 0 && folded_conv(graph, reader) == conv;
}

static void *settings_of(const struct graph *graph, int node)
{
    const struct node *at = &graph->nodes[node];
    struct reason reason;
    int conv = folded_conv(graph, node);
    if (!is_op(at, "batchnorm")) return op_settings_copy(at->op, at->settings);
    if (conv >= 0) {
        struct conv_settings *settings = op_settings_copy(graph->nodes[conv].op, graph->nodes[conv].settings);
        settings->weight.bias = true;
        return settings;
    }
    char *words = text_format("filters=%d kernel=1 groups=%d", (int)at->shape.c, (int)at->shape.c);
    void *settings = op_settings_new(op_find("conv"), words, &reason);
    free(words);
    return settings;
}

static enum status add_node(const struct graph *from, int node, const int *mapped, struct graph *to)
{
    const struct node *at = &from->nodes[node];
    int conv = folded_conv(from, node), inputs[OP_MAX_INPUTS];
    const struct node *source = conv >= 0 ? &from->nodes[conv] : at;
    struct reason reason;
    for (int i = 0; i < source->input_count; i++) inputs[i] = mapped[source->inputs[i]];
    const struct node_spec spec = {
        .name = at->name, .op = is_op(at, "batchnorm") ? op_find("conv") : at->op,
        .settings = settings_of(from, node), .inputs = inputs, .input_count = source->input_count,
        .where = at->where ? at->where : "",
    };
    if (spec.settings && graph_add(to, &spec, &reason)) return OK;
    return fail(FAILED, "%s: '%s' cannot be a teacher's: %s", from->arch, at->name,
                spec.settings ? reason.text : "no settings");
}

static enum status fold_graph(struct teacher *teacher)
{
    const struct graph *from = &teacher->whole;
    struct graph *to = &teacher->graph;
    int *mapped = memory_new((size_t)from->count, sizeof *mapped);
    enum status status = OK;
    graph_begin(to, from->arch, from->nodes[0].shape);
    teacher->sources = memory_new((size_t)from->count, sizeof *teacher->sources);
    for (int i = 1; i < from->count && status == OK; i++) {
        if (from->nodes[i].op->training_only) {
            mapped[i] = mapped[from->nodes[i].inputs[0]];
            continue;
        }
        if (is_folded(from, i)) continue;
        status = add_node(from, i, mapped, to);
        mapped[i] = to->count - 1;
        teacher->sources[mapped[i]] = i;
    }
    if (status == OK) to->output = mapped[from->output];
    free(mapped);
    return status;
}

static enum status refuse(const struct teacher_options *options, const char *path, const char *why)
{
    return settings_refuse(options->settings, "train", "teacher", "%s: %s", path, why);
}

static enum status check_identity(const struct teacher_options *options, const char *path,
                                  const struct safetensors *file)
{
    struct network_identity own, teachers;
    struct text differences = {0};
    TRY(network_identity_read(file, &teachers));
    const struct data *data = options->data;
    free(teachers.graph);
    teachers.graph = NULL;
    network_identity_make(NULL, options->settings, data->class_names, data->classes, &own);
    enum status status = OK;
    if (!network_identity_same(&own, &teachers, GRAPH_SAME_WEIGHTS, &differences))
        status = refuse(options, path, differences.data);
    text_free(&differences);
    network_identity_free(&own);
    network_identity_free(&teachers);
    return status;
}

static enum status load_network(const struct teacher_options *options, const char *path, char **checksum,
                                struct graph *graph)
{
    const struct data *data = options->data;
    struct weights_file file;
    struct reason reason;
    if (!weights_file_open(path, &file, &reason)) return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    const char *network = safetensors_value(&file.described, "graph");
    const char *arch = safetensors_value(&file.described, "arch");
    *checksum = text_copy(safetensors_value(&file.described, CHECKSUM_HEADER_KEY));
    const struct model_options model = {
        .arch = arch ? arch : "teacher", .text = network, .size_h = data->train.h, .size_w = data->train.w,
        .channels = data->channels, .classes = data->classes, .dropout = -1,
    };
    enum status status = OK;
    if (!network)
        status = refuse(options, path, "has no network; a teacher is a run, or a checkpoint of one");
    if (status == OK) status = check_identity(options, path, &file.described);
    if (status == OK) status = model_load(&model, graph);
    weights_file_close(&file);
    return status;
}

static enum status check_options(const struct settings *settings)
{
    if (settings->parallel.stages > 1)
        return settings_refuse(settings, "train", "teacher",
                               "is not possible in a pipeline (parallel.stages)");
    if (settings->augment.sizes && *settings->augment.sizes)
        return settings_refuse(settings, "train", "teacher", "cannot be combined with augment.sizes");
    return OK;
}

/* Its record in the run's configuration, with which that of a resumed run is compared. */
static void note_path(struct settings *settings, const char *given)
{
    char *here = *given == '/' ? NULL : realpath(".", NULL);
    char *whole = here ? text_format("%s/%s", here, given) : text_copy(given);
    char *where = text_copy(settings_where(settings, "train", "teacher"));
    settings_derive(settings, "train", "teacher", whole);
    free(settings_swap_where(settings, "train", "teacher", where));
    free(here);
    free(whole);
}

enum status teacher_open(const struct teacher_options *options, struct teacher *teacher,
                         struct graph *joined)
{
    const char *named = options->settings->train.teacher;
    if (!settings_has_teacher(options->settings)) return OK;
    char *given = settings_path(options->settings, options->file, named);
    enum status status = check_options(options->settings);
    if (status == OK) status = weights_path(given, &teacher->path);
    if (status == OK) note_path(options->settings, given);
    free(given);
    TRY(status);
    TRY(load_network(options, teacher->path, &teacher->checksum, &teacher->whole));
    TRY(fold_graph(teacher));
    if (teacher->graph.classes != options->student->classes)
        return refuse(options, teacher->path, "its network has another number of classes");
    *joined = graph_with_teacher(options->student, &teacher->graph);
    const struct settings *settings = options->settings;
    teacher->distill = text_format("kind=%s alpha=%.17g temperature=%.17g",
                                   settings->train.distill == TRAIN_DISTILL_HARD ? "hard" : "soft",
                                   settings->train.distill_alpha, settings->train.temperature);
    return OK;
}

/* ---- Weights ---- */

static float *read_param(const struct store *store, int param)
{
    float *values = memory_new((size_t)shape_count(store->graph->params[param].spec.shape), sizeof *values);
    if (store_read(store, param, STORE_MASTER, values) == OK) return values;
    free(values);
    return NULL;
}

/* A batch norm in evaluation: y = scale x + shift, by channel. */
struct affine {
    double *scale, *shift;     /* [channels] */
};

static void affine_free(struct affine *affine)
{
    free(affine->scale);
    free(affine->shift);
}

static enum status affine_read(const struct store *whole, int norm, struct affine *affine)
{
    const struct node *node = &whole->graph->nodes[norm];
    const struct batchnorm *s = node->settings;
    const struct batchnorm_statistics at = batchnorm_statistics(s);
    size_t channels = (size_t)node->shape.c;
    float *mean = read_param(whole, node->param_first + at.mean);
    float *variance = read_param(whole, node->param_first + at.variance);
    float *weight = s->affine ? read_param(whole, node->param_first) : NULL;
    float *bias = s->affine ? read_param(whole, node->param_first + 1) : NULL;
    bool good = mean && variance && (!s->affine || (weight && bias));
    *affine = (struct affine){memory_new(channels, sizeof(double)), memory_new(channels, sizeof(double))};
    for (size_t c = 0; good && c < channels; c++) {
        affine->scale[c] = (weight ? (double)weight[c] : 1) / sqrt((double)variance[c] + s->eps);
        affine->shift[c] = (bias ? (double)bias[c] : 0) - (double)mean[c] * affine->scale[c];
    }
    free(mean);
    free(variance);
    free(weight);
    free(bias);
    return good ? OK : FAILED;
}

/* Weights of filter f times scale[f]; the bias times that, plus shift[f]. */
static enum status write_conv(const struct store *whole, int conv, const struct affine *affine,
                              struct store *store, int node)
{
    const struct node *at = &store->graph->nodes[node];
    const struct shape shape = store->graph->params[at->param_first].spec.shape;
    int64_t count = shape_count(shape), filters = shape.dim[0];
    const struct node *from = conv >= 0 ? &whole->graph->nodes[conv] : NULL;
    float *weight = from ? read_param(whole, from->param_first) : NULL;
    float *own = from && from->param_count > 1 ? read_param(whole, from->param_first + 1) : NULL;
    float *bias = memory_new((size_t)filters, sizeof *bias);
    float *scaled = memory_new((size_t)count, sizeof *scaled);
    for (int64_t i = 0; i < count; i++) {
        double scale = affine->scale[i / (count / filters)];
        scaled[i] = (float)((weight ? (double)weight[i] : 1) * scale);
    }
    for (int64_t f = 0; f < filters; f++)
        bias[f] = (float)((own ? (double)own[f] : 0) * affine->scale[f] + affine->shift[f]);
    enum status status = from && !weight ? FAILED : store_write(store, at->param_first, STORE_MASTER, scaled);
    if (status == OK) status = store_write(store, at->param_first + 1, STORE_MASTER, bias);
    free(weight);
    free(own);
    free(bias);
    free(scaled);
    return status;
}

static enum status write_node(const struct store *whole, int source, struct store *store, int node)
{
    const struct node *from = &whole->graph->nodes[source], *to = &store->graph->nodes[node];
    enum status status = OK;
    if (is_op(from, "batchnorm")) {
        struct affine affine;
        status = affine_read(whole, source, &affine);
        if (status == OK) status = write_conv(whole, folded_conv(whole->graph, source), &affine, store, node);
        affine_free(&affine);
        return status;
    }
    for (int i = 0; i < to->param_count && status == OK; i++) {
        float *values = read_param(whole, from->param_first + i);
        status = values ? store_write(store, to->param_first + i, STORE_MASTER, values) : FAILED;
        free(values);
    }
    return status;
}

static enum status fill(const struct teacher *teacher, const struct store *whole, struct store *store)
{
    for (int i = 1; i < store->graph->count; i++) TRY(write_node(whole, teacher->sources[i], store, i));
    return store_refresh(store);
}

static struct store_options teacher_store_options(enum dtype low)
{
    return (struct store_options){.low = low};
}

static enum status load_into(struct teacher *teacher, struct device *host, struct device *device,
                             enum dtype low)
{
    const struct store_options plain = teacher_store_options(F32), options = teacher_store_options(low);
    const struct weights_options loaded = {.lenient = false};
    struct store whole = {0};
    TRY(store_open(host, &teacher->whole, &plain, &whole));
    enum status status = store_init(&whole, 0);
    if (status == OK) status = weights_load(teacher->path, &loaded, &whole);
    if (status == OK) status = store_open(device, &teacher->graph, &options, &teacher->store);
    if (status == OK) status = fill(teacher, &whole, &teacher->store);
    store_close(&whole);
    return status;
}

enum status teacher_load(struct teacher *teacher, struct device *device, enum dtype low)
{
    struct device *host = device;
    if (!teacher->path || teacher->store.memory) return OK;
    if (device->backend->kind != DEVICE_CPU) TRY(device_open("cpu", omp_get_max_threads(), &host));
    enum status status = load_into(teacher, host, device, low);
    if (host != device) device_close(host);
    return status;
}

int64_t teacher_bytes(const struct teacher *teacher, enum dtype low)
{
    const struct store_options options = teacher_store_options(low);
    struct store_layout layout;
    if (!teacher->path) return 0;
    store_lay_out(&teacher->graph, &options, &layout);
    int64_t bytes = layout.bytes;
    store_layout_free(&layout);
    return bytes;
}

void teacher_close(struct teacher *teacher)
{
    if (teacher->store.memory) store_close(&teacher->store);
    if (teacher->graph.nodes) graph_free(&teacher->graph);
    if (teacher->whole.nodes) graph_free(&teacher->whole);
    free(teacher->sources);
    free(teacher->path);
    free(teacher->checksum);
    free(teacher->distill);
    *teacher = (struct teacher){0};
}
