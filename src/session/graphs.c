#include "session/graphs.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search_paths.h"
#include "checkpoint/position_embedding.h"
#include "graph/model.h"

static enum status load_graph(const struct graphs_options *options, const struct images *images,
                              struct graph *graph)
{
    const struct settings *settings = options->settings;
    struct search_paths paths = search_paths_find();
    char *file = settings->model.file ? settings_path(settings, options->file, settings->model.file) : NULL;
    struct model_options model = {
        .arch = settings->model.arch,
        .file = file,
        .folders = (const char *const *)paths.models,
        .size_h = images->h,
        .size_w = images->w,
        .channels = options->data->channels,
        .classes = options->data->classes,
        .dropout = settings->model.dropout,
        .drop_path = settings->model.drop_path >= 0 ? &settings->model.drop_path : NULL,
        .bn_momentum = settings->model.bn_momentum,
        .norm_eps = settings->model.norm_eps,
        .outputs = options->any_outputs                     ? OUTPUTS_ANY
                   : options->data->target == TARGET_MASK ? OUTPUTS_OF_PIXELS
                                                          : OUTPUTS_OF_IMAGES,
    };
    if (options->hint && options->hint->network) {
        model.arch = options->hint->arch;
        model.text = options->hint->network;
        model.dropout = -1;
        model.drop_path = NULL;
        model.bn_momentum = model.norm_eps = 0;
    }
    enum status status = model_load(&model, graph);
    free(file);
    search_paths_free(&paths);
    return status;
}

/* The action of an option on the parameters that a pattern matches. */
typedef void change(struct parameter *parameter, double number);

static void freeze(struct parameter *parameter, double first)
{
    parameter->frozen = first == 0;
    parameter->frozen_first = first != 0;
}

static void scale_rate(struct parameter *parameter, double factor)
{
    parameter->lr_scale *= factor;
}

/* Returns the number of matching parameters, without statistics. */
static int change_named(struct graph *graph, const char *pattern, change *change, double number)
{
    int named = 0;
    for (int i = 0; i < graph->param_count; i++) {
        struct parameter *parameter = &graph->params[i];
        if (fnmatch(pattern, parameter->name, 0) != 0) continue;
        change(parameter, number);
        named += parameter->spec.role != ROLE_STATISTIC;
    }
    return named;
}

/* An option that is a list of patterns, with `number`, or with numbers of their own. */
struct named_changes {
    const struct settings *settings;
    const char *section, *key, *words;
    bool numbered;
    double number;
    change *change;
};

/* "conv*:0.1" becomes "conv*" and 0.1. */
static enum status take_number(const struct named_changes *changes, char *word, double *number)
{
    static const struct field factor = {.name = "factor", .type = FIELD_REAL, .max = 1e6};
    struct reason reason;
    char *colon = strrchr(word, ':');
    if (!colon)
        return settings_refuse(changes->settings, changes->section, changes->key,
                               "'%s' must be a pattern, a colon and a factor", word);
    *colon = '\0';
    if (field_parse(&factor, number, colon + 1, &reason)) return OK;
    return settings_refuse(changes->settings, changes->section, changes->key, "%s: %s", word, reason.text);
}

static enum status make_change(const struct named_changes *changes, struct graph *graph, char *word)
{
    double number = changes->number;
    if (changes->numbered) TRY(take_number(changes, word, &number));
    if (change_named(graph, word, changes->change, number) > 0) return OK;
    return settings_refuse(changes->settings, changes->section, changes->key, "no parameter matches '%s'",
                           word);
}

static enum status make_changes(const struct named_changes *changes, struct graph *graph)
{
    char *words = text_copy(changes->words), *rest = NULL;
    enum status status = OK;
    char *word = words ? strtok_r(words, ", ", &rest) : NULL;
    for (; word && status == OK; word = strtok_r(NULL, ", ", &rest))
        status = make_change(changes, graph, word);
    free(words);
    return status;
}

static enum status freeze_named(const struct settings *settings, struct graph *graph)
{
    const struct named_changes changes = {
        .settings = settings, .section = "train", .key = "freeze", .words = settings->train.freeze,
        .number = settings->train.freeze_epochs > 0, .change = freeze,
    };
    return make_changes(&changes, graph);
}

/* A fresh last layer on the features of trained weights, which have any size, begins with the mean of the
 * numbers, from which it would else be many deviations away. */
static void begin_with_mean(const struct settings *settings, struct graph *graph)
{
    if (settings->data.task != TASK_REGRESS || !settings->model.weights) return;
    for (int i = 0; i < graph->param_count; i++)
        if (graph_is_classifier(graph, graph->params[i].node)) graph->params[i].spec.init = INIT_ZERO;
}

static enum status set_rates(const struct settings *settings, struct graph *graph)
{
    const struct named_changes changes = {
        .settings = settings, .section = "optimizer", .key = "lr_scale",
        .words = settings->optimizer.lr_scale, .numbered = true, .change = scale_rate,
    };
    int *layers = memory_new((size_t)graph->count, sizeof *layers);
    graph_layers_behind(graph, settings->optimizer.layer_decay_by == LAYER_DECAY_BY_BLOCK, layers);
    for (int i = 0; i < graph->param_count; i++)
        graph->params[i].lr_scale = pow(settings->optimizer.layer_decay, layers[graph->params[i].node]);
    free(layers);
    return make_changes(&changes, graph);
}

static void freeze_first(struct graph *graph, bool frozen)
{
    for (int i = 0; i < graph->param_count; i++)
        if (graph->params[i].frozen_first) graph->params[i].frozen = frozen;
}

void graphs_freeze_first(struct graphs *graphs, bool frozen)
{
    freeze_first(&graphs->training, frozen);
    if (graphs->step.nodes) freeze_first(&graphs->step, frozen);
}

static void freeze_weights(struct graph *graph, bool frozen)
{
    for (int i = 0; i < graph->param_count; i++) {
        struct parameter *param = &graph->params[i];
        if (param->spec.role == ROLE_STATISTIC) continue;
        if (frozen) param->frozen_before = param->frozen;
        param->frozen = frozen || param->frozen_before;
    }
}

void graphs_freeze_weights(struct graphs *graphs, bool frozen)
{
    freeze_weights(&graphs->training, frozen);
    if (graphs->step.nodes) freeze_weights(&graphs->step, frozen);
}

/* True if parameter `i` of both can have the same values: 4x4 patches have other positions than 2x8. */
static bool is_shared(const struct graph *one, const struct graph *other, int i)
{
    return shape_equal(one->params[i].spec.shape, other->params[i].spec.shape) &&
           image_size_equal(position_embedding_grid(one, &one->params[i]),
                            position_embedding_grid(other, &other->params[i]));
}

static enum status check_shapes(const struct graphs_options *options, const struct graphs *graphs)
{
    const struct images *train = &options->data->train, *val = &options->data->val;
    for (int i = 0; i < graphs->training.param_count; i++)
        if (!is_shared(&graphs->training, &graphs->evaluation, i))
            return settings_refuse(options->settings, "augment", "val_crop",
                                   "the network cannot evaluate images of %dx%d: '%s' needs %dx%d",
                                   val->h, val->w, graphs->training.params[i].name, train->h, train->w);
    return OK;
}

static enum status load_sized(const struct graphs_options *options, const struct graph *training,
                              struct image_size size, struct graph *sized)
{
    const struct images images = {.h = size.h, .w = size.w};
    TRY(load_graph(options, &images, sized));
    for (int i = 0; i < training->param_count; i++) {
        struct parameter *parameter = &sized->params[i];
        const struct parameter *own = &training->params[i];
        if (!is_shared(training, sized, i)) {
            enum status status = settings_refuse(options->settings, "augment", "sizes",
                                                 "the network cannot be trained on images of %dx%d as well: "
                                                 "'%s' would have another shape", size.h, size.w, own->name);
            graph_free(sized);
            return status;
        }
        parameter->frozen = own->frozen;
        parameter->frozen_first = own->frozen_first;
        parameter->lr_scale = own->lr_scale;
        parameter->rows = own->rows;
    }
    return OK;
}

enum status graphs_resize(struct graphs *graphs, const struct graphs_options *options,
                          struct image_size size)
{
    struct graph sized;
    TRY(load_sized(options, &graphs->training, size, &sized));
    if (graphs->step.nodes) graph_free(&graphs->step);
    graphs->step = sized;
    return OK;
}

static void note_pixels(struct graphs *graphs, const struct graph *sized)
{
    for (int i = 0; i < sized->count; i++) {
        int64_t pixels = sized->nodes[i].shape.h * sized->nodes[i].shape.w;
        if (graphs->pixels[i] == 0 || pixels < graphs->pixels[i]) graphs->pixels[i] = pixels;
    }
}

static enum status check_sizes(const struct graphs_options *options, struct graphs *graphs)
{
    const struct train_sizes *sizes = &options->data->sizes;
    graphs->pixels = memory_new((size_t)graphs->training.count, sizeof *graphs->pixels);
    if (sizes->count == 0 || sizes->list[0].epoch > 1) note_pixels(graphs, &graphs->training);
    for (int i = 0; i < sizes->count; i++) {
        struct graph sized;
        TRY(load_sized(options, &graphs->training, sizes->list[i].size, &sized));
        note_pixels(graphs, &sized);
        graph_free(&sized);
    }
    return OK;
}

enum status graphs_open(const struct graphs_options *options, struct graphs *graphs)
{
    const struct images *train = &options->data->train, *val = &options->data->val;
    *graphs = (struct graphs){0};
    TRY(load_graph(options, train, &graphs->training));
    graph_find_matrices(&graphs->training);
    TRY(freeze_named(options->settings, &graphs->training));
    begin_with_mean(options->settings, &graphs->training);
    TRY(set_rates(options->settings, &graphs->training));
    TRY(check_sizes(options, graphs));
    graphs->evaluation = graphs->training;
    if (val->h == train->h && val->w == train->w) return OK;
    TRY(load_graph(options, val, &graphs->evaluation));
    graphs->own_evaluation = true;
    return check_shapes(options, graphs);
}

void graphs_scale_others(struct graphs *graphs, double factor)
{
    for (int i = 0; i < graphs->training.param_count; i++) {
        struct parameter *parameter = &graphs->training.params[i];
        if (parameter->rows == 0) parameter->lr_scale *= factor;
    }
}

void graphs_close(struct graphs *graphs)
{
    if (graphs->own_evaluation) graph_free(&graphs->evaluation);
    if (graphs->step.nodes) graph_free(&graphs->step);
    if (graphs->folded.nodes) graph_free(&graphs->folded);
    if (graphs->training.nodes) graph_free(&graphs->training);
    free(graphs->pixels);
    *graphs = (struct graphs){0};
}
