#include "session/session_store.h"

#include <stdlib.h>

#include "session/weights.h"

struct store_options session_store_options(const struct session *session, bool training)
{
    return (struct store_options){
        .low = session->hyper.precision->storage,
        .optimizer = training ? session->hyper.optimizer : NULL,
        .ema = training && session->settings->train.ema > 0,
    };
}

enum status session_store_weights(const struct session *session, struct store *store)
{
    const char *named = session->settings->model.weights;
    if (!named || !*named) return OK;
    char *path = settings_path(session->settings, session->file, named);
    const struct weights_options options = {true, session->data.class_names, session->data.classes};
    enum status status = weights_load(path, &options, store);
    free(path);
    return status;
}

enum status session_store_open(const struct session *session, struct store *store)
{
    struct store_options options = session_store_options(session, true);
    struct store opened = {0};
    TRY(store_open(session->device, &session->graphs.training, &options, &opened));
    enum status status = store_init(&opened, (uint64_t)session->settings->run.seed);
    struct optimizer_state state = {.scaler = scaler_start(&session->hyper.scaling)};
    if (status == OK) status = store_write_state(&opened, &state);
    if (status != OK)
        store_close(&opened);
    else
        *store = opened;
    return status;
}
