#include "session/plausible.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "base/text.h"
#include "device/device.h"
#include "graph/model.h"
#include "task/hyperparameters.h"

static enum status check_arch(const struct settings *settings)
{
    struct search_paths paths = search_paths_find();
    int count;
    char **names = model_names((const char *const *)paths.models, &count);
    bool there = false;
    enum status status = OK;
    for (int i = 0; i < count; i++) there = there || strcmp(names[i], settings->model.arch) == 0;
    if (!there)
        status = settings_refuse_name(settings, "model", "arch", (const char *const *)names, count,
                                      "`amptrain models` lists them");
    text_list_free(names, (size_t)count);
    search_paths_free(&paths);
    return status;
}

static enum status check_device(const struct settings *settings)
{
    const char *device = settings->run.device;
    if (device_name_valid(device)) return OK;
    return settings_refuse(settings, "run", "device", "'%s': must be " DEVICE_NAMES, device);
}

enum status plausible_names(const struct settings *settings)
{
    const struct format *format;
    enum status device = check_device(settings);
    enum status data = settings->data.format ? data_format(settings, &format) : OK;
    enum status model = settings->model.arch ? check_arch(settings) : OK;
    enum status hyper = hyperparameters_check(settings);
    return device ? device : data ? data : model ? model : hyper;
}

/* True if it was set to a value other than the default: a run's config.ini sets all keys. */
static bool chosen(const struct settings *settings, const char *section, const char *key)
{
    const struct option *option = option_find(section, key);
    char *value = option_value(option, settings);
    bool other = settings_given(settings, section, key) && strcmp(value, option->field.initial) != 0;
    free(value);
    return other;
}

static void warn(const struct settings *settings, const char *section, const char *key, const char *why)
{
    if (chosen(settings, section, key))
        log_warning("%s: %s.%s %s", settings_where(settings, section, key), section, key, why);
}

static bool is_listed(const char *word, const char *list)
{
    const char *at = strstr(list, word);
    size_t length = strlen(word);
    return at && (at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0');
}

/* A key that only has an effect with certain values of another one. */
static const struct {
    const char *section, *key, *by, *values;
} dependences[] = {
    {"schedule", "milestones", "name", "step"},
    {"schedule", "gamma", "name", "step"},
    {"schedule", "min_lr", "name", "cosine poly plateau"},
    {"schedule", "power", "name", "poly"},
    {"schedule", "pct_start", "name", "onecycle"},
    {"schedule", "div", "name", "onecycle"},
    {"schedule", "final_div", "name", "onecycle"},
    {"schedule", "factor", "name", "plateau"},
    {"schedule", "patience", "name", "plateau"},
    {"schedule", "threshold", "name", "plateau"},
    {"schedule", "cooldown", "name", "plateau"},
    {"optimizer", "momentum", "name", "sgd rmsprop lars muon"},
    {"optimizer", "betas", "name", "adam adamw lamb lion muon"},
    {"optimizer", "alpha", "name", "rmsprop"},
    {"optimizer", "trust", "name", "lars"},
    {"optimizer", "eps", "name", "adam adamw lamb rmsprop adagrad muon"},
    {"optimizer", "adamw_lr", "name", "muon"},
    {"loader", "cache_limit", "cache", "auto host device"},
    {"amp", "init_scale", "loss_scale", "dynamic"},
    {"amp", "growth", "loss_scale", "dynamic"},
    {"amp", "backoff", "loss_scale", "dynamic"},
    {"amp", "growth_interval", "loss_scale", "dynamic"},
    {"train", "temperature", "distill", "soft"},
};

static void warn_of_dependences(const struct settings *settings)
{
    for (size_t i = 0; i < sizeof dependences / sizeof *dependences; i++) {
        const char *section = dependences[i].section, *by = dependences[i].by;
        char *value = option_value(option_find(section, by), settings);
        char *why = text_format("has no effect with %s.%s = %s", section, by, value);
        if (!is_listed(value, dependences[i].values)) warn(settings, section, dependences[i].key, why);
        free(why);
        free(value);
    }
}

static void warn_of_teacher(const struct settings *settings)
{
    static const char *const keys[] = {"distill", "distill_alpha", "temperature"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !settings_has_teacher(settings); i++)
        warn(settings, "train", keys[i], "has no effect without train.teacher");
}

static void warn_of_schedule(const struct settings *settings)
{
    if (strcmp(settings->schedule.name, "onecycle") == 0 && settings->optimizer.momentum != 0.9)
        warn(settings, "optimizer", "momentum",
             "has no effect with schedule.name = onecycle, which varies it from 0.95 to 0.85 and back");
    static const char *const averaging[] = {"swa_lr", "anneal_epochs", "anneal_strategy"};
    for (size_t i = 0; i < sizeof averaging / sizeof *averaging && settings->train.swa == 0; i++)
        warn(settings, "schedule", averaging[i], "has no effect without train.swa");
    bool adaptive = is_listed(settings->optimizer.name, "adam adamw");
    if (settings->schedule.warmup >= (double)settings->train.epochs)
        warn(settings, "schedule", "warmup", "is as long as the run: the learning rate only rises");
    if (settings->schedule.warmup == 0)
        warn(settings, "schedule", "warmup_start", "has no effect without schedule.warmup");
    for (int i = 0; i < settings->schedule.milestones.count; i++)
        if (settings->schedule.milestones.value[i] >= (double)settings->train.epochs) {
            warn(settings, "schedule", "milestones", "are not all before the end of the run (train.epochs)");
            break;
        }
    if (settings->train.early_stop >= settings->train.epochs)
        warn(settings, "train", "early_stop", "is not shorter than the run and never takes effect");
    if (settings->optimizer.lr == 0) warn(settings, "optimizer", "lr", "is 0: nothing is learnt");
    if (adaptive && settings->optimizer.lr > 0.02)
        warn(settings, "optimizer", "lr", "is large for this optimizer; 0.001 is usual");
}

static bool beyond(const struct field_reals *numbers, double limit)
{
    for (int i = 0; i < numbers->count; i++)
        if (fabs(numbers->value[i]) > limit) return true;
    return false;
}

static void warn_of_images(const struct settings *settings)
{
    if (beyond(&settings->augment.mean, 2))
        warn(settings, "augment", "mean", "is subtracted from x/255, which is between 0 and 1");
    if (beyond(&settings->augment.std, 2))
        warn(settings, "augment", "std", "divides x/255 - mean, which is between -1 and 1");
    struct image_size resize = settings->augment.val_resize, crop = settings->augment.val_crop;
    if (resize.h > 0 && (crop.h > resize.h || crop.w > resize.w))
        warn(settings, "augment", "val_crop", "is larger than augment.val_resize: images get a black border");
    if (settings->augment.scale.count == 0)
        warn(settings, "augment", "ratio", "has no effect without augment.scale");
    else
        warn(settings, "augment", "pad", "has no effect with augment.scale");
    bool shows = settings->augment.val_shift > 0 || settings->augment.rotate > 0 ||
                 settings->augment.shear.count > 0 || settings->augment.translate.count > 0;
    if (settings->augment.pad == 0 && !shows)
        warn(settings, "augment", "pad_mode", "has no effect without augment.pad, rotate, shear, translate "
             "and val_shift");
}

static void warn_of_streams(const struct settings *settings)
{
    if (settings->parallel.microbatches == 1)
        warn(settings, "parallel", "streams", "has no effect without parallel.microbatches");
    else if (settings->parallel.gpus > 1)
        warn(settings, "parallel", "streams", "has no effect with several GPUs");
}

static void warn_of_wire(const struct settings *settings)
{
    int64_t parts = settings->parallel.gpus / settings->parallel.stages * settings_micro_batches(settings);
    if (settings->parallel.wire != WIRE_STORAGE) return;
    if (!is_listed(settings->amp.precision, "fp16 bf16"))
        warn(settings, "parallel", "wire", "has no effect unless amp.precision is fp16 or bf16");
    else if (parts == 1)
        warn(settings, "parallel", "wire", "has no effect with one micro-batch: no gradients are summed");
}

static bool has_op(const struct graph *graph, const char *name)
{
    for (int i = 1; i < graph->count; i++)
        if (strcmp(graph->nodes[i].op->name, name) == 0) return true;
    return false;
}

static void warn_of_network(const struct settings *settings, const struct graph *graph)
{
    const struct node *last = &graph->nodes[graph->output];
    int trained = 0;
    for (int i = 0; i < graph->param_count; i++)
        trained += graph->params[i].spec.role != ROLE_STATISTIC && !graph->params[i].frozen;
    int64_t frozen = settings->train.freeze_epochs;
    if (trained == 0)
        warn(settings, "train", "freeze", frozen > 0 && frozen < settings->train.epochs
                 ? "matches all parameters: nothing is learnt until train.freeze_epochs have passed"
                 : "matches all parameters: nothing is learnt");
    if (!has_op(graph, "batchnorm"))
        warn(settings, "model", "bn_momentum", "has no effect: there is no batch norm");
    if (!has_op(graph, "dropout") && settings->model.dropout > 0)
        warn(settings, "model", "dropout", "has no effect: there is no dropout");
    if (last->op && is_listed(last->op->name, "relu relu6 silu gelu leaky_relu dropout"))
        log_warning("%s: layer '%s' (%s) is applied to the logits; the network should end with the layer "
                    "before it",
                    last->where, last->name, last->op->name);
}

/* The layers that have batch norm over one value a channel, the first three by name; returns how many. */
static int find_single(const struct session *session, int images, struct text *names)
{
    const struct graph *graph = &session->graphs.training;
    int found = 0;
    for (int i = 1; i < graph->count; i++) {
        if (strcmp(graph->nodes[i].op->name, "batchnorm") != 0) continue;
        if (images * session->graphs.pixels[i] > 1 || ++found > 3) continue;
        text_add(names, "%s'%s'", found > 1 ? ", " : "", graph->nodes[i].name);
    }
    return found;
}

/* PyTorch refuses it. In front of a linear probe batch norm has its running statistics. */
void plausible_warn_of_statistics(const struct session *session)
{
    const struct settings *settings = session->settings;
    const struct hyperparameters *hyper = &session->hyper;
    int parts = hyperparameters_micro_batches(hyper);
    bool synced = settings->train.sync_bn, single = hyper->replicas == 1 || synced;
    struct text names = {0};
    if (session->features.head.nodes) return;
    int layers = find_single(session, hyper->batch / parts * (synced ? hyper->replicas : 1), &names);
    if (layers > 0)
        log_warning("%s: train.batch: batch norm has one value a channel, of one image of 1x1 pixels, so its "
                    "output is its bias for any image: layer%s %s%s. Let each %s have 2 images: train.batch "
                    "= %d%s%s", settings_where(settings, "train", "batch"), layers > 1 ? "s" : "", names.data,
                    layers > 3 ? " and others" : "", parts > 1 ? "micro-batch" : "step", 2 * parts,
                    settings->train.accumulate > 1 ? ", or a smaller train.accumulate" : "",
                    single ? "" : ", or train.sync_bn = yes");
    text_free(&names);
}

void plausible_warn(const struct session *session)
{
    plausible_warn_of_statistics(session);
    warn_of_dependences(session->settings);
    warn_of_teacher(session->settings);
    warn_of_schedule(session->settings);
    warn_of_images(session->settings);
    warn_of_streams(session->settings);
    warn_of_wire(session->settings);
    warn_of_network(session->settings, &session->graphs.training);
}
