#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "session/largest.h"

static enum status refuse_name(const struct setup *setup, const char *section, const char *key,
                               const char *name, const char *const *names, int count)
{
    const char *near = text_nearest(name, names, count);
    if (near) return setup_refuse(setup, section, key, "there is no '%s'; did you mean '%s'?", name, near);
    struct text all = {0};
    for (int i = 0; i < count; i++) text_add(&all, "%s%s", i ? ", " : "", names[i]);
    enum status status = setup_refuse(setup, section, key, "there is no '%s', only %s", name, all.data);
    text_free(&all);
    return status;
}

#define NAMES_MAX 64

static enum status set_precision(struct setup *setup)
{
    const char *name = setup->settings->amp.precision, *names[PRECISION_COUNT];
    for (int i = 0; i < PRECISION_COUNT; i++) {
        names[i] = precision_table[i].name;
        if (name && strcmp(name, names[i]) == 0) setup->precision = &precision_table[i];
    }
    if (setup->precision) return OK;
    return refuse_name(setup, "amp", "precision", name ? name : "", names, PRECISION_COUNT);
}

static void set_scaling(struct setup *setup)
{
    struct settings *settings = setup->settings;
    if (settings->amp.loss_scale < 0)
        settings_derive(settings, "amp", "loss_scale", setup->precision->scale_by_default ? "dynamic" : "1");
    setup->scaling = (struct scaler_settings){
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

static enum status check_scaling(const struct setup *setup)
{
    const struct scaler_settings *scaling = &setup->scaling;
    if (scaling->dynamic &&
        (scaling->init_scale < scaling->min_scale || scaling->init_scale > scaling->max_scale))
        return setup_refuse(setup, "amp", "init_scale", "must be between amp.min_scale and amp.max_scale");
    return OK;
}

static double given_or(double given, double initial)
{
    return given < 0 ? initial : given;
}

static enum status set_optimizer(struct setup *setup)
{
    const struct settings *settings = setup->settings;
    const char *name = settings->optimizer.name, *names[NAMES_MAX];
    int count = 0;
    while (optimizer_table[count] && count < NAMES_MAX) {
        names[count] = optimizer_table[count]->name;
        count++;
    }
    setup->optimizer = name ? optimizer_find(name) : NULL;
    if (!setup->optimizer) return refuse_name(setup, "optimizer", "name", name ? name : "", names, count);
    const struct optimizer_settings *initial = &setup->optimizer->initial;
    bool betas = settings->optimizer.betas.count == 2;
    setup->optimizer_settings = (struct optimizer_settings){
        .momentum = given_or(settings->optimizer.momentum, initial->momentum),
        .nesterov = settings->optimizer.nesterov,
        .weight_decay = given_or(settings->optimizer.weight_decay, initial->weight_decay),
        .beta1 = betas ? settings->optimizer.betas.value[0] : initial->beta1,
        .beta2 = betas ? settings->optimizer.betas.value[1] : initial->beta2,
        .alpha = settings->optimizer.alpha,
        .eps = given_or(settings->optimizer.eps, initial->eps),
        .trust = settings->optimizer.trust,
        .clip_norm = settings->train.clip_norm,
        .ema = settings->train.ema,
    };
    if (settings->optimizer.nesterov && !setup->optimizer->has_nesterov)
        return setup_refuse(setup, "optimizer", "nesterov", "is for sgd and lars; %s has no such form", name);
    if (setup->optimizer_settings.nesterov && setup->optimizer_settings.momentum == 0)
        return setup_refuse(setup, "optimizer", "nesterov", "needs a momentum above 0");
    return OK;
}

static void derive_number(const struct setup *setup, const char *section, const char *key, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    settings_derive(setup->settings, section, key, text);
}

/* train.batch=auto becomes a number, and with it what it was found for, that the run stays within. */
static enum status find_batch(struct setup *setup)
{
    struct settings *settings = setup->settings;
    int64_t limit = settings->memory.limit;
    int batch = 0;
    char bytes[TEXT_BYTES];
    if (limit == 0) TRY(largest_limit(setup, &limit));
    if (limit > 0) TRY(largest_batch(setup, limit, &batch));
    bool fits = batch > 0;
    if (!fits && setup->train.dataset && setup->train.count < setup->micro_batches)
        batch = setup->micro_batches;
    if (batch == 0)
        return fail(NO_DEVICE, "%s: train.batch: not even %d image%s a step fit%s into %s of memory",
                    settings_where(settings, "train", "batch"), setup->micro_batches,
                        setup->micro_batches == 1 ? "" : "s",
                    setup->micro_batches == 1 ? "s" : "", text_bytes((uint64_t)limit, bytes));
    derive_number(setup, "train", "batch", batch);
    if (fits && settings->memory.limit == 0) derive_number(setup, "memory", "limit", limit);
    if (fits)
        log_info("train.batch: auto is %d, the most images a step that %s of memory are enough for", batch,
                 text_bytes((uint64_t)limit, bytes));
    return OK;
}

static enum status set_batch(struct setup *setup)
{
    const struct settings *settings = setup->settings;
    setup->micro_batches = (int)settings->train.accumulate;
    if (settings->train.batch == 0) TRY(find_batch(setup));
    setup->batch = (int)settings->train.batch;
    if (setup->batch % setup->micro_batches != 0)
        return setup_refuse(setup, "train", "accumulate", "%d does not divide train.batch = %d",
                            setup->micro_batches, setup->batch);
    setup->steps_per_epoch = setup->train.count / setup->batch;
    if (setup->train.dataset && setup->steps_per_epoch == 0)
        return setup_refuse(setup, "train", "batch", "%d is more than the %" PRId64 " training images",
                            setup->batch, setup->train.count);
    if (setup->steps_per_epoch == 0) setup->steps_per_epoch = 1;
    return OK;
}

static enum status set_schedule(struct setup *setup)
{
    const struct settings *settings = setup->settings;
    const char *name = settings->schedule.name, *names[NAMES_MAX];
    int count = 0;
    for (; schedule_table[count].name && count < NAMES_MAX; count++)
        names[count] = schedule_table[count].name;
    const struct schedule_row *row = name ? schedule_find(name) : NULL;
    if (!row) return refuse_name(setup, "schedule", "name", name ? name : "", names, count);
    if (row->own_warmup && settings->schedule.warmup > 0)
        return setup_refuse(setup, "schedule", "warmup", "%s has its own warm-up (pct_start)", name);
    double epoch = (double)setup->steps_per_epoch;
    setup->schedule = (struct schedule){
        .row = row,
        .lr = settings->optimizer.lr,
        .momentum = optimizer_momentum(setup->optimizer, &setup->optimizer_settings),
        .total = settings->train.epochs * setup->steps_per_epoch,
        .warmup = round(settings->schedule.warmup * epoch),
        .milestones = settings->schedule.milestones,
        .gamma = settings->schedule.gamma,
        .min_lr = settings->schedule.min_lr,
        .power = settings->schedule.power,
        .pct_start = settings->schedule.pct_start,
        .div = settings->schedule.div,
        .final_div = settings->schedule.final_div,
    };
    for (int i = 0; i < setup->schedule.milestones.count; i++) setup->schedule.milestones.value[i] *= epoch;
    return OK;
}

enum status setup_numbers(struct setup *setup)
{
    TRY(set_precision(setup));
    set_scaling(setup);
    TRY(check_scaling(setup));
    TRY(set_optimizer(setup));
    TRY(set_batch(setup));
    return set_schedule(setup);
}
