#include "train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signals.h"
#include "base/sum_tree.h"
#include "comm/compare.h"
#include "evaluate/mistakes.h"
#include "exec/bn_statistics.h"
#include "exec/exec_checks.h"
#include "forecast/preflight.h"
#include "input/gpu_preprocessing.h"
#include "session/identity.h"
#include "session/session_store.h"
#include "session/step_times.h"
#include "train/rank_check.h"
#include "train/report.h"
#include "train/results.h"

enum verdict { GO_ON, FINISH_EPOCH, DONE, EARLY_STOP, MAX_STEPS, MAX_TIME, STOP };

static const char *const verdict_name[] = {
    [GO_ON] = "", [FINISH_EPOCH] = "", [DONE] = "done", [EARLY_STOP] = "early_stop",
    [MAX_STEPS] = "max_steps", [MAX_TIME] = "max_time", [STOP] = "stopped",
};

static bool out_of_time(const struct run *run)
{
    double most = run->session->settings->run.max_time;
    return most > 0 && clock_seconds() - run->began >= most;
}

/* True if a checkpoint is due, if the interval is a time. */
static bool save_due(const struct run *run)
{
    const struct field_every *every = &run->session->settings->checkpoint.every;
    return every->unit == UNIT_SECONDS && every->amount > 0 && clock_seconds() - run->saved >= every->amount;
}

/* However short max_time is, every process makes at least one step, so that repeated runs finish. */
static enum verdict judge_run(const struct run *run)
{
    const struct settings *settings = run->session->settings;
    const struct position *position = &run->position;
    if (position->epoch >= settings->train.epochs) return DONE;
    bool gains = settings->train.early_stop == 0 ||
                 position->epochs_without_gain < settings->train.early_stop;
    if (!gains && position->batch == 0) return EARLY_STOP;
    if (ranks_stop(&run->ranks)) return STOP;
    if (position->batch >= run->session->hyper.steps_per_epoch) return FINISH_EPOCH;
    if (settings->run.max_steps > 0 && run->state.updates >= settings->run.max_steps) return MAX_STEPS;
    if (run->steps > 0 && (run->ranks.comm ? run->ranks.out_of_time : out_of_time(run))) return MAX_TIME;
    return GO_ON;
}

/* A step. */

static enum status compare_ranks(const struct run *run)
{
    return rank_check(run->ranks.comm, run->ranks.stages, run->programs.training.exec);
}

static enum status gather_results(struct run *run, const struct batch *batch)
{
    bool has = session_has_losses(run->session);
    const struct ranks_batch own = {
        .count = has ? batch->count : 0, .bad = has ? batch->bad : 0,
        .losses = exec_losses(run->programs.training.exec),
        .ranks = exec_ranks(run->programs.training.exec), .labels = batch->labels,
        .fingerprint = exec_fingerprint(run->programs.training.exec),
        .out_of_time = out_of_time(run), .save_due = save_due(run),
    };
    TRY(ranks_gather(&run->ranks, &own));
    return run->ranks.unlike ? compare_ranks(run) : OK;
}

/* Adds up the results of all ranks. */
static double count_results(struct run *run)
{
    const struct ranks *all = &run->ranks;
    struct position *position = &run->position;
    int images = all->count;
    double sum = 0;
    int64_t correct = 0;
    for (int i = 0; i < images; i++) {
        sum += all->losses[i];
        correct += all->ranks[i] < 1;
    }
    if (isfinite(sum)) {
        position->loss_sum += sum;
        position->images += images;
        position->correct += correct;
    }
    return sum / images;
}

/* Some steps are run twice to detect faulty hardware. */
static bool next_is_verified(const struct run *run)
{
    int64_t every = run->session->settings->run.verify_every, step = run->state.step + run->queue.count + 1;
    return every > 0 && step % every == 0;
}

static enum status launch_step(struct run *run)
{
    struct exec *training = run->programs.training.exec;
    struct queued_step next = {.rates = step_rates(&run->session->hyper, run->state.updates)};
    int64_t step = run->state.step + run->queue.count + 1, batch = run->position.batch + run->queue.count;
    int64_t batches = run->session->hyper.steps_per_epoch;
    next.redundant = next_is_verified(run);
    TRY(step_next(run->session, &run->programs.training, run->loader, &next.batch,
                  &run->position.wait_seconds));
    if (!next.batch)
        return fail(FAILED, "the loader ended an epoch after %lld of %lld batches", (long long)batch,
                    (long long)batches);
    const struct exec_batch input = gpu_preprocessing_batch(run->session->gpu_preprocessing, next.batch);
    bool due = batch + 1 == batches || health_check_due(run->steps + run->queue.count + 1);
    if (run->session->device->waits && due) exec_glimpse_next(training);
    enum status status = step_queue_start(&run->queue, &next, &input);
    if (status == OK && comm_count(run->ranks.comm) > 1 && step % RANK_CHECK_STEPS == 0)
        status = exec_take_fingerprint(training);
    if (next.redundant && status == OK) {
        run->verified++;
        run->last_verified = step;
    } else if (next.redundant) {
        log_warning("the checkpoints are kept; the last step with equal results is %lld",
                    (long long)run->last_verified);
    }
    return status;
}

static enum status count_step(struct run *run, const struct queued_step *made)
{
    int64_t applied = run->state.updates - made->rates.updates;
    struct report_step report = {.lr = made->rates.lr[applied > 0], .loss_scale = run->state.scaler.scale};
    run->state = *exec_state(run->programs.training.exec);
    TRY(gather_results(run, made->batch));
    report.loss = count_results(run);
    if (run->steps++ == 0) energy_begin(run->session, &run->energy);
    run->position.batch++;
    run->position.skipped += run->state.skipped != 0;
    run->position.bad_images += run->ranks.bad;
    run->position.seconds = run->seconds_before + clock_seconds() - run->resumed_at;
    run->images_since_report += run->ranks.count;
    ranks_report(&run->ranks, COMM_STEP, run->state.step);
    const struct health_step step = {
        .state = &run->state, .position = &run->position, .batch = made->batch, .loss = report.loss,
        .lr = report.lr,
        .elsewhere = !isfinite(report.loss) && !run->ranks.own_lost && !run->session->stages,
        .steps = run->steps,
        .queued = run->queue.count,
    };
    enum status status = health_step(&run->health, &step);
    TRY(report_step(run, &report));
    return status;
}

/* The oldest queued step. */
static enum status collect_step(struct run *run)
{
    struct queued_step made;
    TRY(step_queue_collect(&run->queue, &made));
    enum status status = count_step(run, &made);
    step_queue_return(&run->queue, &made);
    return status;
}

/* Checkpoints. */

/* Called by all ranks before the first one writes a checkpoint: differing parameters must not be saved. */
static enum status check_ranks(const struct run *run)
{
    return run->options->output ? compare_ranks(run) : OK;
}

/* Gives all ranks all parameters, to evaluate the network, or for the first one to write a checkpoint. */
static enum status share_store(struct run *run)
{
    return session_store_share(run->session, &run->programs.training.compiled.program, &run->store);
}

/* An intermediate checkpoint may fail: the last valid one is still there, and the run continues. */
static void note_saving(const struct run *run, enum status status)
{
    if (status != OK)
        log_warning("the checkpoint was not written; the run continues%s",
                    run->saved_any ? ", and the last one is kept" : "");
}

/* `threaded`: returns while it is being written, if possible. The one before has ended when ranks are found
 * to differ, so that the launcher knows of it. */
static enum status save_and_continue(struct run *run, const char *const *also, bool threaded)
{
    note_saving(run, run_save_end(run));
    TRY(check_ranks(run));
    TRY(share_store(run));
    TRY(folder_check(&run->folder));
    note_saving(run, threaded ? run_save_begin(run, also) : run_save(run, also));
    return OK;
}

/* True if a checkpoint is due within an epoch, after `ahead` more steps. */
static bool step_checkpoint_due(const struct run *run, int ahead)
{
    const struct field_every *every = &run->session->settings->checkpoint.every;
    if (every->amount <= 0) return false;
    switch (every->unit) {
    case UNIT_STEPS:
        return fmod((double)(run->state.step + ahead), every->amount) < 1;
    case UNIT_SECONDS:
        return ahead == 0 && (run->ranks.comm ? run->ranks.save_due : save_due(run));
    case UNIT_EPOCHS:
        return false;
    }
    return false;
}

/* True if another step may be queued: not beyond the end of an epoch or of the run, or beyond a checkpoint;
 * and a step that is run twice needs the device for itself. */
static bool may_launch(const struct run *run)
{
    const struct settings *settings = run->session->settings;
    if (run->queue.count == 0) return true;
    if (step_queue_full(&run->queue)) return false;
    if (health_check_needs_idle(&run->health, run->steps + run->queue.count)) return false;
    if (run->position.batch + run->queue.count >= run->session->hyper.steps_per_epoch) return false;
    if (settings->run.max_steps > 0 && run->state.updates + run->queue.count >= settings->run.max_steps)
        return false;
    return !step_checkpoint_due(run, run->queue.count) && !next_is_verified(run);
}

/* If the interval is steps or a time, epochs end with a checkpoint if some of those are to be kept. */
static bool epoch_checkpoint_due(const struct run *run)
{
    const struct field_every *every = &run->session->settings->checkpoint.every;
    if (every->amount > 0 && every->unit != UNIT_EPOCHS) return run->session->settings->checkpoint.keep > 0;
    return every->amount > 0 && (every->amount <= 1 || fmod((double)run->position.epoch, every->amount) < 1);
}

static enum status save_epoch(struct run *run, bool best)
{
    bool due = epoch_checkpoint_due(run), keep = due && run->session->settings->checkpoint.keep > 0;
    if (!run->options->output || (!due && !best)) return OK;
    char *name = run_checkpoint_name(run->position.epoch);
    const char *also[3] = {NULL};          /* ended by NULL */
    int count = 0;
    if (best) also[count++] = CHECKPOINT_BEST;
    if (keep) also[count++] = name;
    enum status status = save_and_continue(run, also, true);
    free(name);
    return status;
}

/* The end of an epoch. */

/* They are of the network that the next checkpoint has; one that is not finite has none of its own. */
static void choose_thresholds(const struct run *run, const struct evaluation *evaluation)
{
    struct data *data = &run->session->data;
    const struct data_task *task = run->session->hyper.task;
    if (!task->choose || evaluation->images == 0 || evaluation->lost > 0) return;
    if (!data->thresholds) data->thresholds = memory_new((size_t)data->classes, sizeof *data->thresholds);
    task->choose(&evaluation->outputs, data->thresholds);
}

static enum status evaluate_run(struct run *run)
{
    struct evaluation evaluation;
    const struct settings *settings = run->session->settings;
    const struct evaluate_options options = {
        .lost = &run->health.evaluation_lost, .ranks = &run->ranks,
        .views = {settings->augment.val_flip, (int)settings->augment.val_shift},
        .loader = &run->evaluation_loader, .scores_bytes = SCORES_BYTES_OF_RUN,
        .strips = run->strips, .strip_count = run->events.file ? RUN_STRIPS : 0,
    };
    bool averages = settings->train.ema > 0 || settings->train.swa > 0;
    TRY(share_store(run));
    if (averages) TRY(store_swap_average(&run->store));
    const struct session *session = run->session;
    const struct step *step = &run->programs.evaluation;
    enum status status = evaluate(session, &session->data.val, step, &options, &evaluation);
    if (status == OK) {
        evaluation_free(&run->evaluation);
        run->evaluation = evaluation;
        choose_thresholds(run, &run->evaluation);
    }
    if (averages) TRY(store_swap_average(&run->store));
    return status;
}

/* The figure that checkpoint.best goes by; NAN if an output was not finite, or the images do not
 * define it. */
static double best_value(const struct run *run, const struct evaluation *evaluation)
{
    int best = run->session->hyper.best;
    if (evaluation->lost > 0) return NAN;
    return best < 0 ? evaluation->loss : evaluation->metrics[best];
}

static bool take_best(struct run *run)
{
    int best = run->session->hyper.best;
    const struct task_metric *metric = best < 0 ? NULL : &run->session->hyper.task->metrics[best];
    double value = best_value(run, &run->evaluation);
    bool gain = position_update_best(&run->position, value, !metric || metric->lower);
    bool undefined = metric && isnan(value) && run->evaluation.lost == 0;
    if (undefined && run->position.epochs_without_gain == 1 && comm_rank(run->ranks.comm) == 0)
        log_warning("checkpoint.best: %s is not defined by these validation images, so that no epoch is the "
                    "best; checkpoint.best=val_loss always is", task_metric_title(metric));
    return gain;
}

/* Written before the epoch's checkpoint, so that a run resumed from it finds them. Like an intermediate
 * checkpoint, they may fail. */
static enum status save_results(struct run *run)
{
    const struct evaluation *evaluation = &run->shown;
    const struct data *data = &run->session->data;
    if (!run->folder.at.path) return OK;
    TRY(folder_check(&run->folder));
    enum status status = results_write(evaluation, &data->val, data, &run->folder.at);
    if (status == OK && run->session->settings->run.report)
        status = mistakes_write(&run->mistakes, &run->folder.at);
    if (status != OK) log_warning("the results of the evaluation were not written; the run continues");
    return OK;
}

/* The last evaluation becomes the one that is shown. */
static enum status show_results(struct run *run)
{
    evaluation_free(&run->shown);
    mistakes_free(&run->mistakes);
    run->shown = run->evaluation;
    run->mistakes = (struct mistakes){.evaluation = &run->shown, .images = &run->session->data.val,
                                      .data = &run->session->data};
    run->evaluation = (struct evaluation){0};
    return save_results(run);
}

static void next_epoch(struct run *run)
{
    struct position *position = &run->position;
    position->epoch++;
    position->batch = 0;
    position->loss_sum = position->seconds = position->wait_seconds = 0;
    position->images = position->correct = position->skipped = position->bad_images = 0;
}

static enum status begin_epoch(struct run *run)
{
    run->seconds_before = run->position.seconds;
    run->resumed_at = run->reported = clock_seconds();
    run->images_since_report = 0;
    if (run->position.epoch >= run->session->settings->train.epochs) return OK;
    TRY(run_freeze(run));
    TRY(run_resize(run));
    return loader_start(run->loader, run->position.epoch, run->position.batch);
}

static bool is_evaluated(const struct run *run)
{
    int64_t every = run->session->settings->train.eval_every, epoch = run->position.epoch + 1;
    bool due = epoch >= run->session->settings->train.epochs || (every > 0 && epoch % every == 0);
    return due && run->programs.evaluation.exec != NULL;
}

#define STEPS_REMEMBERED 50          /* in an epoch; fewer do not tell how long a step takes */
#define WAIT_MAX 0.01                /* fraction of the epoch in which steps waited for the loader */

/* Remembers how long a GPU's step takes; the host is then a step ahead, so the epoch's time is the steps'. */
static void note_time(const struct run *run)
{
    const struct position *position = &run->position;
    if (!run->session->device->waits || position->batch < STEPS_REMEMBERED ||
        position->wait_seconds > WAIT_MAX * position->seconds)
        return;
    step_times_note(run->session, &run->programs.training.compiled.program,
                    position->seconds / (double)position->batch);
}

/* Averaged weights (train.swa): Izmailov et al. 2018, as torch's AveragedModel and update_bn. */

/* average += (now - average) / (n + 1); counters are copied. */
static enum status average_one(struct store *store, int param, int64_t n)
{
    const struct op_param *spec = &store->graph->params[param].spec;
    size_t count = (size_t)shape_count(spec->shape), bytes = count * dtype_bytes(spec->dtype);
    float *now = memory_new(bytes, 1), *average = memory_new(bytes, 1);
    enum status status = store_read(store, param, STORE_MASTER, now);
    if (status == OK) status = store_read(store, param, STORE_AVERAGE, average);
    if (n == 0 || spec->dtype != F32) memcpy(average, now, bytes);
    else for (size_t k = 0; k < count; k++) average[k] += (now[k] - average[k]) / (float)(n + 1);
    if (status == OK) status = store_write(store, param, STORE_AVERAGE, average);
    free(now);
    free(average);
    return status;
}

/* A step in which nothing but statistics changes. */
static enum status still_step(struct run *run, struct bn_statistics *statistics)
{
    struct queued_step step = {.rates = {.ema = {1, 1}}};
    const struct session *session = run->session;
    TRY(step_next(session, &run->programs.training, run->loader, &step.batch, &run->position.wait_seconds));
    if (!step.batch) return fail(FAILED, "the loader ended an epoch too early");
    TRY(bn_statistics_clear(statistics, &run->store));
    const struct exec_batch input = gpu_preprocessing_batch(session->gpu_preprocessing, step.batch);
    TRY(step_queue_start(&run->queue, &step, &input));
    TRY(step_queue_collect(&run->queue, &step));
    step_queue_return(&run->queue, &step);
    return bn_statistics_add(statistics, &run->store);
}

/* The masters are the average meanwhile. Where it is stopped, statistics are those of fewer batches until the
 * run is resumed. */
static enum status still_epoch(struct run *run, struct bn_statistics *statistics)
{
    int64_t steps = run->session->hyper.steps_per_epoch;
    TRY(loader_start(run->loader, run->position.epoch + 1, 0));
    enum status status = OK;
    for (int64_t i = 0; i < steps && status == OK; i++) status = still_step(run, statistics);
    if (statistics->batches > 0) TRY(bn_statistics_end(statistics, &run->store));
    if (status == OK && comm_rank(run->ranks.comm) == 0)
        log_info("batch norm statistics of the averaged weights, over %lld batches of training images",
                 (long long)statistics->batches);
    return status;
}

/* Nothing of the run but the average's statistics is changed. */
static enum status update_bn(struct run *run)
{
    struct bn_statistics statistics;
    struct optimizer_state before;
    bn_statistics_open(graphs_step(&run->session->graphs), &statistics);
    if (statistics.count == 0 || run->session->features.head.nodes) {
        bn_statistics_close(&statistics);
        return OK;
    }
    ranks_report(&run->ranks, COMM_EVALUATION, run->state.step);
    enum status status = store_read_state(&run->store, &before);
    if (status == OK) status = store_swap_average(&run->store);
    if (status == OK) status = run_freeze_weights(run, true);
    if (status == OK) status = still_epoch(run, &statistics);
    bn_statistics_close(&statistics);
    if (status != OK && status != STOPPED) return status;
    TRY(store_write_state(&run->store, &before));
    TRY(run_freeze_weights(run, false));
    TRY(store_swap_average(&run->store));
    return status;
}

/* Adds the weights at the end of an epoch to the store's average, which before train.swa is a copy of them;
 * after the last epoch, computes the average's batch norm statistics with a pass over the training images.
 * For all ranks, once they have all parameters; again after STOPPED. */
static enum status swa_average(struct run *run)
{
    const struct settings *settings = run->session->settings;
    int64_t epoch = run->position.epoch + 1, first = settings->train.swa;
    int64_t n = epoch > first ? epoch - first : 0;
    for (int i = 0; i < run->store.layout.count && run->position.swa_epoch < epoch; i++)
        if (store_has(&run->store, i, STORE_AVERAGE)) TRY(average_one(&run->store, i, n));
    run->position.swa_epoch = epoch;
    return epoch < settings->train.epochs ? OK : update_bn(run);
}

/* For schedule.name = plateau. */
static void note_plateau(struct run *run)
{
    struct schedule *schedule = &run->session->hyper.schedule;
    if (strcmp(schedule->row->name, "plateau") != 0) return;
    bool lower = schedule_plateau(schedule, &run->position.plateau, run->evaluation.loss);
    schedule->reduced = run->position.plateau.lr;
    if (lower && comm_rank(run->ranks.comm) == 0)
        log_info("the validation loss has not fallen: the learning rate is now %g (schedule.patience)",
                 schedule->reduced);
}

static enum status finish_epoch(struct run *run)
{
    bool evaluated = is_evaluated(run);
    if (run->session->settings->train.swa > 0) {
        TRY(share_store(run));
        enum status status = swa_average(run);
        if (status == STOPPED) return OK;
        TRY(status);
    }
    if (evaluated) {
        enum status status = evaluate_run(run);
        /* Stopped within the epoch, which is finished when the run is resumed. */
        if (status == STOPPED) return OK;
        TRY(status);
    }
    if (evaluated) run->position.bad_images += run->evaluation.bad;
    bool best = evaluated && take_best(run);
    if (evaluated) note_plateau(run);
    TRY(energy_count(run->session, false, &run->energy));
    note_time(run);
    TRY(report_epoch(run, evaluated ? &run->evaluation : NULL));
    if (best || (evaluated && run->position.best_epoch == 0)) TRY(show_results(run));
    next_epoch(run);
    TRY(save_epoch(run, best));
    return begin_epoch(run);
}

/* The end of the run. */

/* Only the first rank prints. */
static enum status report_stopped(const struct run *run)
{
    bool kept = run->options->output != NULL;
    if (comm_rank(run->ranks.comm) > 0) return kept ? STOPPED : FAILED;
    if (!kept) return fail(FAILED, "stopped without a checkpoint, because there is no run folder (-o)");
    log_info("stopped with a checkpoint after step %lld; the same command with -r resumes",
             (long long)run->state.step);
    return STOPPED;
}

/* Only the first rank prints. */
static enum status report_lost(const struct run *run)
{
    if (comm_rank(run->ranks.comm) > 0) return FAILED;
    if (run->shown.lost == 0)
        return fail(FAILED, "there is no best checkpoint, since checkpoint.best was never defined");
    return fail(FAILED, "no evaluation was finite: %lld of %lld images in the last one were not, and there "
                "is no best checkpoint; too high a learning rate is the usual cause",
                (long long)run->shown.lost, (long long)run->shown.images);
}

static void say_skipped(const struct run *run)
{
    bool all = run->state.step > 0 && run->state.updates == 0;
    if (all && comm_rank(run->ranks.comm) == 0)
        log_warning("all %lld steps were skipped, since gradients were not finite: the network is as it was "
                    "before (loss scale %g, see amp.init_scale and train.on_nan)", (long long)run->state.step,
                    (double)run->state.scaler.scale);
}

static void notify_ended(const struct run *run, bool before)
{
    if (run->options->ended && run->folder.at.path) run->options->ended(run, before);
}

static enum status end_records(struct run *run, const char *reason)
{
    TRY(report_end(run, reason));
    TRY(metrics_sync(&run->metrics));
    notify_ended(run, false);
    return OK;
}

static enum status explain_mistakes(struct run *run)
{
    const struct session *session = run->session;
    bool averages = session->settings->train.ema > 0 || session->settings->train.swa > 0;
    if (averages) TRY(store_swap_average(&run->store));
    enum status status = mistakes_explain(session, &run->store, &run->programs.evaluation, &run->mistakes);
    if (averages) TRY(store_swap_average(&run->store));
    return status;
}

/* The summary and the results are those of the best checkpoint, or of the last evaluation if none was best.
 * Evaluates that network again if another process did, and finds where mistakes were seen, which no epoch
 * does since the next one may be better. The store is no longer needed. */
static enum status show_best(struct run *run, enum verdict verdict)
{
    const struct position *position = &run->position;
    bool none = position->best_epoch == 0;
    bool last = position->best_epoch == position->epoch && position->batch == 0;
    bool again = run->shown.images == 0 && (!none || verdict == DONE || verdict == EARLY_STOP);
    bool maps = run->session->settings->run.report && run->options->output && !run->session->comm &&
                (again || run->shown.mistake_count > 0);
    bool there = none || last;
    if (!run->programs.evaluation.exec || (!again && !maps)) return OK;
    if (!there) TRY(run_load_best(run, &there));
    if (!there) return OK;
    enum status status = again ? evaluate_run(run) : OK;
    if (status == OK && again) status = show_results(run);
    if (status == OK && maps) status = explain_mistakes(run);
    /* The run has ended: a stop leaves out what is not shown yet. */
    if (status != OK) return status == STOPPED ? OK : status;
    return run->mistakes.maps || run->mistakes.strips ? save_results(run) : OK;
}

static enum status finish(struct run *run, enum verdict verdict)
{
    bool stopped = verdict == STOP || verdict == MAX_TIME;
    note_saving(run, run_save_end(run));
    TRY(check_ranks(run));
    TRY(share_store(run));
    ranks_report(&run->ranks, COMM_END, run->state.step);
    if (run->options->ending && run->folder.at.path) run->options->ending(run);
    TRY(run_save(run, NULL));
    TRY(energy_count(run->session, true, &run->energy));
    if (!stopped) TRY(show_best(run, verdict));
    choose_thresholds(run, &run->shown);
    bool lost = !stopped && run->position.best_epoch == 0 && run->shown.images > 0 &&
                isnan(best_value(run, &run->shown));
    say_skipped(run);
    TRY(end_records(run, lost ? END_NOT_FINITE : verdict_name[verdict]));
    if (lost) return report_lost(run);
    return stopped ? report_stopped(run) : OK;
}

/* A checkpoint is taken while no step is in progress. */
static enum status handle_requests(struct run *run)
{
    bool asked = ranks_checkpoint(&run->ranks);
    if (run->writing && checkpoint_over(run->writing)) note_saving(run, run_save_end(run));
    if (asked || step_checkpoint_due(run, 0)) {
        while (run->queue.count > 0) TRY(collect_step(run));
        TRY(save_and_continue(run, NULL, !asked));
        run->ranks.save_due = false;
    }
    if (asked) {
        log_info("checkpoint on request after step %lld", (long long)run->state.step);
        TRY(run_reread_limit(run));
    }
    if (ranks_status(&run->ranks)) report_status(run);
    return OK;
}

/* Queued steps are collected before anything else ends the loop, or the epoch. */
static enum status train_loop(struct run *run, enum verdict *verdict)
{
    TRY(begin_epoch(run));
    for (;;) {
        *verdict = judge_run(run);
        bool idle = run->queue.count == 0;
        if (*verdict == FINISH_EPOCH && idle) {
            TRY(finish_epoch(run));
            continue;
        }
        if (*verdict != GO_ON && idle) return OK;
        enum status status = OK;
        while (status == OK && *verdict == GO_ON && may_launch(run)) status = launch_step(run);
        /* Stopped while waiting for data: queued steps count, and the next verdict handles the stop. */
        if (status != OK && status != STOPPED) return status;
        if (run->queue.count > 0) TRY(collect_step(run));
        TRY(handle_requests(run));
    }
}

static enum status check(const struct session *session, const struct run_options *options)
{
    if (session->settings->train.early_stop > 0 && !session->data.val.dataset)
        return settings_refuse(session->settings, "train", "early_stop",
                               "needs validation data, and there are none");
    if (session->settings->schedule.name && strcmp(session->settings->schedule.name, "plateau") == 0 &&
        (!session->data.val.dataset || session->settings->train.eval_every == 0))
        return settings_refuse(session->settings, "schedule", "name",
                               "plateau needs validation data, and evaluations (train.eval_every)");
    if (options->resume && !options->output && !options->resume_file)
        return fail(USAGE, "-r needs the run folder; name it with -o");
    return OK;
}

/* A finished run that is resumed has nothing left to do. */
static bool is_finished(const struct run *run, const struct run_options *options)
{
    enum verdict verdict = judge_run(run);
    bool end = verdict == DONE || verdict == EARLY_STOP || verdict == MAX_STEPS;
    if (!end || options->resume_file || !run_ended(run)) return false;
    log_info("%s: the run is finished, after %lld epoch%s and %lld step%s (%s); nothing to do",
             run->folder.at.path, (long long)run->position.epoch, run->position.epoch == 1 ? "" : "s",
             (long long)run->state.step, run->state.step == 1 ? "" : "s", verdict_name[verdict]);
    return true;
}

/* Warns if ranks have no subtrees of the sum of gradients (sum_tree.h). */
static void warn_of_order(const struct run *run)
{
    const struct hyperparameters *hyper = &run->session->hyper;
    int all = hyperparameters_micro_batches(hyper);
    if (comm_rank(run->ranks.comm) > 0 || sum_tree_divides(all, hyper->replicas)) return;
    log_warning("parallel.gpus: %d GPUs add the gradients of %d micro-batches in a different order than one "
                "with train.accumulate = %d: results differ in their last bits, unless the number of GPUs is "
                "a power of two or train.accumulate is 1", hyper->replicas, all, all);
}

static enum status check_identity(const struct session *session)
{
    struct text identity = {0};
    if (!session->comm) return OK;
    identity_text(session, &identity);
    enum status status = compare_texts(session->comm, identity.data);
    text_free(&identity);
    return status;
}

/* The first rank, which has the folder, says whether the run has finished. */
static enum status train_on(struct run *run, const struct run_options *options)
{
    enum verdict verdict = DONE;
    bool finished = comm_rank(run->ranks.comm) == 0 && is_finished(run, options);
    TRY(comm_broadcast(run->ranks.comm, 0, &finished, sizeof finished));
    if (finished) {
        notify_ended(run, true);
        return OK;
    }
    TRY(run_begin(run));
    TRY(report_start(run));
    warn_of_order(run);
    preflight_say(run->session);
    if (!options->output) log_warning("there is no run folder (-o): nothing will be saved");
    enum status status = train_loop(run, &verdict);
    if (status == OK) return finish(run, verdict);
    if (run->health.ended) {
        ranks_report(&run->ranks, COMM_END, run->state.step);
        end_records(run, END_NOT_FINITE);
    }
    return status;
}

enum status train(struct session *session, const struct run_options *options)
{
    TRY(check(session, options));
    data_identify(&session->data);
    signals_ready();
    TRY(check_identity(session));
    struct run run;
    TRY(run_open(session, options, &run));
    enum status status = train_on(&run, options);
    run_close(&run);
    return status;
}
