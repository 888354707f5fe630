#include "trained.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "graph/graph_text.h"
#include "session/checkpoint.h"
#include "session/preprocessing.h"
#include "session/session_store.h"
#include "session/weights.h"

/* What a checkpoint says of the images it was made for. */
struct remembered {
    struct data_hint hint;
    char **names;
    int count;
    bool sized;
    char *graph_text;            /* NULL: the file does not say */
};

/* Weights alone do not say. */
static enum status remember_resize(const struct safetensors *file, struct data_hint *hint)
{
    struct settings then;
    hint->val_resize = -1;
    if (!safetensors_value(file, "config")) return OK;
    TRY(checkpoint_settings(file, &then));
    /* In checkpoints without a graph 0 stands for what is auto since. */
    if (then.augment.val_resize > 0 || safetensors_value(file, "graph")) hint->val_resize = (int)then.augment.val_resize;
    settings_free(&then);
    return OK;
}

static enum status remember(const char *path, struct remembered *remembered)
{
    struct safetensors file;
    struct reason reason;
    if (!safetensors_open(path, &file, &reason)) return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    *remembered = (struct remembered){0};
    struct data_hint *hint = &remembered->hint;
    enum status status = OK;
    if (!checkpoint_input(&file, &hint->h, &hint->w, &hint->channels, &reason))
        status = fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    remembered->sized = hint->h > 0;
    if (status == OK) status = remember_resize(&file, hint);
    if (status == OK) checkpoint_class_names(&file, &remembered->names, &remembered->count);
    if (status == OK) remembered->graph_text = text_copy(safetensors_value(&file, "graph"));
    hint->class_names = remembered->names;
    hint->classes = remembered->count;
    safetensors_close(&file);
    return status;
}

/* The same number of classes under other names is worth a word: the figures may mean nothing. */
static void compare_classes(const struct data *data, const struct remembered *remembered)
{
    if (remembered->count != data->classes) return;
    for (int i = 0; i < data->classes; i++) {
        if (strcmp(data->class_names[i], remembered->names[i]) == 0) continue;
        log_warning("class %d is '%s' in the data, but the weights were trained for '%s'", i,
                    data->class_names[i], remembered->names[i]);
        return;
    }
}

/* Shapes of weights do not tell a network with one activation from one with another. */
static void compare_networks(const struct graph *graph, const struct remembered *remembered, const char *path)
{
    struct reason difference;
    struct text now = {0};
    if (!remembered->graph_text) return;
    graph_text(graph, &now);
    if (!graph_text_same(remembered->graph_text, now.data, &difference))
        log_warning("%s: the weights were trained in another network: %s", path, difference.text);
    text_free(&now);
}

static enum status open_network(const char *path, struct trained *trained)
{
    struct session *session = &trained->session;
    TRY(session_open_device(session));
    struct store_options options = session_store_options(session, false);
    TRY(store_open(session->device, &session->graphs.training, &options, &trained->store));
    TRY(store_init(&trained->store, 0));
    TRY(weights_load(path, &(struct weights_options){0}, &trained->store));
    if (session->data.val.dataset || session->data.train.dataset) TRY(preprocessing_open(session, false));
    return step_open(session, STEP_EVALUATION, &trained->store, &trained->step);
}

enum status trained_open(struct cmd *cmd, unsigned data, struct trained *trained)
{
    const char *path;
    struct remembered remembered;
    *trained = (struct trained){0};
    TRY(cmd_required(cmd, "weights", &path));
    TRY(remember(path, &remembered));
    bool hinted = data != DATA_NONE || remembered.sized;
    cmd_any_batch(cmd);
    enum status status = cmd_session(cmd, data, hinted ? &remembered.hint : NULL, &trained->session);
    if (status == OK) {
        compare_classes(&trained->session.data, &remembered);
        compare_networks(&trained->session.graphs.training, &remembered, path);
        status = open_network(path, trained);
    }
    checkpoint_free_names(remembered.names, remembered.count);
    free(remembered.graph_text);
    if (status != OK) trained_close(trained);
    return status;
}

void trained_close(struct trained *trained)
{
    step_close(&trained->step);
    if (trained->store.memory) store_close(&trained->store);
    session_close(&trained->session);
}
