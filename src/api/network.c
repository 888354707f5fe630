#include "api/network.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/weights.h"
#include "conf/options.h"
#include "explain/layer_output.h"
#include "explain/tiling.h"
#include "session/preprocessing.h"
#include "session/step_fit.h"

/* A program for a batch. Its session is the network's but for that batch, and owns nothing. */
struct engine {
    int node, batch;             /* up to this node; -1: to the outputs, NODE_PIXELS: in tiles */
    struct session session;
    struct step step;            /* to the outputs */
    struct layer_output output;  /* else this */
    struct classifier_loader loader;
    struct tiling *tiling;
};

#define NODE_PIXELS (-2)
#define NODE_PROBABILITIES (-3)

/* Batches of so few images take longer for layouts of the weights than these are worth computing anew each
 * time; with more, it does not pay for the memory. */
#define KEPT_BATCH 2

/* Smaller batches are this many times smaller. */
#define ENGINE_STEP 4

static const struct step *step_of(const struct engine *engine)
{
    return engine->node < 0 ? &engine->step : &engine->output.step;
}

static void engine_close(struct engine *engine)
{
    classifier_loader_close(&engine->loader);
    tiling_close(engine->tiling);
    layer_output_close(&engine->output);
    step_close(&engine->step);
    free(engine);
}

static struct session session_for(const struct network *network, int batch)
{
    struct session session = network->trained.session;
    session.hyper.batch = batch;
    return session;
}

/* ---- Memory ---- */

static int64_t bytes_of(const struct network *network, const struct step *step)
{
    const struct compiled *compiled = &step->compiled;
    return (int64_t)network->trained.store.layout.bytes + compiled->plan.arena_bytes +
           (int64_t)(2 * compiled->program.images_bytes) +
           session_preprocessing_bytes(&network->trained.session);
}

/* Lowers the batch to the largest whose plan is within memory.limit. */
static enum status fit_batch(struct network *network)
{
    if (network->trained.session.data.target == TARGET_MASK) return OK;
    int64_t limit = network->settings.memory.limit, bytes = 0;
    char needs[TEXT_BYTES], most[TEXT_BYTES];
    for (int batch = network->batch; limit > 0 && batch >= 1; batch /= 2) {
        const struct session session = session_for(network, batch);
        struct step step;
        TRY(step_prepare(&session, STEP_EVALUATION, &network->trained.store, &step));
        bytes = bytes_of(network, &step);
        step_close(&step);
        network->batch = batch;
        if (bytes <= limit) return OK;
    }
    if (limit == 0) return OK;
    return fail(NO_DEVICE, "one image at a time needs %s of memory; the limit is %s",
                text_bytes((uint64_t)bytes, needs), text_bytes((uint64_t)limit, most));
}

/* ---- Opening ---- */

/* Layers of a network that is folded would need more memory than the limit was divided for; networks that
 * label pixels have none to give. */
static enum status load(struct network *network)
{
    const struct trained_source source = {.path = network->path, .settings = &network->settings};
    unsigned wanted = DATA_NONE | (network->headless ? TRAINED_BACKBONE : TRAINED_FOLDED);
    bool layers = network->settings.data.task != TASK_SEGMENT;
    if (network->settings.memory.limit > 0 && layers) wanted &= ~TRAINED_FOLDED;
    return trained_network_load(&source, wanted, &network->trained);
}

static enum status open_from(struct network *network, const struct settings_sources *given)
{
    char batch[16];
    snprintf(batch, sizeof batch, "%d", network->batch);
    TRY(trained_network_settings(network->path, given, &network->settings));
    network->described = true;
    TRY(settings_take(&network->settings, "train", "batch", batch, "batch"));
    settings_derive(&network->settings, "train", "accumulate", "1");
    TRY(load(network));
    network->opened = true;
    TRY(fit_batch(network));
    if (network->trained.session.data.target == TARGET_MASK) return OK;
    network->trained.session.hyper.batch = network->batch;
    return preprocessing_open(&network->trained.session, false);
}

enum status network_open(const struct network_options *options, struct network *network)
{
    const struct settings_sources given = {.overrides = options->settings,
                                           .override_count = options->setting_count};
    *network = (struct network){.batch = options->batch, .headless = options->headless};
    TRY(weights_path(options->weights, &network->path));
    return open_from(network, &given);
}

void network_close(struct network *network)
{
    for (int i = 0; i < network->engine_count; i++) engine_close(network->engines[i]);
    free(network->engines);
    free(network->path);
    if (network->whole.memory) store_close(&network->whole);
    if (network->opened) trained_close(&network->trained);
    if (network->described) settings_free(&network->settings);
}

/* ---- Running ---- */

static const struct exec *lender_of(const struct network *network)
{
    const struct exec *largest = NULL;
    int64_t most = 0;
    for (int i = 0; i < network->engine_count; i++) {
        const struct step *step = step_of(network->engines[i]);
        if (step->compiled.plan.arena_bytes <= most) continue;
        most = step->compiled.plan.arena_bytes;
        largest = step->exec;
    }
    return largest;
}

static enum status place(const struct exec_memory *memory, struct step *step)
{
    enum status status = exec_place(step->exec, memory);
    if (status != OK) step_close(step);
    return status;
}

static enum status engine_open(struct network *network, struct engine *engine)
{
    struct store *store = &network->trained.store;
    const struct exec_memory memory = {.lender = lender_of(network)};
    if (engine->node >= 0 && network->trained.session.graphs.folded.nodes) {
        store = &network->whole;
        if (!store->memory) TRY(trained_network_whole(&network->trained, network->path, store));
    }
    if (engine->node <= NODE_PIXELS) {
        engine->session.keeps_probabilities = engine->node == NODE_PROBABILITIES;
        engine->session.tile_batch = engine->batch;
        TRY(step_fit_tiles(&engine->session, false));
    }
    if (engine->node >= 0)
        return layer_output_open(&engine->session, store, engine->node, true, &memory, &engine->output);
    TRY(step_prepare(&engine->session, STEP_EVALUATION, store, &engine->step));
    TRY(place(&memory, &engine->step));
    bool few = engine->node > NODE_PIXELS && engine->batch <= KEPT_BATCH;
    bool host = session_device_kind(&engine->session) == DEVICE_CPU;
    if (few && host && network->settings.memory.limit == 0)
        kernel_plans_keep_weights(&engine->step.compiled.kernel_plans);
    return OK;
}

/* The smallest batch that no more than half of is empty. With a limit there is one for all tiles, whose
 * memory is known to suffice. */
static int batch_for(const struct network *network, int node, int64_t count)
{
    bool tiled = node <= NODE_PIXELS;
    int batch = tiled ? tiles_of(&network->trained.session).batch : network->batch;
    if (tiled && network->settings.memory.limit > 0) return batch;
    while (batch > 1 && 2 * count <= batch) batch = batch > ENGINE_STEP ? batch / ENGINE_STEP : 1;
    return batch;
}

static enum status engine_find(struct network *network, int node, int64_t count, struct engine **found)
{
    int batch = batch_for(network, node, count);
    for (int i = 0; i < network->engine_count; i++) {
        *found = network->engines[i];
        if ((*found)->node == node && (*found)->batch == batch) return OK;
    }
    struct engine *engine = memory_new(1, sizeof *engine);
    *engine = (struct engine){.node = node, .batch = batch, .session = session_for(network, batch)};
    enum status status = engine_open(network, engine);
    if (status == OK) *found = *array_push(network->engines, network->engine_count) = engine;
    else engine_close(engine);
    return status;
}

enum status network_layer(const struct network *network, const char *layer, int *node, int64_t *features)
{
    const struct graph *graph = &network->trained.session.graphs.evaluation;
    TRY(layer_output_find(graph, layer, node));
    struct graph part = graph_until(graph, *node, true);
    *features = shape_count(part.nodes[part.output].shape);
    graph_free(&part);
    return OK;
}

enum status network_run(struct network *network, int node, const struct listed_image *images, int64_t count,
                        enum status (*take)(void *context, int64_t image, const struct classified *what),
                        void *context)
{
    struct engine *engine;
    TRY(engine_find(network, node, count, &engine));
    const struct classifier classifier = {&engine->session, step_of(engine),
                                          node < 0 ? 0 : engine->output.count, &engine->loader};
    return classifier_run(&classifier, images, count, take, context);
}

enum status network_label_pixels(struct network *network, const struct network_pixels *pixels)
{
    struct engine *engine;
    int64_t tiles = tiling_count(&network->trained.session, pixels->images, pixels->count);
    if (pixels->mirrored || network->settings.augment.val_flip) tiles *= 2;
    TRY(engine_find(network, pixels->probabilities ? NODE_PROBABILITIES : NODE_PIXELS, tiles, &engine));
    const struct tiling_options options = {.session = &engine->session, .step = &engine->step,
                                         .mirrored = pixels->mirrored};
    const struct tiling_list list = {pixels->images, pixels->count, NULL, pixels->take, pixels->context};
    return tiling_run_list(&options, &list, &engine->tiling);
}
