#include "session/session_store.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/network_identity.h"
#include "checkpoint/weights.h"
#include "session/session_loader.h"
#include "transfer/holdout.h"
#include "transfer/whiten.h"

struct store_options session_store_options(const struct session *session, bool training)
{
    return (struct store_options){
        .low = session->hyper.precision->storage,
        .optimizer = training ? session->hyper.optimizer : NULL,
        .ema = training && session->settings->train.ema + (double)session->settings->train.swa > 0,
    };
}

/* Weights may begin in another network, if shapes allow it, and for another task. Classes are matched by
 * name, or begin anew. */
static enum status say_network(const struct session *session, const char *path)
{
    struct weights_file file;
    struct network_identity then, now;
    struct reason reason;
    struct text differences = {0};
    if (!weights_file_open(path, &file, &reason)) return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    enum status status = network_identity_read(&file.described, &then);
    weights_file_close(&file);
    TRY(status);
    network_identity_make(&session->graphs.training, session->settings, NULL, 0, &now);
    if (then.task != now.task) now.task = TASK_AUTO;
    if (!network_identity_same(&then, &now, GRAPH_SAME_WEIGHTS, &differences))
        log_warning("%s: the weights were trained otherwise than they are used here: %s", path,
                    differences.data);
    text_free(&differences);
    network_identity_free(&then);
    network_identity_free(&now);
    return OK;
}

enum status session_store_weights(const struct session *session, struct store *store)
{
    const char *named = session->settings->model.weights;
    if (!named || !*named) return OK;
    char *given = settings_path(session->settings, session->file, named), *path = NULL;
    const struct weights_options options = {
        .fine_tuned = true,
        .encoder = true,
        .lenient = !session->settings->model.weights_strict,
        .class_names = session->data.class_names,
        .classes = session->data.classes,
        .mean = &session->settings->augment.mean,
        .std = &session->settings->augment.std,
        .interpolation =
            session->settings->augment.interpolation == INTERPOLATION_BICUBIC ? "bicubic" : "bilinear",
    };
    enum status status = weights_path(given, &path);
    if (status == OK) status = say_network(session, path);
    if (status == OK)
        status = store ? weights_load(path, &options, store)
                       : weights_check(path, &options, &session->graphs.training);
    if (status == OK) holdout_warn(path, &session->data);
    free(path);
    free(given);
    return status;
}

enum status session_store_whiten(const struct session *session, struct store *store)
{
    struct loader *loader;
    if (!session->data.train.dataset || !whiten_is_needed(store->graph)) return OK;
    TRY(session_loader_open_numbers(session, &session->data.train, &loader));
    enum status status = whiten_store(&session->data, loader, store);
    loader_close(loader);
    return status;
}

/* Broadcasts one tensor from the rank that updates it. */
static enum status share_part(struct comm *comm, int owner, struct store *store, int param,
                              enum store_part part)
{
    const struct op_param *spec = &store->graph->params[param].spec;
    size_t bytes = (size_t)shape_count(spec->shape) * dtype_bytes(spec->dtype);
    void *host = memory_new(bytes, 1);
    bool own = comm->rank == owner;
    enum status status = own ? store_read(store, param, part, host) : OK;
    if (status == OK) status = comm_broadcast(comm, owner, host, bytes);
    if (status == OK && !own) status = store_write(store, param, part, host);
    free(host);
    return status;
}

enum status session_store_share(const struct session *session, const struct program *program,
                                struct store *store)
{
    if (!session->stages) return OK;
    for (int p = 0; p < store->layout.count; p++) {
        int stage = program->node_stages[program->graph->params[p].node];
        for (enum store_part part = STORE_MASTER; part <= STORE_SLOT2; part++)
            if (store_has(store, p, part)) TRY(share_part(session->comm, stage, store, p, part));
    }
    return store_refresh(store);
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
