#include "train/probe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signals.h"
#include "base/text.h"
#include "explain/inference.h"
#include "explain/layer_output.h"
#include "explain/tail.h"
#include "input/caching.h"
#include "kernels/elementwise/dropout.h"
#include "session/session_loader.h"

/* ---- Whether it is one ---- */

/* The node whose output is the features: what the classifier reads, in front of its dropout. */
static int features_node(const struct graph *graph)
{
    int node = graph_classifier(graph);
    if (node == 0) return 0;
    do node = graph->nodes[node].inputs[0];
    while (node > 0 && graph->nodes[node].op->training_only);
    return node > 0 && tail_can_begin(graph, node) ? node : 0;
}

/* True if all parameters up to the node, of which there are some, are frozen. */
static bool is_frozen(const struct graph *graph, int node)
{
    int frozen = 0;
    for (int i = 0; i < graph->param_count; i++) {
        if (graph->params[i].node > node) continue;
        if (!graph->params[i].frozen) return false;
        frozen++;
    }
    return frozen > 0;
}

/* The setting by which random numbers change training images or the evaluation's; NULL: none. */
static const char *images_vary(const struct session *session)
{
    const struct augment *augment = &session->data.augment;
    const struct settings *settings = session->settings;
    for (int i = 0; i < 4; i++)
        if (augment->jitter[i] > 0) return "augment.jitter";
    for (int i = 0; i < 2; i++)
        if (augment->shear[i] > 0 || augment->translate[i] > 0) return "augment.shear or translate";
    return augment->random_resized                ? "augment.scale"
           : augment->pad > 0                     ? "augment.pad"
           : augment->random_crop                 ? "augment.crop, whose position is random,"
           : settings->augment.flip != 0          ? "augment.flip"
           : augment->vflip > 0                   ? "augment.vflip"
           : augment->rotate > 0                  ? "augment.rotate"
           : augment->policy != POLICY_NONE       ? "augment.auto_augment"
           : intensity_varies(&augment->intensity) ? "augment.gray, gamma, blur or noise"
           : augment->erase > 0                   ? "augment.random_erasing"
           : mix_is_on(&session->data.mix)        ? "augment.mixup or cutmix"
           : session->data.sizes.count > 0        ? "augment.sizes"
           : settings->augment.val_flip           ? "augment.val_flip"
           : settings->augment.val_shift > 0      ? "augment.val_shift"
           : session->graphs.own_evaluation       ? "the size of validation images, which is another one,"
                                                  : NULL;
}

/* The first layer up to the node that computes something else in training than in an evaluation. */
static const struct node *varying_layer(const struct graph *graph, int node)
{
    for (int i = 1; i <= node; i++) {
        const struct node *at = &graph->nodes[i];
        if (strcmp(at->op->name, "batchnorm") == 0) return at;
        if (at->op->training_only && ((const struct dropout *)at->settings)->rate > 0) return at;
    }
    return NULL;
}

static int64_t images_in(const struct images *images)
{
    return images->dataset ? images->count : 0;
}

static int64_t bytes_of(const struct session *session, int64_t numbers)
{
    return (images_in(&session->data.train) + images_in(&session->data.val)) * numbers *
           (int64_t)sizeof(float);
}

/* Why features are not the same in every epoch, or cannot be kept; empty: they can. */
static void find_obstacle(const struct session *session, int node, struct text *why)
{
    const struct graph *graph = &session->graphs.training;
    const char *vary = images_vary(session);
    const struct node *layer = varying_layer(graph, node);
    int64_t bytes = bytes_of(session, shape_count(graph->nodes[node].shape));
    char words[TEXT_BYTES];
    if (session->comm || session_device_kind(session) != DEVICE_CPU)
        text_add(why, "this is done by a single process on the CPU only");
    else if (session->data.target == TARGET_MASK)
        text_add(why, "masks are read with images");
    else if (session->teacher.path)
        text_add(why, "the teacher reads images");
    else if (vary)
        text_add(why, "%s changes them", vary);
    else if (layer)
        text_add(why, "'%s', %s, depends on the step", layer->name, layer->op->name);
    else if (session->settings->loader.cache == CACHE_NONE)
        text_add(why, "loader.cache = none");
    else if ((size_t)bytes > caching_host_limit(session->settings->loader.cache_limit))
        text_add(why, "they take %s, more than loader.cache_limit", text_bytes((uint64_t)bytes, words));
}

/* ---- Features ---- */

struct filling {
    struct loader_features *features;
    const struct images *images;
};

static enum status take_batch(void *context, const struct batch *batch, const float *outputs)
{
    if (signals_stop()) return STOPPED;
    const struct filling *filling = context;
    struct loader_features *features = filling->features;
    size_t count = (size_t)features->count;
    for (int i = 0; i < batch->count; i++) {
        int64_t place = batch->first + i;
        if (batch->labels[i] < 0) continue;
        memcpy(features->rows + (size_t)place * count, outputs + (size_t)i * count, count * sizeof *outputs);
        features->labels[place] = batch->labels[i];
        features->row[images_index(filling->images, place)] = place;
    }
    return OK;
}

static enum status fill(const struct session *session, const struct layer_output *output,
                        const struct images *images, struct loader_features *features)
{
    size_t count = (size_t)images->count, all = (size_t)images->dataset->count;
    struct filling filling = {features, images};
    struct loader *loader;
    *features = (struct loader_features){
        .count = (int)output->count,
        .rows = memory_try(count * (size_t)output->count, sizeof *features->rows),
        .row = memory_new(all, sizeof *features->row),
        .labels = memory_new(count, sizeof *features->labels),
    };
    if (!features->rows) return fail(FAILED, "not enough host memory for features of %zu images", count);
    for (size_t i = 0; i < all; i++) features->row[i] = -1;
    TRY(session_loader_open_features(session, images, &loader));
    const struct inference inference = {session, &output->step, loader, take_batch, &filling};
    enum status status = inference_run(&inference);
    loader_close(loader);
    return status;
}

static enum status fill_all(const struct session *session, struct store *store, int node,
                            struct features *features)
{
    const struct images *const images[] = {&session->data.train, &session->data.val};
    struct layer_output output;
    TRY(layer_output_open(session, store, node, false, &(struct exec_memory){0}, &output));
    enum status status = OK;
    for (int i = 0; i < 2 && status == OK; i++)
        if (images[i]->dataset) status = fill(session, &output, images[i], &features->splits[i]);
    layer_output_close(&output);
    return status;
}

static enum status compute(struct session *session, struct store *store, int node)
{
    const struct graph *graph = &session->graphs.training;
    struct features features = {0};
    char words[TEXT_BYTES];
    double begin = clock_seconds();
    enum status status = fill_all(session, store, node, &features);
    if (status != OK) {
        features_close(&features);
        return status == STOPPED ? OK : status;      /* the run's loop sees the stop, and ends the run */
    }
    features.head = graph_behind(graph, node);
    session->features = features;
    int count = features.splits[SPLIT_TRAIN].count;
    text_bytes((uint64_t)bytes_of(session, count), words);
    log_info("only what follows '%s' is trained (train.freeze): its output for %" PRId64 " images, %d "
             "numbers each (%s), was computed once, in %.1f s", graph->nodes[node].name,
             images_in(&session->data.train) + images_in(&session->data.val), count, words,
             clock_seconds() - begin);
    return OK;
}

enum status probe_open(struct session *session, struct store *store)
{
    const struct graph *graph = &session->graphs.training;
    int node = features_node(graph);
    struct text why = {0};
    if (node == 0 || !is_frozen(graph, node)) return OK;
    find_obstacle(session, node, &why);
    if (!why.data) return compute(session, store, node);
    log_info("only what follows '%s' is trained (train.freeze): its output is computed in every epoch: %s",
             graph->nodes[node].name, why.data);
    text_free(&why);
    return OK;
}
