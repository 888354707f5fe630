#include "cmd/batch_statistics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/weights.h"
#include "cmd/trained.h"
#include "exec/bn_statistics.h"
#include "measure/bench.h"
#include "session/session_open.h"

struct recomputation {
    struct bench bench;          /* a training step in which nothing is trained */
    struct bn_statistics statistics;
};

/* ---- The mean of the weights ---- */

static enum status add_weights(const char *path, struct store *store, double *const *sums)
{
    TRY(weights_load(path, &(struct weights_options){0}, store));
    for (int i = 0; i < store->graph->param_count; i++) {
        if (!sums[i]) continue;
        size_t count = (size_t)shape_count(store->graph->params[i].spec.shape);
        float *values = memory_new(count, sizeof *values);
        enum status status = store_read(store, i, STORE_MASTER, values);
        for (size_t k = 0; k < count; k++) sums[i][k] += values[k];
        free(values);
        TRY(status);
    }
    return OK;
}

static enum status write_mean(struct store *store, int param, double *sum, int files)
{
    size_t count = (size_t)shape_count(store->graph->params[param].spec.shape);
    float *values = memory_new(count, sizeof *values);
    for (size_t k = 0; k < count; k++) values[k] = (float)(sum[k] / files);
    enum status status = store_write(store, param, STORE_MASTER, values);
    free(values);
    return status;
}

static enum status load_mean(char *const *paths, int files, struct store *store)
{
    int params = store->graph->param_count;
    double **sums = memory_new((size_t)params, sizeof *sums);
    enum status status = OK;
    for (int i = 0; i < params; i++)
        if (store->graph->params[i].spec.dtype == F32)
            sums[i] = memory_new((size_t)shape_count(store->graph->params[i].spec.shape), sizeof *sums[i]);
    for (int i = 0; i < files && status == OK; i++) status = add_weights(paths[i], store, sums);
    for (int i = 0; i < params && status == OK; i++)
        if (sums[i]) status = write_mean(store, i, sums[i], files);
    for (int i = 0; i < params; i++) free(sums[i]);
    free(sums);
    return status == OK ? store_refresh(store) : status;
}

/* ---- Statistics ---- */

static enum status find_running(struct recomputation *r)
{
    bn_statistics_open(&r->bench.session.graphs.training, &r->statistics);
    return r->statistics.count > 0 ? OK : fail(USAGE, "average: --recompute-bn: the network has no batch "
                                               "norms whose statistics follow the images");
}

static enum status add_batch(struct recomputation *r)
{
    struct store *store = &r->bench.store;
    int64_t updates = exec_state(r->bench.step.exec)->updates;
    TRY(bn_statistics_clear(&r->statistics, store));
    TRY(bench_step(&r->bench, NULL));
    if (exec_state(r->bench.step.exec)->updates == updates)
        return fail(FAILED, "average: --recompute-bn: the network's output is not finite");
    return bn_statistics_add(&r->statistics, store);
}

static enum status add_batches(struct recomputation *r)
{
    const struct session *session = &r->bench.session;
    int64_t batches = session->data.train.count / session->hyper.batch;
    for (int64_t i = 0; i < batches; i++) TRY(add_batch(r));
    TRY(bn_statistics_end(&r->statistics, &r->bench.store));
    log_info("batch norm statistics of %" PRId64 " batches of %d training images", batches,
             session->hyper.batch);
    return OK;
}

/* ---- The session ---- */

/* The first file's settings, but for what changes weights, or images beyond their own augmentation. */
static enum status choose_settings(struct cmd *cmd, const char *path)
{
    static const char *const dropped[][2] = {
        {"train", "teacher"}, {"train", "ema"}, {"train", "swa"}, {"train", "freeze"},
        {"train", "freeze_epochs"},
        {"augment", "mixup"}, {"augment", "cutmix"}, {"augment", "sizes"}, {"augment", "repeats"},
    };
    settings_free(&cmd->settings);
    TRY(trained_settings_of(cmd, path));
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        settings_drop(&cmd->settings, dropped[i][0], dropped[i][1]);
    session_any_batch(&cmd->settings);
    return OK;
}

static void freeze_weights(struct graph *graph)
{
    for (int i = 0; i < graph->param_count; i++)
        if (graph->params[i].spec.role != ROLE_STATISTIC) graph->params[i].frozen = true;
}

static enum status recompute_all(struct cmd *cmd, char *const *paths, int count, struct recomputation *r)
{
    TRY(choose_settings(cmd, paths[0]));
    TRY(trained_session(cmd, paths[0], &r->bench.session));
    freeze_weights(&r->bench.session.graphs.training);
    TRY(find_running(r));
    r->bench.steps = 1;
    r->bench.still = true;
    TRY(bench_open(true, &r->bench));
    TRY(load_mean(paths, count, &r->bench.store));
    return add_batches(r);
}

/* ---- The result ---- */

static void give_values(struct recomputation *r, struct export_values *statistics)
{
    const struct graph *graph = &r->bench.session.graphs.training;
    struct bn_statistics *from = &r->statistics;
    statistics->list = memory_new((size_t)from->count, sizeof *statistics->list);
    statistics->count = from->count;
    for (int i = 0; i < from->count; i++) {
        statistics->list[i].name = text_copy(graph->params[from->list[i].param].name);
        statistics->list[i].data = from->list[i].values;
        from->list[i].values = NULL;
    }
}

enum status batch_statistics_make(struct cmd *cmd, char *const *paths, int count,
                                  struct export_values *statistics)
{
    struct recomputation r = {0};
    enum status status = recompute_all(cmd, paths, count, &r);
    *statistics = (struct export_values){0};
    if (status == OK) give_values(&r, statistics);
    bn_statistics_close(&r.statistics);
    bench_close(&r.bench);
    return status;
}

void batch_statistics_free(struct export_values *statistics)
{
    for (int i = 0; i < statistics->count; i++) {
        free((char *)statistics->list[i].name);
        free((void *)statistics->list[i].data);
    }
    free(statistics->list);
    *statistics = (struct export_values){0};
}
