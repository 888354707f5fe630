#include "config.h"

#include "train/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/members.h"
#include "base/memory.h"
#include "input/data_summary.h"
#include "input/usable_classes.h"
#include "session/plausible.h"
#include "train/results.h"
#include "train/results_labels.h"
#include "train/results_masks.h"
#include "train/tensorboard.h"

static enum status write_line(struct run *run, struct text *line)
{
    member_number(line, "time", clock_seconds() - run->began);
    text_add(line, "}");
    enum status status = folder_check(&run->folder);
    if (status == OK) status = metrics_line(&run->metrics, line->data);
    text_free(line);
    return status;
}

static void line_begin(struct text *line, const char *event)
{
    text_add(line, "{\"event\":\"%s\"", event);
}

static double mean(double sum, int64_t count)
{
    return count > 0 ? sum / (double)count : NAN;
}

/* The speed in the current epoch, skipped steps included. */
static double images_per_second(const struct run *run)
{
    const struct position *position = &run->position;
    return (double)(position->batch * run->session->hyper.batch) / fmax(1e-9, position->seconds);
}

/* Since the last line of metrics. */
static double recent_images_per_second(const struct run *run, double now)
{
    return (double)run->images_since_report / fmax(1e-9, now - run->reported);
}

static struct progress_view view_of(const struct run *run, const struct report_step *step)
{
    const struct session *session = run->session;
    const struct position *position = &run->position;
    double rate = run->images_since_report > 0 ? recent_images_per_second(run, clock_seconds())
                                               : images_per_second(run);
    const struct hyperparameters *hyper = &session->hyper;
    int64_t epochs_left = session->settings->train.epochs - position->epoch;
    int64_t steps_left = epochs_left * hyper->steps_per_epoch - position->batch;
    return (struct progress_view){
        .epoch = position->epoch + 1,
        .epochs = session->settings->train.epochs,
        .batch = position->batch,
        .batches = hyper->steps_per_epoch,
        .loss = mean(position->loss_sum, position->images),
        .top1 = !hyper->task->ranked ? NAN : mean((double)position->correct, position->images),
        .lr = step ? step->lr : (double)run->state.lr,
        .images_per_second = rate,
        .seconds_left = (double)steps_left * hyper->batch / fmax(1e-9, rate),
        .loss_scale = step ? step->loss_scale : (double)run->state.scaler.scale,
        .skipped = run->state.skipped_steps,
    };
}

void report_status(const struct run *run)
{
    struct progress_view view = view_of(run, NULL);
    progress_status(&view);
}

static void add_counts(struct text *line, const char *key, const struct images *images)
{
    int64_t *counts = data_summary_counts(images);
    if (!counts) return;
    double *numbers = memory_new((size_t)images->dataset->classes, sizeof *numbers);
    for (int i = 0; i < images->dataset->classes; i++) numbers[i] = (double)counts[i];
    member_numbers(line, key, numbers, images->dataset->classes);
    free(numbers);
    free(counts);
}

/* Adds the identity of the validation images, and how they were held out. */
static void add_val_set(const struct settings *settings, const struct images *val, struct text *line)
{
    char hash[17];
    if (!val->dataset) return;
    snprintf(hash, sizeof hash, "%016" PRIx64, dataset_identity_hash(val->dataset, val->subset, val->count));
    member_string(line, "val_set", hash);
    if (!data_holds_out(settings)) return;
    if (settings->data.fold) member_string(line, "fold", settings->data.fold);
    else member_number(line, "val_fraction", settings->data.val_fraction);
    member_integer(line, "split_seed", settings->data.split_seed);
}

static void add_plan(const struct run *run, struct text *line)
{
    text_add(line, ",\"plan\":{");
    step_taken_json(&run->programs.bytes, &run->programs.training.compiled.plan, line);
    text_add(line, "}");
}

static const char *memory_name(const struct session *session)
{
    return session_device_kind(session) == DEVICE_CPU ? "memory" : "device memory";
}

enum status report_start(struct run *run)
{
    const struct session *session = run->session;
    const struct data *data = &session->data;
    const struct graph *graph = &session->graphs.training;
    const struct device *device = session->device;
    struct text name = {0}, libraries = {0}, line = {0};
    char memory[TEXT_BYTES], share[64] = "";
    device->backend->describe(device->index, &name);
    device->backend->libraries(&libraries);
    int64_t params = graph_param_elements(graph), trained = graph_trained_elements(graph);
    if (trained < params) snprintf(share, sizeof share, ", of which %" PRId64 " are trained", trained);
    log_info("%s, %" PRId64 " parameters%s, %s, on %s; %s of %s", graph->arch, params, share,
             session->hyper.precision->name, name.data,
             text_bytes((uint64_t)run->programs.most_bytes, memory), memory_name(session));
    if (comm_rank(session->comm) == 0) {
        data_summary_log(session->settings, data);
        plausible_warn(session);
    }
    line_begin(&line, "start");
    member_integer(&line, "format", METRICS_VERSION);
    member_string(&line, "version", PACKAGE_VERSION);
    member_string(&line, "device", name.data);
    member_string(&line, "libraries", libraries.data);
    if (session_device_kind(session) == DEVICE_CPU) member_integer(&line, "threads", device->threads);
    member_integer(&line, "ranks", comm_count(session->comm));
    member_string(&line, "model", graph->arch);
    member_string(&line, "task", session->hyper.task->name);
    member_string(&line, "loss", loss_table[session->hyper.loss].name);
    char *best = option_value(option_find("checkpoint", "best"), session->settings);
    member_string(&line, "checkpoint_best", best);
    free(best);
    member_integer(&line, "batch", session->hyper.batch);
    member_integer(&line, "seed", session->settings->run.seed);
    member_string(&line, "precision", session->hyper.precision->name);
    member_integer(&line, "params", params);
    member_integer(&line, "trained_params", trained);
    member_integer(&line, "train_images", data->train.count);
    member_integer(&line, "val_images", data->val.count);
    add_counts(&line, "train_per_class", &data->train);
    add_counts(&line, "val_per_class", &data->val);
    add_val_set(session->settings, &data->val, &line);
    add_plan(run, &line);
    tensorboard_settings(&run->events, run->state.step, session->settings, session->file);
    text_free(&name);
    text_free(&libraries);
    return write_line(run, &line);
}

static enum status tell_step(struct run *run, const struct report_step *step)
{
    double now = clock_seconds(), rate = recent_images_per_second(run, now);
    struct text line = {0};
    line_begin(&line, "step");
    member_integer(&line, "step", run->state.step);
    member_integer(&line, "epoch", run->position.epoch + 1);
    member_number(&line, "loss", step->loss);
    member_number(&line, "lr", step->lr);
    member_number(&line, "loss_scale", step->loss_scale);
    member_integer(&line, "skipped", run->state.skipped_steps - run->position.skipped_told);
    member_number(&line, "grad_norm", run->state.grad_norm);
    member_number(&line, "images_per_s", rate);
    events_scalar(&run->events, "train/loss", run->state.step, step->loss);
    events_scalar(&run->events, "train/lr", run->state.step, step->lr);
    events_scalar(&run->events, "train/grad_norm", run->state.step, run->state.grad_norm);
    events_scalar(&run->events, "train/loss_scale", run->state.step, step->loss_scale);
    events_scalar(&run->events, "train/images_per_s", run->state.step, rate);
    run->position.skipped_told = run->state.skipped_steps;
    run->reported = now;
    run->images_since_report = 0;
    /* Counters of processors wrap; a GPU is not asked more often than needed. */
    if (session_device_kind(run->session) == DEVICE_CPU) session_joules(run->session);
    return write_line(run, &line);
}

/* True if this is the end of an epoch without a line of steps. */
static bool line_missing(const struct run *run)
{
    int64_t every = run->session->settings->log.every, step = run->state.step, batch = run->position.batch;
    return batch == run->session->hyper.steps_per_epoch && step / every == (step - batch) / every;
}

enum status report_step(struct run *run, const struct report_step *step)
{
    struct progress_view view = view_of(run, step);
    bool due = run->state.step % run->session->settings->log.every == 0;
    if (run->progress.live)
        progress_step(&run->progress, &view);
    else if (due)
        progress_status(&view);
    return due || line_missing(run) ? tell_step(run, step) : OK;
}

static void add_scores(struct text *line, const char *of, double loss, const struct task_metric *metric,
                       double value)
{
    char number[TEXT_NUMBER], score[TEXT_NUMBER];
    text_add(line, "  %s %s", of, text_number(loss, 4, NULL, number));
    if (metric) text_add(line, " %s", task_metric_text(metric, value, score));
}

/* The time that the remaining epochs take if each takes as long as the last one. */
static void add_left(const struct run *run, const struct evaluation *evaluation, struct text *line)
{
    const struct position *position = &run->position;
    char left[PROGRESS_TIME];
    int64_t epochs = run->session->settings->train.epochs - position->epoch - 1;
    double seconds = position->seconds + (evaluation ? evaluation->seconds : 0);
    if (epochs > 0) text_add(line, "  left %s", progress_time((double)epochs * seconds, left));
    else text_add(line, "  %.0f images/s", images_per_second(run));
}

/* Below 80 columns. */
static void say_epoch(const struct run *run, const struct evaluation *evaluation)
{
    const struct position *position = &run->position;
    struct text line = {0};
    text_add(&line, "epoch %" PRId64 "/%" PRId64, position->epoch + 1, run->session->settings->train.epochs);
    const struct data_task *task = run->session->hyper.task;
    add_scores(&line, "train", mean(position->loss_sum, position->images),
               task->ranked ? task->metrics : NULL, mean((double)position->correct, position->images));
    if (evaluation) add_scores(&line, "val", evaluation->loss, task->metrics, evaluation->metrics[0]);
    add_left(run, evaluation, &line);
    if (evaluation && position->best_epoch == position->epoch + 1) text_add(&line, "  best");
    log_info("%s", line.data);
    text_free(&line);
}

static void draw_epoch(struct run *run, const struct evaluation *evaluation)
{
    int64_t step = run->state.step;
    const struct position *position = &run->position;
    events_scalar(&run->events, "epoch/train_loss", step, mean(position->loss_sum, position->images));
    const struct data_task *task = run->session->hyper.task;
    if (task->ranked)
        events_scalar(&run->events, "epoch/train_top1", step,
                      mean((double)position->correct, position->images));
    if (!evaluation) return;
    events_scalar(&run->events, "epoch/val_loss", step, evaluation->loss);
    for (int i = 0; task->metrics[i].key; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "epoch/val_%s", task->metrics[i].key);
        events_scalar(&run->events, tag, step, evaluation->metrics[i]);
    }
    if (task->ranked || evaluation->pixels)
        tensorboard_confusion(&run->events, step, &run->session->data, evaluation);
    tensorboard_strips(&run->events, step, run->strips, RUN_STRIPS);
}

static void add_per_class(const struct run *run, const struct evaluation *evaluation, struct text *line)
{
    const struct data *data = &run->session->data;
    if (data->target == TARGET_NUMBER) return;
    if (data->target == TARGET_MASK) {
        double *iou = results_masks_iou(evaluation, data->classes);
        member_numbers(line, "per_class", iou, data->classes);
        free(iou);
        return;
    }
    bool labels = data->target == TARGET_LABELS;
    double *each = labels ? results_per_label(evaluation) : results_per_class(evaluation, data->classes);
    member_numbers(line, labels ? "per_label" : "per_class", each, data->classes);
    free(each);
}

static void add_metrics(const struct data_task *task, const struct evaluation *evaluation, struct text *line)
{
    for (int i = 0; task->metrics[i].key; i++) {
        char key[64];
        snprintf(key, sizeof key, "val_%s", task->metrics[i].key);
        member_number(line, key, evaluation ? evaluation->metrics[i] : NAN);
    }
}

enum status report_epoch(struct run *run, const struct evaluation *evaluation)
{
    const struct position *position = &run->position;
    struct text line = {0};
    line_begin(&line, "epoch");
    member_integer(&line, "epoch", position->epoch + 1);
    member_integer(&line, "step", run->state.step);
    member_number(&line, "lr", run->state.lr);
    member_number(&line, "loss_scale", run->state.scaler.scale);
    member_number(&line, "grad_norm", run->state.grad_norm);
    member_number(&line, "train_loss", mean(position->loss_sum, position->images));
    const struct data_task *task = run->session->hyper.task;
    if (task->ranked)
        member_number(&line, "train_top1", mean((double)position->correct, position->images));
    member_number(&line, "val_loss", evaluation ? evaluation->loss : NAN);
    add_metrics(task, evaluation, &line);
    member_number(&line, "images_per_s", images_per_second(run));
    member_number(&line, "seconds", position->seconds + (evaluation ? evaluation->seconds : 0));
    if (isfinite(run->energy.latest)) member_number(&line, "joules", run->energy.latest);
    run->energy.latest = NAN;
    member_integer(&line, "device_peak_bytes", run->programs.most_bytes);
    member_integer(&line, "host_peak_bytes", clock_host_peak_bytes());
    member_number(&line, "data_wait_fraction", position->wait_seconds / fmax(1e-9, position->seconds));
    member_integer(&line, "skipped_steps", position->skipped);
    member_integer(&line, "bad_images", position->bad_images);
    if (evaluation) add_per_class(run, evaluation, &line);
    say_epoch(run, evaluation);
    draw_epoch(run, evaluation);
    return write_line(run, &line);
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* Adds the epoch of checkpoint.best. */
static void add_best(const struct run *run, struct progress_table *table)
{
    const struct position *position = &run->position;
    const struct hyperparameters *hyper = &run->session->hyper;
    char words[TEXT_NUMBER], name[64];
    const struct task_metric *metric = hyper->best < 0 ? NULL : &hyper->task->metrics[hyper->best];
    if (position->best_epoch == 0) return;
    snprintf(name, sizeof name, "best %s", task_metric_title(metric));
    progress_table_add(table, name, "%s in epoch %" PRId64, task_metric_text(metric, position->best, words),
                       position->best_epoch);
}

/* The other results of the best epoch, or those of the last evaluation. */
static void add_shown(const struct run *run, struct progress_table *table)
{
    char words[TEXT_NUMBER], name[64], when[48];
    const struct task_metric *metrics = run->session->hyper.task->metrics;
    int64_t best = run->position.best_epoch;
    bool classes = run->session->hyper.task->ranked;
    if (run->shown.images == 0) return;
    snprintf(when, sizeof when, " in epoch %" PRId64, best > 0 ? best : run->position.epoch);
    for (int i = 0; metrics[i].key && (i == 0 || !classes); i++) {
        if (best > 0 && i == run->session->hyper.best) continue;
        snprintf(name, sizeof name, "%s%s", best > 0 ? "" : "last ", metrics[i].title);
        progress_table_add(table, name, "%s%s", task_metric_text(&metrics[i], run->shown.metrics[i], words),
                           when);
    }
    results_add(&run->shown, &run->session->data, when, table);
}

static void fill_table(const struct run *run, const char *reason, struct progress_table *table)
{
    const struct position *position = &run->position;
    char words[TEXT_NUMBER], time[PROGRESS_TIME], memory[TEXT_BYTES];
    int64_t epochs = position->epoch, steps = run->state.step;
    progress_table_add(table, "ended", "%s, after %" PRId64 " epoch%s, %" PRId64 " step%s", reason, epochs,
                       plural(epochs), steps, plural(steps));
    progress_table_add(table, "time", "%s", progress_time(clock_seconds() - run->began, time));
    progress_table_add(table, memory_name(run->session), "%s",
                       text_bytes((uint64_t)run->programs.most_bytes, memory));
    if (isfinite(run->energy.joules) && run->steps > 1)
        progress_table_add(table, "energy", "%s, %.3g J an image", text_energy(run->energy.joules, words),
                           run->energy.joules / ((double)(run->steps - 1) * run->session->hyper.batch));
    add_best(run, table);
    add_shown(run, table);
    int64_t bad = bad_images_count(run->session->data.bad);
    if (bad > 0) progress_table_add(table, "unusable images", "%" PRId64, bad);
    char *missing = bad > 0 ? usable_classes_missing(&run->session->data) : NULL;
    if (missing) progress_table_add(table, "classes without usable images", "%s", missing);
    free(missing);
    if (run->verified > 0)
        progress_table_add(table, "verified", "%" PRId64 " steps run twice, with the same bits",
                           run->verified);
    if (run->folder.at.path) progress_table_add(table, "run folder", "%s", run->folder.at.path);
}

enum status report_end(struct run *run, const char *reason)
{
    struct progress_table table = {.count = 0};
    struct text line = {0};
    fill_table(run, reason, &table);
    line_begin(&line, "end");
    member_string(&line, "reason", reason);
    member_integer(&line, "epochs", run->position.epoch);
    member_integer(&line, "steps", run->state.step);
    member_number(&line, "best", run->position.best_epoch > 0 ? run->position.best : NAN);
    if (isfinite(run->energy.latest)) member_number(&line, "joules", run->energy.latest);
    progress_table_show(&run->progress, &table);
    return write_line(run, &line);
}
