#include "session/setup.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "device/device.h"
#include "session/checkpoint.h"
#include "session/decoding.h"
#include "session/gpu_preprocessing.h"
#include "base/signals.h"
#include "session/weights.h"

enum status setup_refuse(const struct setup *setup, const char *section, const char *key,
                         const char *format, ...)
{
    char why[REASON_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    return fail(USAGE, "%s: %s.%s: %s", settings_where(setup->settings, section, key), section, key, why);
}

enum status setup_open(struct settings *settings, const char *file, unsigned what,
                       const struct setup_hint *hint, struct setup *setup)
{
    *setup = (struct setup){.settings = settings, .file = file, .hint = hint};
    setup->bad = bad_images_new(setup->opened, settings->data.on_error == ON_ERROR_SKIP);
    enum status status = setup_images(setup, what);
    if (status == OK) status = setup_network(setup);
    if (status == OK) status = setup_numbers(setup);
    if (status == OK) status = setup_check_cache(setup);
    if (status == OK) status = decoding_check(setup);
    if (status != OK) setup_close(setup);
    return status;
}

void setup_close(struct setup *setup)
{
    gpu_preprocessing_close(setup);
    decoding_close(setup);
    device_allocators_host_close(setup->device, setup->pinned);
    device_allocators_close(setup->device, setup->cache);
    device_close(setup->device);
    free(setup->graph_text);
    if (setup->own_val_graph) graph_free(&setup->val_graph);
    if (setup->graph.nodes) graph_free(&setup->graph);
    free(setup->train.subset);
    free(setup->val.subset);
    for (int i = 0; i < 2; i++) {
        image_cache_close(setup->caches[i]);
        dataset_close(&setup->opened[i]);
    }
    bad_images_free(setup->bad);
    checkpoint_free_names(setup->class_names, setup->classes);
    *setup = (struct setup){0};
}

enum status setup_device(struct setup *setup)
{
    const struct settings *settings = setup->settings;
    if (setup->device) return OK;
    TRY(device_open(settings->run.device, (int)settings->run.threads, &setup->device));
    setup->device->memory_limit = (size_t)settings->memory.limit;
    setup->cache = device_allocators_open(setup->device, 0);
    setup->pinned = device_allocators_host_open(setup->device);
    return OK;
}

bool setup_asks_cuda(const struct setup *setup)
{
    return strncmp(setup->settings->run.device, "cuda", 4) == 0;
}

/* Whether run.device comes down to CUDA on this machine, with this build. */
static bool means_cuda(const struct setup *setup)
{
    struct reason reason;
    if (!kernel_plans_code(DEVICE_CUDA)(op_find("conv"))) return false;
    if (strcmp(setup->settings->run.device, "auto") != 0) return setup_asks_cuda(setup);
    for (const struct device_backend *const *backend = device_backends; *backend; backend++)
        if ((*backend)->kind == DEVICE_CUDA && (*backend)->count(&reason) > 0) return true;
    return false;
}

enum device_kind setup_device_kind(const struct setup *setup)
{
    if (setup->device) return setup->device->backend->kind;
    return means_cuda(setup) ? DEVICE_CUDA : DEVICE_CPU;
}

int setup_streams(const struct setup *setup)
{
    if (setup->device) return setup->device->streams;
    return setup_device_kind(setup) == DEVICE_CUDA ? 2 : 1;
}

int64_t setup_limit(const struct setup *setup)
{
    int64_t limit = setup->settings->memory.limit;
    return limit == 0 || (setup->left > 0 && setup->left < limit) ? setup->left : limit;
}

int setup_processors(void)
{
    cpu_set_t cpus;
    int count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return count > 0 ? count : 1;
}

/* One thread for every processor: decoding and computing take turns. */
static int workers_of(const struct settings *settings)
{
    return settings->loader.workers > 0 ? (int)settings->loader.workers : setup_processors();
}

#define PREFETCH_AHEAD 4

static void *pinned_allocate(void *device, size_t bytes)
{
    bool pinned;
    return device_host_allocate(device, bytes, "batches", &pinned);
}

static void pinned_release(void *device, void *memory, size_t bytes)
{
    device_host_release(device, memory, bytes);
}

/* Where the host runs ahead of the device, two batches are out at once, and a third should be coming. */
int setup_prefetch(const struct setup *setup)
{
    int prefetch = (int)setup->settings->loader.prefetch;
    bool ahead = setup_device_kind(setup) == DEVICE_CUDA;
    return ahead && prefetch < PREFETCH_AHEAD ? PREFETCH_AHEAD : prefetch;
}

static struct loader_options loader_options(const struct setup *setup, const struct images *images,
                                            bool training)
{
    const struct settings *settings = setup->settings;
    struct loader_options options = {
        .dataset = images->dataset,
        .cache = images->cache,
        .subset = images->subset,
        .count = images->count,
        .augment = setup->augment,
        .mix = setup->mix,
        .classes = setup->classes,
        .training = training,
        .shuffle = training && settings->data.shuffle,
        .batch = setup->batch,
        .h = images->h,
        .w = images->w,
        .channels = setup->channels,
        .dtype = setup->precision->storage,
        .leaves = setup->gpu_preprocessing != NULL,
        .kept = gpu_preprocessing_kept(setup, images->dataset),
        .workers = workers_of(settings),
        .prefetch = setup_prefetch(setup),
        .seed = (uint64_t)settings->run.seed,
        .timeout = settings->loader.timeout,
        .stop = signals_stop,
        .stop_on_error = settings->data.on_error == ON_ERROR_STOP,
        .bad_image = bad_images_report,
        .bad_context = bad_images_source(setup->bad, images->dataset),
    };
    const struct device *device = setup->device;
    if (device && device->waits) {
        options.allocate = pinned_allocate;
        options.release = pinned_release;
        options.memory_context = setup->device;
    }
    if (training && !images->cache) options.decoder = decoding_of(setup);
    if (options.decoder.decoder) options.workers += options.decoder.decoder->callers;
    return options;
}

enum status setup_loader(const struct setup *setup, const struct images *images, bool training,
                         struct loader **loader)
{
    struct loader_options options = loader_options(setup, images, training);
    return loader_open(&options, loader);
}

enum status setup_measured_loader(const struct setup *setup, struct loader **loader)
{
    struct loader_options options = loader_options(setup, &setup->train, true);
    options.bad_image = NULL;
    options.stop_on_error = false;
    options.workers = setup_processors() + options.decoder.decoder->callers;
    return loader_open(&options, loader);
}

struct store_options setup_store_options(const struct setup *setup, bool training)
{
    return (struct store_options){
        .low = setup->precision->storage,
        .optimizer = training ? setup->optimizer : NULL,
        .ema = training && setup->settings->train.ema > 0,
    };
}

static enum status load_initial_weights(const struct setup *setup, struct store *store)
{
    const char *named = setup->settings->model.weights;
    if (!named || !*named) return OK;
    char *path = settings_path(setup->settings, setup->file, named);
    const struct weights_options options = {true, setup->class_names, setup->classes};
    enum status status = weights_load(path, &options, store);
    free(path);
    return status;
}

enum status setup_store(const struct setup *setup, bool training, struct store *store)
{
    struct store_options options = setup_store_options(setup, training);
    struct store opened = {0};
    TRY(store_open(setup->device, &setup->graph, &options, &opened));
    enum status status = store_init(&opened, (uint64_t)setup->settings->run.seed);
    if (status == OK && training) {
        struct optimizer_state state = {.scaler = scaler_start(&setup->scaling)};
        status = store_write_state(&opened, &state);
    }
    if (status == OK) status = load_initial_weights(setup, &opened);
    if (status != OK)
        store_close(&opened);
    else
        *store = opened;
    return status;
}
