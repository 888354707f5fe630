#include "task/hyperparameters.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/align.h"
#include "base/log.h"
#include "base/text.h"

#define NAMES_MAX 64

/* Ranks check that all are present by summing ones with their gradients; bf16 counts exactly up to this. */
#define RANKS_COUNTED 256

static enum status set_precision(const struct settings *settings, struct hyperparameters *hyper)
{
    const char *name = settings->amp.precision, *names[PRECISION_COUNT];
    for (int i = 0; i < PRECISION_COUNT; i++) {
        names[i] = precision_table[i].name;
        if (name && strcmp(name, names[i]) == 0) hyper->precision = &precision_table[i];
    }
    if (hyper->precision) return OK;
    return settings_refuse_name(settings, "amp", "precision", names, PRECISION_COUNT, NULL);
}

static void set_scaling(struct settings *settings, struct hyperparameters *hyper)
{
    if (settings->amp.loss_scale < 0)
        settings_derive(settings, "amp", "loss_scale", hyper->precision->scale_by_default ? "dynamic" : "1");
    hyper->scaling = (struct scaler_settings){
        .dynamic = settings->amp.loss_scale == 0,
        .scale = settings->amp.loss_scale,
        .init_scale = settings->amp.init_scale,
        .growth = settings->amp.growth,
        .backoff = settings->amp.backoff,
        .growth_interval = settings->amp.growth_interval,
        .min_scale = settings->amp.min_scale,
        .max_scale = settings->amp.max_scale,
    };
}

static enum status check_scaling(const struct settings *settings, const struct hyperparameters *hyper)
{
    const struct scaler_settings *scaling = &hyper->scaling;
    if (scaling->dynamic &&
        (scaling->init_scale < scaling->min_scale || scaling->init_scale > scaling->max_scale))
        return settings_refuse(settings, "amp", "init_scale",
                               "must be between amp.min_scale and amp.max_scale");
    return OK;
}

static double given_or(double given, double initial)
{
    return given < 0 ? initial : given;
}

static void set_rate(struct settings *settings, const struct optimizer *optimizer)
{
    char rate[32];
    if (settings->optimizer.lr >= 0) return;
    snprintf(rate, sizeof rate, "%g", optimizer->lr);
    settings_derive(settings, "optimizer", "lr", rate);
}

/* Where those of the option are not the optimizer's own. */
static void set_betas(struct settings *settings, const struct optimizer_settings *initial)
{
    char betas[64];
    if (initial->beta2 == 0 || settings_given(settings, "optimizer", "betas")) return;
    snprintf(betas, sizeof betas, "%g,%g", initial->beta1, initial->beta2);
    settings_derive(settings, "optimizer", "betas", betas);
}

static enum status find_optimizer(const struct settings *settings, struct hyperparameters *hyper)
{
    const char *name = settings->optimizer.name, *names[NAMES_MAX];
    int count = 0;
    for (; optimizer_table[count] && count < NAMES_MAX; count++) names[count] = optimizer_table[count]->name;
    hyper->optimizer = name ? optimizer_find(name) : NULL;
    if (hyper->optimizer) return OK;
    return settings_refuse_name(settings, "optimizer", "name", names, count, NULL);
}

/* Leaves out the Nesterov momentum of the file if the command line names an optimizer without it. */
static enum status check_nesterov(struct settings *settings, const struct optimizer *optimizer)
{
    if (optimizer->initial.nesterov && !settings_given(settings, "optimizer", "nesterov"))
        settings_derive(settings, "optimizer", "nesterov", "yes");
    if (!settings->optimizer.nesterov || optimizer->has_nesterov) return OK;
    if (!settings_on_command(settings, "optimizer", "name") ||
        settings_on_command(settings, "optimizer", "nesterov"))
        return settings_refuse(settings, "optimizer", "nesterov", "is for sgd, lars and muon, not for %s",
                               optimizer->name);
    log_warning("%s: optimizer.nesterov is for sgd, lars and muon: it is off with optimizer.name = %s",
                settings_where(settings, "optimizer", "nesterov"), optimizer->name);
    settings_drop(settings, "optimizer", "nesterov");
    return OK;
}

/* The parameters that are no matrices have adamw, whose rates are lower than muon's. */
#define ADAMW_SHARE 0.015

static void set_adamw_rate(struct settings *settings)
{
    char rate[32];
    if (settings->optimizer.adamw_lr >= 0) return;
    snprintf(rate, sizeof rate, "%g", settings->optimizer.lr * ADAMW_SHARE);
    settings_derive(settings, "optimizer", "adamw_lr", rate);
}

static enum status set_optimizer(struct settings *settings, struct hyperparameters *hyper)
{
    TRY(find_optimizer(settings, hyper));
    TRY(check_nesterov(settings, hyper->optimizer));
    set_rate(settings, hyper->optimizer);
    if (hyper->optimizer->has_matrices) set_adamw_rate(settings);
    const struct optimizer_settings *initial = &hyper->optimizer->initial;
    set_betas(settings, initial);
    bool betas = settings->optimizer.betas.count == 2;
    hyper->optimizer_settings = (struct optimizer_settings){
        .momentum = given_or(settings->optimizer.momentum, initial->momentum),
        .nesterov = settings->optimizer.nesterov,
        .weight_decay = given_or(settings->optimizer.weight_decay, initial->weight_decay),
        .decoupled_weight_decay = initial->decoupled_weight_decay,
        .beta1 = betas ? settings->optimizer.betas.value[0] : initial->beta1,
        .beta2 = betas ? settings->optimizer.betas.value[1] : initial->beta2,
        .alpha = settings->optimizer.alpha,
        .eps = given_or(settings->optimizer.eps, initial->eps),
        .trust = settings->optimizer.trust,
        .clip_norm = settings->train.clip_norm,
        .ema = settings->train.ema,
        .lookahead = settings->train.lookahead > 0,
    };
    if (settings->train.lookahead > 0 && settings->train.ema == 0)
        return settings_refuse(settings, "train", "lookahead", "needs an average to go on from (train.ema)");
    if (hyper->optimizer_settings.nesterov && hyper->optimizer_settings.momentum == 0)
        return settings_refuse(settings, "optimizer", "nesterov", "needs a momentum above 0");
    return OK;
}

static enum status set_batch(const struct settings *settings, const struct images *train,
                             struct hyperparameters *hyper)
{
    int parts = hyperparameters_micro_batches(hyper);
    hyper->batch = (int)settings->train.batch;
    if (hyper->batch % hyper->micro_batches != 0)
        return settings_refuse(settings, settings->parallel.microbatches > 1 ? "parallel" : "train",
                               settings->parallel.microbatches > 1 ? "microbatches" : "accumulate",
                               "%d does not divide train.batch = %d", hyper->micro_batches, hyper->batch);
    if (hyper->batch % parts != 0)
        return settings_refuse(settings, "parallel", "gpus", "%d %s of %d micro-batch%s do not divide "
                               "train.batch = %d; %d would do", hyper->replicas,
                               hyper->stages > 1 ? "pipelines" : "ranks", hyper->micro_batches,
                               hyper->micro_batches == 1 ? "" : "es", hyper->batch,
                               (int)align_up((size_t)hyper->batch, (size_t)parts));
    hyper->steps_per_epoch = train ? train->count / hyper->batch : 1;
    if (train && train->dataset && hyper->steps_per_epoch == 0)
        return settings_refuse(settings, "train", "batch", "%d is more than the %" PRId64 " training image%s",
                               hyper->batch, train->count, train->count == 1 ? "" : "s");
    if (hyper->steps_per_epoch == 0) hyper->steps_per_epoch = 1;
    return OK;
}

static enum status find_schedule(const struct settings *settings, const struct schedule_row **row)
{
    const char *name = settings->schedule.name, *names[NAMES_MAX];
    int count = 0;
    for (; schedule_table[count].name && count < NAMES_MAX; count++)
        names[count] = schedule_table[count].name;
    *row = name ? schedule_find(name) : NULL;
    return *row ? OK : settings_refuse_name(settings, "schedule", "name", names, count, NULL);
}

static enum status check_swa(const struct settings *settings)
{
    if (settings->train.swa == 0) return OK;
    if (settings->train.swa > settings->train.epochs)
        return settings_refuse(settings, "train", "swa", "there are only %d epochs (train.epochs)",
                               (int)settings->train.epochs);
    if (settings->train.ema > 0)
        return settings_refuse(settings, "train", "swa", "and train.ema exclude each other");
    if (settings->train.early_stop > 0)
        return settings_refuse(settings, "train", "swa", "and train.early_stop exclude each other: the "
                               "average is complete after the last epoch");
    return OK;
}

static enum status set_schedule(const struct settings *settings, struct hyperparameters *hyper)
{
    const struct schedule_row *row;
    TRY(find_schedule(settings, &row));
    if (row->own_warmup && settings->schedule.warmup > 0)
        return settings_refuse(settings, "schedule", "warmup", "%s has its own warm-up (pct_start)",
                               row->name);
    TRY(check_swa(settings));
    double epoch = (double)hyper->steps_per_epoch, swa_lr = settings->schedule.swa_lr;
    hyper->schedule = (struct schedule){
        .row = row,
        .lr = settings->optimizer.lr,
        .momentum = optimizer_momentum(hyper->optimizer, &hyper->optimizer_settings),
        .total = settings->train.epochs * hyper->steps_per_epoch,
        .warmup = round(settings->schedule.warmup * epoch),
        .warmup_start = settings->schedule.warmup_start,
        .milestones = settings->schedule.milestones,
        .gamma = settings->schedule.gamma,
        .min_lr = settings->schedule.min_lr,
        .power = settings->schedule.power,
        .pct_start = settings->schedule.pct_start,
        .div = settings->schedule.div,
        .final_div = settings->schedule.final_div,
        .factor = settings->schedule.factor,
        .threshold = settings->schedule.threshold,
        .patience = settings->schedule.patience,
        .cooldown = settings->schedule.cooldown,
        .swa = settings->train.swa > 0,
        .swa_begin = (double)(settings->train.swa - 1) * epoch,
        .swa_anneal = settings->schedule.anneal_epochs * epoch,
        .swa_lr = swa_lr < 0 ? settings->optimizer.lr / 2 : swa_lr,
        .swa_linear = settings->schedule.anneal_strategy == ANNEAL_LINEAR,
    };
    for (int i = 0; i < hyper->schedule.milestones.count; i++) hyper->schedule.milestones.value[i] *= epoch;
    return OK;
}

/* A pipeline is of as many ranks as it has stages. */
static enum status set_ranks(const struct settings *settings, struct hyperparameters *hyper)
{
    int gpus = (int)settings->parallel.gpus, stages = (int)settings->parallel.stages;
    int64_t micro_batches = settings_micro_batches(settings), most = option_find("train", "batch")->field.max;
    *hyper = (struct hyperparameters){
        .stages = stages, .replicas = gpus / stages, .micro_batches = (int)micro_batches,
    };
    if (gpus % stages != 0)
        return settings_refuse(settings, "parallel", "stages", "%d stages do not divide parallel.gpus = %d",
                               stages, gpus);
    if (gpus / stages * micro_batches > most)
        return settings_refuse(settings, "train", "accumulate",
                               "%" PRId64 " micro-batches a step are more than the images of one, "
                               "which are at most %" PRId64, gpus / stages * micro_batches, most);
    if (gpus > 1 && settings->parallel.microbatches == 0)
        return settings_refuse(settings, "parallel", "microbatches", "auto is for one GPU; with "
                               "parallel.gpus = %d it must be a number", gpus);
    if (stages > 1 && settings->train.batch == 0)
        return settings_refuse(settings, "train", "batch", "auto is not for pipelines; with "
                               "parallel.stages = %d it must be a number", stages);
    if (settings->parallel.wire == WIRE_STORAGE && gpus / stages > RANKS_COUNTED)
        return settings_refuse(settings, "parallel", "wire", "storage is for at most %d ranks that share a "
                               "batch", RANKS_COUNTED);
    if (stages > 1 && settings->train.freeze_epochs > 0)
        return settings_refuse(settings, "train", "freeze_epochs",
                               "is not possible in a pipeline (parallel.stages)");
    if (stages > 1 && settings->train.sync_bn)
        return settings_refuse(settings, "train", "sync_bn",
                               "is not possible in a pipeline (parallel.stages)");
    return OK;
}

/* Beyond the images lie ignored pixels, even where the data have none. */
static void set_pixel_loss(const struct settings *settings, struct hyperparameters *hyper)
{
    const double *tversky = settings->train.tversky.value;
    bool given = settings->train.tversky.count == 2;
    snprintf(hyper->pixel_loss, sizeof hyper->pixel_loss,
             "kind=%s gamma=%.17g false_positives=%.9g false_negatives=%.9g background=%s",
             loss_table[hyper->loss].name, settings->train.focal_gamma, given ? tversky[0] : 0.5,
             given ? tversky[1] : 0.5, settings->train.dice_background ? "yes" : "no");
}

static enum status set_task(struct settings *settings, const struct data *data,
                            struct hyperparameters *hyper)
{
    hyper->task = task_of(data);
    TRY(task_choose(hyper->task, settings, &hyper->loss, &hyper->best));
    if (data->target == TARGET_MASK) set_pixel_loss(settings, hyper);
    if (data->target != TARGET_CLASS || hyper->loss == LOSS_CE || !data_weighs_classes(settings)) return OK;
    return settings_refuse(settings, "data", "class_weights", "cannot be combined with train.loss = bce");
}

enum status hyperparameters_check(const struct settings *settings)
{
    struct hyperparameters hyper = {.precision = NULL};
    const struct schedule_row *row;
    enum status precision = set_precision(settings, &hyper), optimizer = find_optimizer(settings, &hyper);
    enum status schedule = find_schedule(settings, &row);
    return precision ? precision : optimizer ? optimizer : schedule;
}

enum status hyperparameters_open(struct settings *settings, const struct data *data,
                                 struct hyperparameters *hyper)
{
    TRY(set_ranks(settings, hyper));
    TRY(set_precision(settings, hyper));
    TRY(set_task(settings, data, hyper));
    set_scaling(settings, hyper);
    TRY(check_scaling(settings, hyper));
    return set_optimizer(settings, hyper);
}

enum status hyperparameters_set_batch(const struct settings *settings, const struct images *train,
                                      struct hyperparameters *hyper)
{
    TRY(set_batch(settings, train, hyper));
    hyper->lookahead = settings->train.lookahead;
    return set_schedule(settings, hyper);
}
