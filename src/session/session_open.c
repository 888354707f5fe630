#include "session/session_open.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/text.h"
#include "session/step_fit.h"
#include "session/step_times.h"
#include "transfer/whiten.h"

static enum status refuse_batch(const struct session *session, int64_t limit)
{
    int images = hyperparameters_micro_batches(&session->hyper);
    char bytes[TEXT_BYTES];
    return fail(NO_DEVICE, "%s: train.batch: not even %d image%s per step fit%s into %s of memory",
                settings_where(session->settings, "train", "batch"), images, images == 1 ? "" : "s",
                images == 1 ? "s" : "", text_bytes((uint64_t)limit, bytes));
}

/* The largest that every rank has the memory for. */
static enum status largest_batch(struct session *session, int64_t *limit, int64_t *batch)
{
    int own = 0;
    if (*limit == 0) TRY(step_fit_limit(session, limit));
    TRY(comm_minimum(session->comm, limit));
    if (*limit > 0) TRY(step_fit_batch(session, *limit, true, &own));
    *batch = own;
    return comm_minimum(session->comm, batch);
}

/* Resolves train.batch=auto, and the memory limit for which it was found, which then applies to the run. */
static enum status find_batch(struct session *session)
{
    struct settings *settings = session->settings;
    const struct images *train = &session->data.train;
    int64_t limit = settings->memory.limit, batch, least = hyperparameters_micro_batches(&session->hyper);
    char bytes[TEXT_BYTES];
    TRY(largest_batch(session, &limit, &batch));
    bool fits = batch > 0;
    if (!fits && train->dataset && train->count < least) batch = least;
    if (batch == 0) return refuse_batch(session, limit);
    settings_derive_number(settings, "train", "batch", batch);
    session->fitted = fits;
    if (fits && settings->memory.limit == 0) settings_derive_number(settings, "memory", "limit", limit);
    if (fits)
        log_info("train.batch: auto is %" PRId64 ", the largest batch that fits into %s of memory%s", batch,
                 text_bytes((uint64_t)limit, bytes), session->hyper.replicas > 1 ? " on each GPU" : "");
    return OK;
}

/* Commands that can run without data also accept fewer images than a batch. */
static enum status open_numbers(struct session *session, const struct data_options *data)
{
    TRY(hyperparameters_open(session->settings, &session->data, &session->hyper));
    session_join(session);
    const struct settings *settings = session->settings;
    if (session->hyper.optimizer->has_matrices && settings->optimizer.lr > 0)
        graphs_scale_others(&session->graphs, settings->optimizer.adamw_lr / settings->optimizer.lr);
    if (session->settings->train.batch == 0) TRY(find_batch(session));
    const struct images *train = &session->data.train;
    bool few = (data->wanted & DATA_OPTIONAL) && train->count < session->settings->train.batch;
    return hyperparameters_set_batch(session->settings, few || data->hint ? NULL : train, &session->hyper);
}

static enum status open_teacher(struct session *session)
{
    const struct teacher_options options = {session->settings, session->file, &session->data,
                                            &session->graphs.training};
    data_number_classes(&session->data, session->graphs.training.classes);
    return teacher_open(&options, &session->teacher, &session->graphs.step);
}

static enum status check_teacher(const struct session *session)
{
    if (!session->teacher.path || session->hyper.loss == LOSS_CE) return OK;
    return settings_refuse(session->settings, "train", "teacher", "needs train.loss = ce");
}

static enum status open_parts(struct session *session, const struct data_options *data)
{
    const struct graphs_options graphs = {.settings = session->settings, .file = session->file,
                                          .data = &session->data, .hint = data->hint};
    TRY(data_open(session->settings, data, &session->data));
    TRY(graphs_open(&graphs, &session->graphs));
    TRY(whiten_check(&session->graphs.training));
    if ((data->wanted & DATA_TRAIN) && !data->hint) TRY(open_teacher(session));
    data_number_classes(&session->data, session->graphs.training.classes);
    return open_numbers(session, data);
}

static enum status check_preprocessing(const struct session *session)
{
    const struct caching_options caching = session_caching_options(session);
    const struct decoding_options decoding = session_decoding_options(session);
    const char *why = caching_refusal(&caching);
    if (why) return settings_refuse(session->settings, "loader", "cache", "%s", why);
    why = decoding_refusal(&decoding);
    if (why)
        return settings_refuse(session->settings, "loader", "decode", "gpu is not possible: %s", why);
    return OK;
}

/* The name of an algorithm, or its first words, which several begin with. */
static enum status check_algorithm(const struct session *session)
{
    const char *name = session_conv_algorithm(session);
    const struct op_code *code = kernel_plans_code(session_device_kind(session))(op_find("conv"));
    if (!name || !code) return OK;
    struct text all = {0};
    bool found = false;
    for (int i = 0; code->variants[i]; i++) {
        if (op_variant_is(code->variants[i], name)) found = true;
        text_add(&all, ", %s", code->variants[i]);
    }
    enum status status = OK;
    if (!found)
        status = settings_refuse(session->settings, "run", "conv_algorithm", "there is no '%s', only auto%s",
                                 name, all.data);
    text_free(&all);
    return status;
}

enum status session_open(struct settings *settings, const struct data_options *data,
                         struct comm *comm, struct session *session)
{
    *session = (struct session){.settings = settings, .file = data->file, .comm = comm};
    session->gpu = step_times_gpu();
    enum status status = open_parts(session, data);
    if (status == OK) status = check_preprocessing(session);
    if (status == OK) status = check_algorithm(session);
    if (status == OK) status = check_teacher(session);
    if (status != OK) session_close(session);
    return status;
}

void session_any_batch(struct settings *settings)
{
    if (settings->parallel.gpus > 1) settings_derive(settings, "parallel", "gpus", "1");
    if (settings->parallel.stages > 1) settings_derive(settings, "parallel", "stages", "1");
    if (settings->parallel.microbatches != 1) settings_derive(settings, "parallel", "microbatches", "1");
    if (settings->train.batch > 0) return;
    settings_derive(settings, "train", "batch", "128");
    settings_derive(settings, "train", "accumulate", "1");
}
