#include "explain/trained_network.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/network_identity.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_identify.h"
#include "conf/options.h"
#include "explain/folded_store.h"
#include "graph/batchnorm_fold.h"
#include "session/plausible.h"
#include "session/preprocessing.h"
#include "session/session_open.h"
#include "session/session_store.h"
#include "session/step_fit.h"
#include "transfer/holdout.h"

/* A weights file's own description. */
struct remembered {
    struct data_hint hint;
    char **names;
    char *arch, *network;
    double *thresholds;
    struct mask_classes masks;
    struct settings then;        /* how its run was configured; an exported one's preprocessing */
    bool configured;             /* `then` is there */
};

static void forget(struct remembered *remembered)
{
    text_list_free(remembered->names, (size_t)remembered->hint.classes);
    free(remembered->arch);
    free(remembered->network);
    free(remembered->thresholds);
    mask_classes_free(&remembered->masks);
    if (remembered->configured) settings_free(&remembered->then);
}

static enum status remember(const char *path, struct remembered *remembered)
{
    struct weights_file file;
    struct reason reason;
    if (!weights_file_open(path, &file, &reason)) return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    struct data_hint *hint = &remembered->hint;
    enum status status = OK;
    if (!checkpoint_input(&file.described, &hint->h, &hint->w, &hint->channels, &reason))
        status = fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    if (status == OK && safetensors_value(&file.described, "config")) {
        status = checkpoint_settings(&file.described, &remembered->then);
        remembered->configured = status == OK;
    }
    checkpoint_class_names(&file.described, &remembered->names, &hint->classes);
    hint->class_names = remembered->names;
    hint->thresholds = remembered->thresholds = checkpoint_thresholds(&file.described, hint->classes);
    if (checkpoint_masks(&file.described, remembered->names, hint->classes, &remembered->masks))
        hint->masks = &remembered->masks;
    hint->arch = remembered->arch = text_copy(safetensors_value(&file.described, "arch"));
    hint->network = remembered->network = text_copy(safetensors_value(&file.described, "graph"));
    weights_file_close(&file);
    return status;
}

/* Settings. */

static bool is_preprocessing(const struct option *option)
{
    return strcmp(option->section, "augment") == 0 || option == option_find("data", "orientation");
}

/* All settings except the network, which is in the file, and those of the machine or the run. */
static bool is_learned_with(const struct option *option)
{
    static const char *const others[] = {"loader", "model", "memory", "checkpoint", "log", "parallel"};
    if (strcmp(option->section, "run") == 0) return strcmp(option->field.name, "seed") == 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(option->section, others[i]) == 0) return false;
    return true;
}

enum status trained_network_settings(const char *path, const struct settings_sources *given,
                                     struct settings *settings)
{
    struct weights_file file;
    struct reason reason;
    if (!weights_file_open(path, &file, &reason)) return fail(BAD_CHECKPOINT, "%s: %s", path, reason.text);
    char *config = checkpoint_config(&file.described);
    weights_file_close(&file);
    const struct settings_base base = {path, config, given->file ? is_preprocessing : is_learned_with};
    struct settings_sources sources = *given;
    sources.base = config ? &base : NULL;
    sources.check = plausible_names;
    enum status status = settings_read(&sources, settings);
    free(config);
    return status;
}

/* Contradictions between the configuration and the weights file. */

static void compare_preprocessing(const struct session *session, const struct remembered *remembered,
                                  const char *path)
{
    static const char *const keys[][2] = {
        {"data", "orientation"}, {"augment", "fit"}, {"augment", "val_resize"},
        {"augment", "interpolation"}, {"augment", "mean"}, {"augment", "std"},
    };
    for (size_t i = 0; remembered->configured && i < sizeof keys / sizeof *keys; i++) {
        const char *section = keys[i][0], *key = keys[i][1];
        char *then = option_value(option_find(section, key), &remembered->then);
        char *now = option_value(option_find(section, key), session->settings);
        if (strcmp(then, now) != 0)
            log_warning("%s: the weights were trained with %s.%s = %s, not %s (%s)", path, section, key,
                        *then ? then : "empty", *now ? now : "empty",
                        settings_where(session->settings, section, key));
        free(then);
        free(now);
    }
    const struct images *images = &session->data.val;
    bool tiled = session->data.target == TARGET_MASK;
    if (!tiled && remembered->hint.h > 0 &&
        (images->h != remembered->hint.h || images->w != remembered->hint.w))
        log_warning("%s: evaluation images have %dx%d pixels, but the weights were evaluated on %dx%d", path,
                    images->h, images->w, remembered->hint.h, remembered->hint.w);
}

static bool names_network(const struct settings *settings)
{
    return settings->model.arch || settings->model.file;
}

/* The shapes of weights do not distinguish networks with different activations. Classes are matched by name,
 * and compare_preprocessing names settings. */
static enum status compare_networks(const struct session *session, const struct remembered *remembered,
                                    const char *path)
{
    const struct graphs_options options = {.settings = session->settings, .file = session->file,
                                           .data = &session->data};
    const struct network_identity then = {.graph = remembered->network};
    struct network_identity now;
    struct graphs own;
    struct text differences = {0};
    if (!remembered->network || !names_network(session->settings)) return OK;
    enum status status = graphs_open(&options, &own);
    if (status == OK) {
        network_identity_make(&own.training, session->settings, NULL, 0, &now);
        if (!network_identity_same(&then, &now, GRAPH_SAME_WEIGHTS, &differences))
            log_warning("%s: the weights belong to another network, which is used instead: %s", path,
                        differences.data);
        text_free(&differences);
        network_identity_free(&now);
    }
    graphs_close(&own);
    return status;
}

/* Opens a store and loads the file. `filled`: its memory is new, so that what the file may lack, but for
 * initial values, is zeros. */
static enum status open_store(const struct trained *trained, struct device *device, enum dtype low,
                              bool filled, const char *path, struct store *store)
{
    struct store_options options = session_store_options(&trained->session, false);
    const struct weights_options *loaded = &trained->loaded;
    options.low = low;
    options.filled = filled;
    TRY(store_open(device, &trained->session.graphs.training, &options, store));
    /* Initial values, which take several times as long as loading, where the file may lack tensors. */
    enum status status = loaded->lenient || loaded->fine_tuned ? store_init(store, 0) : OK;
    if (status == OK) status = weights_load(path, loaded, store);
    if (status != OK) store_close(store);
    return status;
}

enum status trained_network_whole(const struct trained *trained, const char *path, struct store *store)
{
    const struct session *session = &trained->session;
    return open_store(trained, session->device, session->hyper.precision->storage, false, path, store);
}

static enum status fold(const char *path, struct device *device, const int *norms, struct trained *trained,
                        struct store *store)
{
    struct graphs *graphs = &trained->session.graphs;
    TRY(open_store(trained, device, F32, true, path, store));
    graphs->folded = batchnorm_fold(&graphs->evaluation, norms);
    folded_store_fold(store, &graphs->evaluation, norms, &graphs->folded);
    return OK;
}

/* Batch norms are folded in the host's memory, and in fp32. */
static enum status open_folded(const char *path, const int *norms, struct trained *trained)
{
    struct session *session = &trained->session;
    struct store_options options = session_store_options(session, false);
    struct device *host;
    struct store folded;
    if (session_device_kind(session) == DEVICE_CPU && options.low == F32)
        return fold(path, session->device, norms, trained, &trained->store);
    TRY(device_open("cpu", session->device->threads, &host));
    enum status status = fold(path, host, norms, trained, &folded);
    if (status == OK) {
        options.filled = true;
        status = store_open(session->device, &session->graphs.folded, &options, &trained->store);
        if (status == OK) status = store_fill(&trained->store, &folded);
        store_close(&folded);
    }
    device_close(host);
    return status;
}

static enum status open_network(const char *path, bool folded, struct trained *trained)
{
    struct session *session = &trained->session;
    TRY(session_open_device(session));
    int *norms = memory_new((size_t)session->graphs.evaluation.count, sizeof *norms);
    bool some = folded && folded_store_find(&session->graphs.evaluation, norms);
    enum status status = some ? open_folded(path, norms, trained)
                              : trained_network_whole(trained, path, &trained->store);
    free(norms);
    return status;
}

static void derive_numbers(struct settings *settings, const char *key, const double *numbers)
{
    char words[96];
    snprintf(words, sizeof words, "%.9g %.9g %.9g", numbers[0], numbers[1], numbers[2]);
    if (!settings_given(settings, "augment", key)) settings_derive(settings, "augment", key, words);
}

static void derive_eps(struct settings *settings, double eps)
{
    char words[32];
    snprintf(words, sizeof words, "%.9g", eps);
    settings_derive(settings, "model", "norm_eps", words);
}

static void derive_size(struct settings *settings, const char *key, struct image_size size)
{
    if (size.h > 0 && !settings_given(settings, "augment", key))
        settings_derive_size(settings, "augment", key, size);
}

/* The network is for images of this size: positions of others are resized. */
static void fix_size(struct settings *settings, struct data_hint *hint)
{
    const struct image_size crop = settings->augment.val_crop;
    if (crop.h > 0) {
        hint->h = crop.h;
        hint->w = crop.w;
    }
    if (!settings_given(settings, "model", "image_size") && hint->h > 0 && hint->h == hint->w)
        settings_derive_number(settings, "model", "image_size", hint->h);
}

/* Weights of other libraries: the network that they fit, and the images that these usually get, unless the
 * configuration says otherwise. */
static enum status recognise(struct settings *settings, const char *path, bool backbone,
                             struct remembered *remembered)
{
    struct weights_identity identity;
    struct data_hint *hint = &remembered->hint;
    if (remembered->network || names_network(settings)) return OK;
    TRY(weights_identify(path, &identity));
    settings_derive(settings, "model", "arch", identity.arch);
    if (identity.norm_eps > 0 && !settings_given(settings, "model", "norm_eps"))
        derive_eps(settings, identity.norm_eps);
    if (identity.channels == MODEL_CARD_CHANNELS) {
        derive_numbers(settings, "mean", identity.card.mean);
        derive_numbers(settings, "std", identity.card.std);
    }
    derive_size(settings, "val_resize", identity.card.resize);
    if (!settings_given(settings, "augment", "interpolation"))
        settings_derive(settings, "augment", "interpolation", identity.card.interpolation);
    derive_size(settings, "val_crop", identity.card.crop);
    hint->h = identity.card.crop.h;
    hint->w = identity.card.crop.w;
    if (identity.positions) fix_size(settings, hint);
    hint->channels = identity.channels;
    if (backbone) {
        hint->classes = 0;
    } else if (hint->classes == 0 && identity.card.class_names) {
        hint->classes = identity.classes;
        hint->class_names = remembered->names = identity.card.class_names;
        identity.card.class_names = NULL;
    } else if (hint->classes == 0 && identity.classes > 0 && !settings_given(settings, "model", "classes")) {
        settings_derive_number(settings, "model", "classes", identity.classes);
    }
    weights_identity_free(&identity);
    return OK;
}

static enum status check_holdout(const struct trained_source *source, struct session *session)
{
    bool named = source->config || settings_on_command(source->settings, "data", "train");
    if (!session->data.train.dataset) return OK;
    return holdout_check(source->path, named, session->settings, &session->data);
}

static enum status open_session(const struct trained_source *source, unsigned wanted,
                                const struct data_hint *hint, struct session *session)
{
    const struct data_options data = {.file = source->config, .wanted = wanted, .hint = hint};
    return session_open(source->settings, &data, source->comm, session);
}

static enum status open_all(const struct trained_source *source, unsigned data,
                            struct remembered *remembered, struct trained *trained)
{
    struct session *session = &trained->session;
    struct settings *settings = source->settings;
    const char *path = source->path;
    bool backbone = data & TRAINED_BACKBONE, folded = data & TRAINED_FOLDED;
    data &= ~(TRAINED_BACKBONE | TRAINED_FOLDED);
    TRY(recognise(settings, path, backbone && data != DATA_NONE, remembered));
    if (data != DATA_NONE && !settings->data.format && !source->config)
        return fail(USAGE, "%s: does not say which images: name them with --val PATH or -c FILE", path);
    session_any_batch(settings);
    /* A backbone may be used on images of other classes. */
    struct data_hint hint = remembered->hint;
    if (backbone && data != DATA_NONE && hint.classes > 0) {
        if (hint.network) settings_derive_number(settings, "model", "classes", hint.classes);
        hint.class_names = NULL;
        hint.classes = 0;
    }
    TRY(open_session(source, data, &hint, session));
    TRY(check_holdout(source, session));
    compare_preprocessing(session, remembered, path);
    TRY(compare_networks(session, remembered, path));
    trained->loaded = (struct weights_options){.lenient = !settings->model.weights_strict,
                                               .fine_tuned = backbone, .resized = !remembered->network};
    return open_network(path, folded, trained);
}

enum status trained_network_session(const struct trained_source *source, struct session *session)
{
    struct remembered remembered = {0};
    enum status status = remember(source->path, &remembered);
    if (status == OK) status = open_session(source, DATA_TRAIN, &remembered.hint, session);
    forget(&remembered);
    return status;
}

enum status trained_network_load(const struct trained_source *source, unsigned data, struct trained *trained)
{
    struct remembered remembered = {0};
    *trained = (struct trained){0};
    enum status status = remember(source->path, &remembered);
    if (status == OK) status = open_all(source, data, &remembered, trained);
    forget(&remembered);
    if (status != OK) trained_close(trained);
    return status;
}

enum status trained_network_open(const struct trained_source *source, unsigned data, struct trained *trained)
{
    TRY(trained_network_load(source, data, trained));
    struct session *session = &trained->session;
    bool tiled = session->data.target == TARGET_MASK;
    enum status status = tiled ? step_fit_tiles(session, false) : preprocessing_open(session, false);
    if (status == OK) status = step_open(session, STEP_EVALUATION, &trained->store, &trained->step);
    if (status != OK) trained_close(trained);
    return status;
}

void trained_close(struct trained *trained)
{
    step_close(&trained->step);
    if (trained->store.memory) store_close(&trained->store);
    session_close(&trained->session);
}
