#include "session/graphs.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search_paths.h"
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
    };
    if (options->hint && options->hint->network) {
        model.arch = options->hint->arch;
        model.text = options->hint->network;
        model.dropout = -1;
    }
    enum status status = model_load(&model, graph);
    free(file);
    search_paths_free(&paths);
    return status;
}

/* Freezes what one pattern names; how many parameters that were, besides statistics. */
static int freeze(struct graph *graph, const char *pattern, bool first)
{
    int frozen = 0;
    for (int i = 0; i < graph->param_count; i++) {
        struct parameter *parameter = &graph->params[i];
        if (fnmatch(pattern, parameter->name, 0) != 0) continue;
        parameter->frozen = !first;
        parameter->frozen_first = first;
        frozen += parameter->spec.role != ROLE_STATISTIC;
    }
    return frozen;
}

static enum status freeze_all(const struct settings *settings, struct graph *graph)
{
    char *patterns = text_copy(settings->train.freeze);
    bool first = settings->train.freeze_epochs > 0;
    enum status status = OK;
    char *rest = NULL;
    char *pattern = patterns ? strtok_r(patterns, ", ", &rest) : NULL;
    for (; pattern && status == OK; pattern = strtok_r(NULL, ", ", &rest))
        if (freeze(graph, pattern, first) == 0)
            status = settings_refuse(settings, "train", "freeze", "no parameter matches '%s'", pattern);
    free(patterns);
    return status;
}

void graphs_freeze_first(struct graphs *graphs, bool frozen)
{
    for (int i = 0; i < graphs->training.param_count; i++) {
        struct parameter *parameter = &graphs->training.params[i];
        if (parameter->frozen_first) parameter->frozen = frozen;
    }
}

static enum status check_shapes(const struct graphs_options *options, const struct graphs *graphs)
{
    const struct images *train = &options->data->train, *val = &options->data->val;
    for (int i = 0; i < graphs->training.param_count; i++)
        if (!shape_equal(graphs->training.params[i].spec.shape, graphs->evaluation.params[i].spec.shape))
            return settings_refuse(options->settings, "augment", "val_crop",
                                   "the network cannot evaluate images of %dx%d: '%s' needs %dx%d",
                                   val->h, val->w, graphs->training.params[i].name, train->h, train->w);
    return OK;
}

enum status graphs_open(const struct graphs_options *options, struct graphs *graphs)
{
    const struct images *train = &options->data->train, *val = &options->data->val;
    *graphs = (struct graphs){0};
    TRY(load_graph(options, train, &graphs->training));
    TRY(freeze_all(options->settings, &graphs->training));
    graphs->evaluation = graphs->training;
    if (val->h == train->h && val->w == train->w) return OK;
    TRY(load_graph(options, val, &graphs->evaluation));
    graphs->own_evaluation = true;
    return check_shapes(options, graphs);
}

void graphs_close(struct graphs *graphs)
{
    if (graphs->own_evaluation) graph_free(&graphs->evaluation);
    if (graphs->training.nodes) graph_free(&graphs->training);
    *graphs = (struct graphs){0};
}
