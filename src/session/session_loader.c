#include "session/session_loader.h"

#include "base/host.h"
#include "base/signals.h"
#include "input/gpu_preprocessing.h"
#include "kernels/loss/pixel_loss.h"

int session_workers(const struct session *session)
{
    int given = (int)session->settings->loader.workers;
    int own = host_processors() / (session->comm ? session->comm->local_count : 1);
    return given > 0 ? given : own > 0 ? own : 1;
}

static void *allocate_pinned(void *device, size_t bytes)
{
    bool pinned;
    return device_host_allocate(device, bytes, "batches", &pinned);
}

static void pinned_release(void *device, void *memory, size_t bytes)
{
    device_host_release(device, memory, bytes);
}

struct mask_targets session_mask_targets(const struct session *session)
{
    const struct graph *graph = graphs_step(&session->graphs);
    const struct shape *input = &graph->nodes[0].shape;
    struct mask_targets targets = {
        .classes = session->data.classes, .h = (int)input->h, .w = (int)input->w,
        .weights = session->data.class_weights,
        .outputs = graph->output_count > 0 ? graph->output_count : 1,
    };
    for (int i = 0; i < targets.outputs; i++) {
        int node = graph->output_count > 0 ? graph->outputs[i].node : graph->output;
        targets.stride[i] = (int)pixel_loss_stride(input->h, graph->nodes[node].shape.h);
    }
    return targets;
}

static struct loader_options loader_options(const struct session *session, const struct images *images,
                                            const struct loader_views *views)
{
    bool training = views == NULL;
    const struct settings *settings = session->settings;
    const struct data *data = &session->data;
    struct loader_options options = {
        .dataset = images->dataset,
        .cache = images->cache,
        .mask_cache = images->mask_cache,
        .subset = images->subset,
        .count = images->count,
        .augment = data->augment,
        .mix = data->mix,
        .target = data->target,
        .target_mean = data->value_mean,
        .target_std = data->value_std,
        .classes = data->classes,
        .class_weights = data->class_weights,
        .label_smoothing = settings->augment.label_smoothing,
        .micro_batches = session->hyper.replicas * session->hyper.micro_batches,
        .training = training,
        .views = views ? *views : (struct loader_views){0},
        .alternate = training && settings->augment.flip < 0,
        .shuffle = training && settings->data.shuffle,
        .balance = settings->data.balance,
        .repeats = (int)settings->augment.repeats,
        .batch = session->hyper.batch,
        .rank = session_replica(session),
        .ranks = session->comm ? session->hyper.replicas : 1,
        .h = images->h,
        .w = images->w,
        .channels = data->channels,
        .dtype = session->hyper.precision->storage,
        .device_preprocessing = session->gpu_preprocessing != NULL,
        .workers = session_workers(session),
        .prefetch = session_prefetch(session),
        .seed = (uint64_t)settings->run.seed,
        .timeout = settings->loader.timeout,
        .stop = session->comm ? NULL : signals_stop,   /* ranks stop together, after a step */
        .stop_on_error = settings->data.on_error == ON_ERROR_STOP,
    };
    if (training && data->target == TARGET_MASK) options.masks = session_mask_targets(session);
    /* All stages evaluate the whole network. */
    if (!training && session->comm) {
        options.batch *= session->hyper.stages;
        options.micro_batches *= session->hyper.stages;
        options.rank = session->comm->rank;
        options.ranks = session->comm->count;
    }
    const struct device *device = session->device;
    if (device && device->waits) {
        options.allocate = allocate_pinned;
        options.release = pinned_release;
        options.memory_context = session->device;
    }
    if (training && !images->cache) options.decoder = decoding_of(session->decoding);
    if (options.decoder.decoder) options.workers += options.decoder.decoder->callers;
    return options;
}

/* The features of these images, which are read without. */
static const struct loader_features *features_of(const struct session *session, const struct images *images,
                                                 const struct images *own)
{
    bool same = images->dataset == own->dataset && images->subset == own->subset;
    if (!session->features.head.nodes || !same) return NULL;
    return &session->features.splits[own == &session->data.train ? SPLIT_TRAIN : SPLIT_VAL];
}

enum status session_loader_open(const struct session *session, const struct images *images,
                                const struct loader_views *views, struct loader **loader)
{
    struct loader_options options = loader_options(session, images, views);
    options.features = features_of(session, images, views ? &session->data.val : &session->data.train);
    if (options.features) {
        options.h = options.w = 1;
        options.channels = options.features->count;
    }
    options.kept = gpu_preprocessing_kept(session->gpu_preprocessing, images->dataset);
    options.bad_image = bad_images_report;
    options.bad_context = bad_images_source(session->data.bad, images->dataset);
    return loader_open(&options, loader);
}

enum status session_loader_open_features(const struct session *session, const struct images *images,
                                         struct loader **loader)
{
    struct loader_options options = loader_options(session, images, &(struct loader_views){0});
    if (images == &session->data.train) {
        options.augment.val_resize = options.augment.resize;
        options.augment.val_crop = options.augment.crop;
    }
    options.bad_image = bad_images_report;
    options.bad_context = bad_images_source(session->data.bad, images->dataset);
    return loader_open(&options, loader);
}

enum status session_loader_open_list(const struct session *session, struct dataset *dataset, bool in_memory,
                                     const struct loader_views *views,
                                     void (*bad_image)(void *context, int64_t index, const char *why),
                                     void *context, struct loader **loader)
{
    const struct images images = {.dataset = dataset, .count = dataset->count, .h = session->data.val.h,
                                  .w = session->data.val.w};
    struct loader_options options = loader_options(session, &images, views);
    /* Images of any size are cropped, also for a network that was trained on images of one size. */
    options.augment.val_crop = true;
    int64_t batches = (dataset->count + options.batch - 1) / options.batch;
    bool once = !views->mirrored && views->shift == 0;
    if (options.workers > dataset->count) options.workers = (int)dataset->count;
    if (once && options.prefetch > batches) options.prefetch = (int)batches;
    options.helps = in_memory;
    options.stop_on_error = false;
    options.bad_image = bad_image;
    options.bad_context = context;
    if (*loader && loader_renew(*loader, &options)) return OK;
    loader_close(*loader);
    *loader = NULL;
    return loader_open(&options, loader);
}

#define NUMBERS_BATCH 64

enum status session_loader_open_numbers(const struct session *session, const struct images *images,
                                        struct loader **loader)
{
    struct loader_options options = loader_options(session, images, NULL);
    options.dtype = F32;
    options.device_preprocessing = false;
    options.decoder = (struct loader_decoder){0};
    options.allocate = NULL;
    options.release = NULL;
    options.stop_on_error = false;
    options.rank = 0;
    options.ranks = options.micro_batches = options.repeats = 1;
    options.batch = options.count < NUMBERS_BATCH ? (int)options.count : NUMBERS_BATCH;
    return loader_open(&options, loader);
}

enum status session_loader_open_measured(const struct session *session, struct loader **loader)
{
    struct loader_options options = loader_options(session, &session->data.train, NULL);
    options.device_preprocessing = true;
    options.kept = gpu_preprocessing_kept(session->gpu_preprocessing, session->data.train.dataset);
    options.stop_on_error = false;
    options.workers = host_processors() + options.decoder.decoder->callers;
    return loader_open(&options, loader);
}
