#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/graph_text.h"
#include "base/search_paths.h"
#include "session/setup.h"

static enum status load_graph(const struct setup *setup, int h, int w, struct graph *graph)
{
    const struct settings *settings = setup->settings;
    struct search_paths paths = search_paths_find();
    char *file = settings->model.file ? settings_path(settings, setup->file, settings->model.file) : NULL;
    struct model_options options = {
        .arch = settings->model.arch,
        .file = file,
        .folders = (const char *const *)paths.models,
        .size_h = h,
        .size_w = w,
        .channels = setup->channels,
        .classes = setup->classes,
        .dropout = settings->model.dropout,
    };
    enum status status = model_load(&options, graph);
    free(file);
    search_paths_free(&paths);
    return status;
}

/* Freezes what one pattern names; how many parameters that were. */
static int freeze(struct graph *graph, const char *pattern)
{
    int frozen = 0;
    for (int i = 0; i < graph->param_count; i++) {
        struct parameter *parameter = &graph->params[i];
        if (parameter->spec.role == ROLE_STATISTIC || fnmatch(pattern, parameter->name, 0) != 0) continue;
        parameter->frozen = true;
        frozen++;
    }
    return frozen;
}

static enum status freeze_all(const struct setup *setup, struct graph *graph)
{
    char *patterns = text_copy(setup->settings->train.freeze);
    enum status status = OK;
    char *rest = NULL;
    char *pattern = patterns ? strtok_r(patterns, ", ", &rest) : NULL;
    for (; pattern && status == OK; pattern = strtok_r(NULL, ", ", &rest))
        if (freeze(graph, pattern) == 0)
            status = setup_refuse(setup, "train", "freeze", "no parameter is called '%s'", pattern);
    free(patterns);
    return status;
}

/* Classes that the data do not name: the model file's own number. */
static void name_model_classes(struct setup *setup)
{
    if (setup->classes > 0) return;
    free(setup->class_names);
    setup->classes = setup->graph.classes;
    setup->class_names = memory_new((size_t)setup->classes, sizeof *setup->class_names);
    for (int i = 0; i < setup->classes; i++) setup->class_names[i] = text_format("%d", i);
}

enum status setup_network(struct setup *setup)
{
    struct text text = {0};
    TRY(load_graph(setup, setup->train.h, setup->train.w, &setup->graph));
    graph_text(&setup->graph, &text);
    setup->graph_text = text.data;
    TRY(freeze_all(setup, &setup->graph));
    name_model_classes(setup);
    setup->val_graph = setup->graph;
    if (setup->val.h == setup->train.h && setup->val.w == setup->train.w) return OK;
    TRY(load_graph(setup, setup->val.h, setup->val.w, &setup->val_graph));
    setup->own_val_graph = true;
    for (int i = 0; i < setup->graph.param_count; i++)
        if (!shape_equal(setup->graph.params[i].spec.shape, setup->val_graph.params[i].spec.shape))
            return setup_refuse(setup, "augment", "val_crop",
                                "evaluation images of %dx%d do not fit the network, "
                                "whose '%s' is made for %dx%d",
                                setup->val.h, setup->val.w, setup->graph.params[i].name, setup->train.h,
                                setup->train.w);
    return OK;
}
