#include "train/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/watch.h"
#include "session/preprocessing.h"
#include "session/session_loader.h"
#include "session/session_store.h"
#include "session/step_fit.h"
#include "session/step_ranks.h"
#include "train/probe.h"

static struct checkpoint_source source_of(const struct run *run, const char *algorithms)
{
    const struct session *session = run->session;
    return (struct checkpoint_source){
        .run = run->id,
        .store = &run->store,
        .optimizer = session->hyper.optimizer,
        .settings = session->settings,
        .file = session->file,
        .graph = &session->graphs.training,
        .class_names = session->data.class_names,
        .classes = session->data.classes,
        .thresholds = session->data.thresholds,
        .masks = session->data.masks,
        .teacher = session->teacher.checksum,
        .train_images = session->data.train.count,
        .val_images = session->data.val.count,
        .identities = {session->data.identities[SPLIT_TRAIN], session->data.identities[SPLIT_VAL]},
        .h = session->data.val.h,
        .w = session->data.val.w,
        .channels = session->data.channels,
        .algorithms = algorithms,
        .threads = session_device_kind(session) == DEVICE_CPU ? session->device->threads : 0,
    };
}

static enum status match(const struct run *run, const struct safetensors *file)
{
    struct checkpoint_source now = source_of(run, NULL);
    TRY(checkpoint_match_settings(file, run->session->settings));
    TRY(checkpoint_match_data(file, &now));
    TRY(checkpoint_match_network(file, &now));
    return checkpoint_match(file, &run->store, run->session->hyper.optimizer);
}

/* Restores the best epoch; there is none yet if the criterion differs. */
static enum status restore_best(struct run *run, const struct safetensors *file)
{
    bool same;
    TRY(checkpoint_match_best(file, run->session->settings, &same));
    if (same || run->position.best_epoch == 0) return OK;
    log_info("checkpoint.best has changed: the best epoch so far, %lld, no longer counts",
             (long long)run->position.best_epoch);
    run->position.best = 0;
    run->position.best_epoch = run->position.epochs_without_gain = 0;
    return OK;
}

/* On the CPU some sums are computed in as many parts as there are threads. */
static void say_threads(const struct run *run, const struct safetensors *file)
{
    int then = checkpoint_threads(file), now = source_of(run, NULL).threads;
    if (then == 0 || now == 0 || then == now) return;
    log_warning("%s: the run used %d thread%s and resumes with %d: from here on results may differ from an "
                "uninterrupted run in their last bits at first", file->path, then,
                then == 1 ? "" : "s", now);
}

/* Warns if the length of the run, and so the learning rate, has changed. */
static enum status say_schedule(const struct run *run, const struct safetensors *file)
{
    const struct schedule *now = &run->session->hyper.schedule;
    struct schedule before = *now;
    struct settings then;
    TRY(checkpoint_settings(file, &then));
    before.total = then.train.epochs * run->session->hyper.steps_per_epoch;
    double was = schedule_at(&before, run->state.updates).lr, is = schedule_at(now, run->state.updates).lr;
    if (was != is)
        log_warning("train.epochs is %" PRId64 ", not %" PRId64 ": the schedule '%s' changes, and the "
                    "learning rate continues at %.4g, not at %.4g", run->session->settings->train.epochs,
                    then.train.epochs, now->row->name, is, was);
    settings_free(&then);
    return OK;
}

static enum status restore(struct run *run, const struct safetensors *file)
{
    const struct session *session = run->session;
    const char *id = checkpoint_run(file);
    TRY(match(run, file));
    if (id) memcpy(run->id, id, sizeof run->id);
    TRY(checkpoint_restore(file, &run->store, session->hyper.optimizer, &run->position));
    run->saved_position = run->position;
    if (!run->session->data.thresholds)
        run->session->data.thresholds = checkpoint_thresholds(file, session->data.classes);
    TRY(restore_best(run, file));
    run->session->hyper.schedule.reduced = run->position.plateau.lr;
    TRY(store_read_state(&run->store, &run->state));
    say_threads(run, file);
    TRY(say_schedule(run, file));
    const char *algorithms = checkpoint_algorithms(file);
    const struct device_backend *backend = session->device->backend;
    if (algorithms && backend->autotuner.load) backend->autotuner.load(session->device, algorithms);
    log_info("%s: resuming after step %lld, in epoch %lld", file->path, (long long)run->state.step,
             (long long)run->position.epoch + 1);
    return OK;
}

/* Up to this many threads per processor a step takes about the same time. */
#define THREADS_PER_PROCESSOR 4

/* A run that is finished needs no teacher that is not there any more. */
static void recall_teacher(const struct safetensors *file, const char *config, struct settings *settings)
{
    struct position then;
    struct optimizer_state state;
    struct reason unsaid;
    if (!settings_has_teacher(settings)) return;
    char *teacher = settings_path(settings, config, settings->train.teacher);
    bool there = access(teacher, F_OK) == 0;
    free(teacher);
    if (there || !position_parse(file, &then, &state, &unsaid) || then.epoch < settings->train.epochs) return;
    log_info("%s: the run is finished, and goes without its teacher, %s, which is not there", file->path,
             settings->train.teacher);
    settings_derive(settings, "train", "teacher", "");
}

static bool recall_from(const char *path, const struct run_options *options, struct settings *settings)
{
    struct safetensors file;
    struct reason reason;
    if (!safetensors_open(path, &file, &reason)) return false;
    if (settings->train.batch == 0) checkpoint_recall_batch(&file, settings);
    if (settings->parallel.microbatches == 0) checkpoint_recall_micro_batches(&file, settings);
    if (settings->run.threads == 0)
        checkpoint_recall_threads(&file, THREADS_PER_PROCESSOR * host_processors(), settings);
    recall_teacher(&file, options->config, settings);
    safetensors_close(&file);
    return true;
}

/* Errors of a checkpoint are reported when the run is opened. */
void run_recall(const struct run_options *options, struct settings *settings)
{
    static const char *const names[] = {CHECKPOINT_LAST, CHECKPOINT_PREVIOUS};
    if (!options->resume) return;
    if (options->resume_file) recall_from(options->resume_file, options, settings);
    bool found = options->resume_file || !options->output;
    for (int i = 0; i < 2 && !found; i++) {
        char *path = text_format("%s/%s", options->output, names[i]);
        found = recall_from(path, options, settings);
        free(path);
    }
}

static enum status open_named(const char *path, struct safetensors *file)
{
    struct reason reason;
    if (checkpoint_open(&directory_working, path, file, &reason)) return OK;
    return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
}

static enum status open_checkpoint(const struct run *run, const struct run_options *options,
                                   struct safetensors *file)
{
    if (options->resume_file) return open_named(options->resume_file, file);
    return checkpoint_open_newest(&run->folder.at, file);
}

/* True if the folder's last checkpoint is up to date and need not be written again. */
static bool is_last(const struct run *run, const struct safetensors *file)
{
    char *last = run->folder.at.path ? directory_show(&run->folder.at, CHECKPOINT_LAST) : NULL;
    bool is = last && !run->options->resume_file && strcmp(last, file->path) == 0;
    free(last);
    return is;
}

/* `path`: where the checkpoint is; NULL: there is none to go on from. */
static enum status resume_first(struct run *run, const struct run_options *options, char **path)
{
    bool nothing = !options->resume_file && !(run->folder.at.path && checkpoint_exists(&run->folder.at));
    if (nothing && options->resume) log_info("no checkpoint yet; starting from scratch");
    if (!options->resume || nothing) return OK;
    struct safetensors file;
    TRY(open_checkpoint(run, options, &file));
    enum status status = run->folder.at.path ? checkpoint_match_run(&file, &run->folder.at) : OK;
    if (status == OK) status = restore(run, &file);
    run->saved_any = status == OK && is_last(run, &file);
    if (status == OK) *path = text_copy(file.path);
    safetensors_close(&file);
    return status;
}

static enum status resume_from(struct run *run, const char *path)
{
    struct safetensors file;
    TRY(open_named(path, &file));
    enum status status = restore(run, &file);
    safetensors_close(&file);
    return status;
}

/* All ranks start from the checkpoint that the first one selects, or from the beginning. */
static enum status resume(struct run *run, const struct run_options *options)
{
    struct comm *comm = run->session->comm;
    char *found = NULL, *path = NULL;
    bool first = comm_rank(comm) == 0;
    enum status status = first ? resume_first(run, options, &found) : OK;
    if (status == OK) status = ranks_share_text(comm, 0, found, &path);
    if (status == OK && !first && path) status = resume_from(run, path);
    if (status == OK && path) run->ranks.progress.saved = run->state.step;
    if (status == OK && (!path || !*run->id)) status = checkpoint_new_run(run->id);
    if (status == OK && !path) status = session_store_whiten(run->session, &run->store);
    if (status == OK && !path) status = session_store_weights(run->session, &run->store);
    free(found);
    free(path);
    return status;
}

enum status run_load_best(struct run *run, bool *there)
{
    struct comm *comm = run->session->comm;
    struct safetensors file = {0};
    struct optimizer_state state;
    struct position then;
    struct reason unsaid;
    char *path = NULL;
    bool first = comm_rank(comm) == 0 && run->folder.at.path;
    bool own = first && checkpoint_open(&run->folder.at, CHECKPOINT_BEST, &file, &unsaid) &&
               position_parse(&file, &then, &state, &unsaid) && then.epoch == run->position.best_epoch;
    enum status status = ranks_share_text(comm, 0, own ? file.path : NULL, &path);
    *there = status == OK && path;
    if (*there && !own) status = open_named(path, &file);
    if (*there && status == OK)
        status = checkpoint_restore(&file, &run->store, run->session->hyper.optimizer, &then);
    if (file.path) safetensors_close(&file);
    free(path);
    return status;
}

static enum status open_records(struct run *run)
{
    const struct directory *folder = &run->folder.at;
    if (!folder->path) return OK;
    TRY(metrics_cut(folder, RUN_METRICS, run->state.step, run->position.epoch));
    TRY(metrics_open(folder, RUN_METRICS, &run->metrics));
    TRY(folder_write_settings(&run->folder, run->session->settings, run->session->file));
    if (!run->session->settings->log.tensorboard) return OK;
    return events_open(folder, run->state.step, &run->events);
}

static enum status restore_all(struct run *run, const struct run_options *options)
{
    struct session *session = run->session;
    TRY(step_ranks_verify(session));
    TRY(session_open_device(session));
    TRY(step_fit_check_bound(session));
    TRY(session_store_open(session, &run->store));
    TRY(store_read_state(&run->store, &run->state));
    run->position.seed = session->settings->run.seed;
    return resume(run, options);
}

enum status run_open(struct session *session, const struct run_options *options, struct run *run)
{
    double now = clock_seconds();
    *run = (struct run){
        .session = session,
        .options = options,
        .folder = {.lock = -1},
        .began = now,
        .saved = now,
        .reported = now,
    };
    bool first = comm_rank(session->comm) == 0;
    TRY(folder_open(first ? options->output : NULL, options->resume, &run->folder));
    ranks_open(session->comm, hyperparameters_share(&session->hyper), session->data.bad, &run->ranks);
    run->ranks.stages = session->hyper.stages;
    ranks_report(&run->ranks, COMM_START, 0);           /* the folder is the run's */
    enum status status = restore_all(run, options);
    if (status == OK) return OK;
    /* A checkpoint that is refused may be another run's. */
    if (!options->resume_file) folder_log(&run->folder);
    run_close(run);
    return status;
}

bool run_ended(const struct run *run)
{
    return run->saved_any && metrics_ended(&run->folder.at, RUN_METRICS);
}

static void open_health(struct run *run)
{
    const struct session *session = run->session;
    const struct health_options options = {
        .hyper = &session->hyper,
        .graph = &session->graphs.training,
        .dataset = session->data.train.dataset,
        .loader = run->loader,
        .training = &run->programs.training,
        .stop = session->settings->train.on_nan == ON_NAN_STOP,
    };
    health_open(&options, &run->health);
}

/* After programs_end and a change of the graph. */
static enum status reopen(struct run *run)
{
    const struct session *session = run->session;
    TRY(ranks_receive_algorithms(session->comm, session->hyper.stages, session->device));
    TRY(programs_reopen(&run->programs));
    TRY(ranks_send_algorithms(session->comm, session->hyper.stages, session->device));
    TRY(programs_share_total(&run->programs));
    run->state = *exec_state(run->programs.training.exec);
    return OK;
}

enum status run_freeze(struct run *run)
{
    struct session *session = run->session;
    int64_t epochs = session->settings->train.freeze_epochs;
    bool frozen = run->position.epoch < epochs;
    if (epochs == 0 || frozen == run->frozen) return OK;
    TRY(programs_end(&run->programs));
    graphs_freeze_first(&session->graphs, frozen);
    run->frozen = frozen;
    if (!frozen) log_info("from now on all parameters are trained (train.freeze_epochs)");
    return reopen(run);
}

enum status run_freeze_weights(struct run *run, bool frozen)
{
    TRY(programs_end(&run->programs));
    graphs_freeze_weights(&run->session->graphs, frozen);
    return reopen(run);
}

static enum status open_loader(struct run *run)
{
    struct images images = run->session->data.train;
    if (run->session->data.sizes.count > 0) images.h = run->size.h, images.w = run->size.w;
    TRY(session_loader_open(run->session, &images, NULL, &run->loader));
    run->queue.loader = run->loader;
    run->health.options.loader = run->loader;
    return OK;
}

enum status run_resize(struct run *run)
{
    struct session *session = run->session;
    const struct train_sizes *sizes = &session->data.sizes;
    const struct graphs_options graphs = {.settings = session->settings, .file = session->file,
                                          .data = &session->data};
    int64_t epochs = session->settings->train.epochs;
    struct image_size size = train_sizes_at(sizes, run->position.epoch, session->settings->augment.crop);
    if (sizes->count == 0 || image_size_equal(size, run->size) || run->position.epoch >= epochs) return OK;
    run->size = size;
    log_info("from now on training images have %dx%d pixels (augment.sizes)", size.h, size.w);
    TRY(programs_end(&run->programs));
    TRY(graphs_resize(&session->graphs, &graphs, size));
    TRY(step_ranks_verify(session));
    TRY(reopen(run));
    if (!run->loader) return OK;
    loader_close(run->loader);
    run->loader = NULL;
    return open_loader(run);
}

char *run_checkpoint_name(int64_t epoch)
{
    return text_format("checkpoint-%lld.safetensors", (long long)epoch);
}

/* If the last checkpoint is an epoch's and kept, the oldest one is removed. A resumed run repeats that: its
 * predecessor may have died in between. */
static void forget_epoch(const struct run *run)
{
    const struct field_every *every = &run->session->settings->checkpoint.every;
    int64_t stride = every->unit == UNIT_EPOCHS && every->amount > 1 ? (int64_t)every->amount : 1;
    int64_t keep = run->session->settings->checkpoint.keep, epoch = run->saved_position.epoch;
    if (!run->folder.at.path || keep == 0 || run->saved_position.batch > 0) return;
    char *newest = run_checkpoint_name(epoch);
    char *oldest = run_checkpoint_name(epoch - keep * stride);
    if (directory_has(&run->folder.at, newest)) directory_remove(&run->folder.at, oldest);
    free(oldest);
    free(newest);
}

enum status run_begin(struct run *run)
{
    struct session *session = run->session;
    const struct caching_options caching = session_caching_options(session);
    TRY(folder_log(&run->folder));
    if (run->folder.at.path) bad_images_list(session->data.bad, &run->folder.at, "bad-images.txt");
    TRY(preprocessing_open(session, true));
    TRY(ranks_receive_algorithms(session->comm, session->hyper.stages, session->device));
    TRY(probe_open(session, &run->store));
    TRY(programs_open(session, &run->store, &run->programs));
    TRY(ranks_send_algorithms(session->comm, session->hyper.stages, session->device));
    TRY(programs_share_total(&run->programs));
    run->state = *exec_state(run->programs.training.exec);
    TRY(run_freeze(run));
    run->size = (struct image_size){session->data.train.h, session->data.train.w};
    TRY(run_resize(run));
    TRY(caching_open(&caching, session->decoding != NULL, &session->data));
    run->queue = (struct step_queue){.device = session->device, .step = &run->programs.training};
    TRY(open_loader(run));
    open_health(run);
    /* From here on the folder belongs to the run resumed from that file, whatever its last checkpoint was. */
    if (run->options->resume_file) TRY(run_save(run, NULL));
    TRY(open_records(run));
    forget_epoch(run);
    TRY(ranks_share_bad_images(&run->ranks));
    progress_open(run->options->quiet, run->options->terminal, &run->progress);
    run->resumed_at = run->reported = clock_seconds();
    run->seconds_before = run->position.seconds;
    run->energy = (struct energy){.read = NAN};
    return OK;
}

/* memory.limit, and where it came from. */
struct limit {
    int64_t bytes;
    char where[REASON_SIZE];
};

/* Reads the limit of the configuration as it is now, or else the current one. */
static void read_limit(const struct run *run, struct limit *limit)
{
    const struct run_options *options = run->options;
    struct settings fresh;
    limit->bytes = run->session->settings->memory.limit;
    if (!options->config) return;
    if (settings_load(options->config, options->sets, options->set_count, &fresh) != OK) {
        log_warning("cannot reread the configuration; the run continues unchanged");
        return;
    }
    /* train.batch=auto has one, though it is not in the file. */
    if (fresh.memory.limit > 0 || fresh.train.batch > 0) limit->bytes = fresh.memory.limit;
    snprintf(limit->where, sizeof limit->where, "%s", settings_where(&fresh, "memory", "limit"));
    settings_free(&fresh);
}

/* All ranks take what the first one reads: the file may be changed in the meantime. */
enum status run_reread_limit(struct run *run)
{
    struct comm *comm = run->session->comm;
    struct limit limit = {0};
    if (comm_rank(comm) == 0) read_limit(run, &limit);
    TRY(comm_broadcast(comm, 0, &limit, sizeof limit));
    if (limit.bytes == run->session->settings->memory.limit) return OK;
    TRY(programs_set_limit(&run->programs, limit.bytes, limit.where));
    run->state = *exec_state(run->programs.training.exec);
    return OK;
}

void run_close(struct run *run)
{
    run_save_end(run);
    progress_close(&run->progress);
    events_close(&run->events);
    metrics_close(&run->metrics);
    step_queue_drop(&run->queue);
    loader_close(run->loader);
    loader_close(run->evaluation_loader);
    programs_close(&run->programs);
    if (run->store.memory) store_close(&run->store);
    folder_close(&run->folder);
    health_close(&run->health);
    mistakes_free(&run->mistakes);
    for (int i = 0; i < RUN_STRIPS; i++) image_free(&run->strips[i].picture);
    evaluation_free(&run->evaluation);
    evaluation_free(&run->shown);
    ranks_close(&run->ranks);
}

/* The work that remains once the state of the position is in the folder. */
static void note_saved(struct run *run, const struct position *position, int64_t step)
{
    ranks_report_saved(&run->ranks, step);
    run->saved_position = *position;
    run->saved_any = true;
    forget_epoch(run);
}

/* Begins to write if `threaded` and possible, else writes. */
static enum status save_now(struct run *run, const char *const *also, bool threaded)
{
    const struct device *device = run->session->device;
    const struct directory *folder = &run->folder.at;
    struct text algorithms = {0};
    if (device->backend->autotuner.save) device->backend->autotuner.save(run->session->device, &algorithms);
    struct checkpoint_source source = source_of(run, algorithms.data);
    struct watch *watch = watch_begin(WATCH_SECONDS, "%s: preparing a checkpoint", folder->path);
    enum status status = metrics_sync(&run->metrics);
    if (status == OK) status = folder_check(&run->folder);
    watch_end(watch);
    if (status == OK && threaded) run->writing = checkpoint_begin(&source, &run->position, folder, also);
    if (status == OK && !run->writing) status = checkpoint_save(&source, &run->position, folder, also);
    text_free(&algorithms);
    return status;
}

static enum status save(struct run *run, const char *const *also, bool threaded)
{
    /* The position counts batches: if it has not changed, neither has the store. */
    bool stands = run->saved_any && memcmp(&run->position, &run->saved_position, sizeof run->position) == 0;
    if (!run->folder.at.path || stands) return OK;
    enum comm_phase phase = run->ranks.progress.phase;
    ranks_report(&run->ranks, COMM_CHECKPOINT, run->state.step);
    run->saved = clock_seconds();
    enum status status = save_now(run, also, threaded);
    if (run->writing) {
        run->written_position = run->position;
        run->written_step = run->state.step;
    } else if (status == OK) {
        note_saved(run, &run->position, run->state.step);
    }
    ranks_report(&run->ranks, phase, run->state.step);
    return status;
}

enum status run_save(struct run *run, const char *const *also)
{
    return save(run, also, false);
}

enum status run_save_begin(struct run *run, const char *const *also)
{
    return save(run, also, true);
}

enum status run_save_end(struct run *run)
{
    if (!run->writing) return OK;
    enum status status = checkpoint_end(run->writing);
    run->writing = NULL;
    if (status == OK) note_saved(run, &run->written_position, run->written_step);
    return status;
}
